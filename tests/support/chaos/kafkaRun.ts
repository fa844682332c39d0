/**
 * Chaos run on Kafka: a quickstart of many processes, into which faults are injected at random moments.
 *
 * in   a seed, settings, durations
 * out  the injected faults, and the result that the run's log shows
 * Invariant: no process is left running, nor is the broker. A process that cannot start because the disk is full is
 * restarted.
 */
import { everything } from '../audit'
import { troupe } from '../cli'
import { type KafkaServers, startKafka } from '../kafka'
import { freePorts } from '../ports'
import { parts, type RoleProcesses, roleProcesses, sessionMs } from '../roleProcesses'
import { type SilentProxy, silentProxy } from '../silentProxy'
import { until } from '../until'
import { brokerFaults } from './brokerFaults'
import { childFaults } from './childFaults'
import { clockFaults } from './clockFaults'
import { smallDisk } from './diskFaults'
import { keepLog } from './keepLog'
import { type ChaosOptions, diskGraceMs } from './options'
import { type ChaosOutcome, outcomeOf } from './outcome'
import { processFaults, type Victim } from './processFaults'
import { strikeFaults } from './schedule'

interface Brokered extends ChaosOptions {
  readonly kafka: KafkaServers
  /** Proxy to the broker, which faults can cut; the processes whose names end in `-2` use it. */
  readonly link: SilentProxy
}

const roleOf = new Map(parts)

/** Starts a broker and a proxy to it, makes the chaos run over both, and ends them. */
export async function kafkaChaos(options: ChaosOptions): Promise<ChaosOutcome> {
  const [through, behind] = (await freePorts(2)) as [number, number]
  const way = { listens: `127.0.0.1:${behind}`, advertised: `127.0.0.1:${through}` }
  const kafka = await startKafka({ way })
  const link = await silentProxy(through, behind)
  try {
    return await chaosWith({ ...options, kafka, link })
  } finally {
    await link.close()
    await kafka.stop()
  }
}

async function chaosWith(options: Brokered): Promise<ChaosOutcome> {
  const { kafka, link, run, seed, faultsForMs, leastFaults = 0, everyMs, endWithinMs, say = () => {} } = options
  const disk = smallDisk(options.diskMegabytes)
  const names = parts.map(([name]) => name)
  const clocks = clockFaults(`${disk.directory}.clocks`, () => names)
  const query = `?sessionTimeoutMs=${sessionMs}`
  const linked = `kafka://127.0.0.1:${link.port}${query}`
  const processes = roleProcesses(`${kafka.address}${query}`, disk.directory, run, {
    envOf: clocks.env,
    addressOf: name => (name.endsWith('-2') ? linked : `${kafka.address}${query}`),
  })
  const start = (name: string) => {
    const role = roleOf.get(name)!
    processes.start(name, role, ...(role === 'learner' ? ['--partitions', '3', ...options.settings] : []))
  }
  try {
    for (const name of names) start(name)
    const journal = await processes.journal(endWithinMs)
    const count = async (topic: 'runs' | 'learner', type: string) =>
      (await everything(journal, topic, 0)).filter(({ message }) => message.type === type).length
    const isOver = async () => {
      startAgain(processes, disk.wasFull(diskGraceMs), start, say)
      return (await count('runs', 'run.finished')) > 0
    }
    await processes.happens(async () => (await count('learner', 'weights.published')) > 0, endWithinMs)
    const victims = parts
      .filter(([, role]) => role !== 'verifier')
      .map(([name, role]) => victimOf(processes, name, role, start))
    const faults = [
      ...childFaults(processes.pids, async () => (await everything(journal, 'learner', 0)).length),
      ...processFaults({ victims, longestStopMs: 1.5 * sessionMs, weight: 0.6 }),
      ...brokerFaults(kafka, link, 1.5 * sessionMs),
      ...clocks.faults,
      ...disk.faults,
    ]
    const counts = await strikeFaults({ faults, seed, faultsForMs, leastFaults, everyMs, isOver, say })
    say('no more faults')
    await until(isOver, endWithinMs, 250)
    for (const name of names) {
      const { code, stderr } = await processes.done(name)
      if (code !== 0) throw new Error(`${name} ended with ${code}: ${stderr.slice(-2000)}`)
    }
    const verified = await troupe(['replay', 'verify', '--bus', kafka.address, '--run', run], {}, disk.directory).done
    return await outcomeOf(journal, { faults: counts, leftOut: [...clocks.leftOut, ...disk.leftOut], verified })
  } finally {
    await processes.end()
    const { directory } = disk
    if (options.keepIn !== undefined) await keepLog({ bus: kafka.address, run, directory }, options.keepIn, say)
    disk.close()
    clocks.close()
  }
}

/**
 * Restarts the processes that a full disk refused: they could not start, or had no room for the checkpoints of a run
 * that has not begun to train. @throws Error if a process ended for another
 * reason, or after it was ready: a process that runs has to wait for room on the disk
 */
function startAgain(
  processes: RoleProcesses,
  wasFull: boolean,
  start: (name: string) => void,
  say: (text: string) => void,
): void {
  for (const name of processes.failed()) {
    const said = processes.said(name)
    const isRefused = said.includes('config.disk_too_small') || !/: ready$/m.test(said)
    if (!wasFull || !isRefused) throw new Error(`${name} ended: ${said.slice(-3000)}`)
    say(`${name} could not start on the full disk, and is started again`)
    start(name)
  }
}

const victimOf = (processes: RoleProcesses, name: string, role: string, start: (name: string) => void): Victim => ({
  ...{ name, role },
  signal: signal => processes.signal(name, signal),
  ended: () => processes.done(name),
  start: () => start(name),
})
