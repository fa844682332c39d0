/**
 * Chaos test: runs the quickstart in many processes, and kills and stops them and the broker at random moments.
 *
 * in   a broker, a directory, a seed, the learner's settings      out  the number of faults by kind; an audit of the run's log
 * Invariant: the seed decides the order and kind of the faults; their moments depend on the machine. When `chaos` ends, none
 * of its processes runs.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type { Role } from '../../actors/run/run'
import type { EvaluationCompleted } from '../../messages/facts'
import { type Audit, audit, everything } from './audit'
import type { KafkaServers } from './kafka'
import { parts, type RoleProcesses, roleProcesses, sessionMs } from './roleProcesses'

export interface ChaosOptions {
  readonly kafka: KafkaServers
  readonly directory: string
  readonly run: string
  readonly seed: number
  /** Arguments that the `train` command of a learner gets besides its own. */
  readonly settings: readonly string[]
  /** Time in which faults happen, ms; afterwards the run ends undisturbed. 0: no faults. */
  readonly faultsForMs: number
  /** Mean time between two faults, ms. */
  readonly everyMs: number
  /** Deadline for the run's end, counted from the last fault, ms. */
  readonly endWithinMs: number
  readonly say?: (text: string) => void
}

export interface ChaosResult {
  /** Number of faults by kind: `kill learner`, `stop coordinator`, … */
  readonly faults: ReadonlyMap<string, number>
  readonly audit: Audit
  readonly outcome: string
  /** Evaluations in the log's order. */
  readonly evaluations: readonly EvaluationCompleted[]
  /** Number of `learner.claimed` facts. */
  readonly learners: number
}

/** Generator of random numbers in [0, 1), by mulberry32. */
function randomOf(seed: number): () => number {
  let state = seed >>> 0
  return () => {
    state = (state + 0x6d2b79f5) >>> 0
    let t = Math.imul(state ^ (state >>> 15), 1 | state)
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32
  }
}

export async function chaos(options: ChaosOptions): Promise<ChaosResult> {
  const { kafka, directory, say = () => {} } = options
  const processes = roleProcesses(`${kafka.address}?sessionTimeoutMs=${sessionMs}`, directory, options.run)
  const learner = ['--partitions', '3', ...options.settings]
  const start = (name: string, role: Exclude<Role, 'all'>) =>
    processes.start(name, role, ...(role === 'learner' ? learner : []))
  try {
    for (const [name, role] of parts) start(name, role)
    const journal = await processes.journal()
    const count = async (topic: 'runs' | 'learner', type: string) =>
      (await everything(journal, topic, 0)).filter(({ message }) => message.type === type).length
    const isOver = async () => (await count('runs', 'run.finished')) > 0
    await processes.happens(async () => (await count('learner', 'weights.published')) > 0, options.endWithinMs)
    const faults = await torment(options, processes, start, isOver)
    say('no more faults')
    await processes.happens(isOver, options.endWithinMs)
    for (const [name] of parts) {
      const { code, stderr } = await processes.done(name)
      if (code !== 0) throw new Error(`${name} ended with ${code}: ${stderr.slice(-2000)}`)
    }
    const [end] = (await everything(journal, 'runs', 0)).flatMap(({ message }) =>
      message.type === 'run.finished' ? [message] : [],
    )
    const learners = await count('learner', 'learner.claimed')
    const evaluations = (await everything(journal, 'runs', 0)).flatMap(({ message }) =>
      message.type === 'evaluation.completed' ? [message] : [],
    )
    return { faults, audit: await audit(journal), outcome: end!.outcome, evaluations, learners }
  } finally {
    await processes.end()
  }
}

/** Kills and restarts, or stops and continues, one process or the broker at a time. Returns the faults by kind. */
async function torment(
  { kafka, seed, faultsForMs, everyMs, say = () => {} }: ChaosOptions,
  processes: RoleProcesses,
  start: (name: string, role: Exclude<Role, 'all'>) => void,
  isOver: () => Promise<boolean>,
): Promise<ReadonlyMap<string, number>> {
  const random = randomOf(seed)
  const faults = new Map<string, number>()
  const victims = parts.filter(([, role]) => role !== 'verifier')
  const broker = kafka.brokers[0]!
  const until = performance.now() + faultsForMs
  while (performance.now() < until && !(await isOver())) {
    await sleep(everyMs * (0.5 + random()))
    const [name, role] = victims[Math.floor(random() * victims.length)]!
    const how = random()
    const pauseMs = random() * 1.5 * sessionMs
    const onBroker = how < 0.08
    const kills = onBroker ? how < 0.04 : how < 0.6
    await processes.check()
    if (await isOver()) break
    const what = `${kills ? 'kill' : 'stop'} ${onBroker ? 'broker' : role}`
    say(`${what}, ${kills ? 'again' : 'on'} after ${Math.round(pauseMs)} ms`)
    faults.set(what, (faults.get(what) ?? 0) + 1)
    if (onBroker) broker.kill(kills ? 'SIGKILL' : 'SIGSTOP')
    else processes.signal(name, kills ? 'SIGKILL' : 'SIGSTOP')
    if (!kills) {
      await sleep(pauseMs)
      if (onBroker) broker.kill('SIGCONT')
      else processes.signal(name, 'SIGCONT')
    } else if (onBroker) {
      await sleep(500)
      await broker.start()
    } else {
      await processes.done(name)
      await sleep(pauseMs / 4)
      start(name, role)
    }
  }
  return faults
}
