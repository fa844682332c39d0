/**
 * Chaos run on lmdb: a quickstart in one process with its children, into which faults are injected at random moments.
 *
 * in   a seed, settings, durations        out  the injected faults, and the result that the run's log shows
 * Invariant: no process is left running. A run is resumed if its process was killed, or if a full disk refused it: its
 * log could not be opened, or it had not begun to train and its checkpoints had no room (`config.disk_too_small`). A run
 * that ends in another way because of a full disk is an error: it has to wait for room.
 */

import { runId } from '../../../messages/ids'
import { memoryBlobs } from '../../../runtime/bus/blobs'
import { openLmdbBus } from '../../../runtime/bus/lmdb/lmdbBus'
import { openJournal } from '../../../runtime/journal/openJournal'
import { runDirectory } from '../../../runtime/runDirectory'
import { type Finished, isAlive, messagesOf, type Running, troupe } from '../cli'
import { descendantsOf } from '../descendants'
import { until } from '../until'
import { childFaults } from './childFaults'
import { clockFaults } from './clockFaults'
import { smallDisk } from './diskFaults'
import { keepLog } from './keepLog'
import { type ChaosOptions, diskGraceMs } from './options'
import { type ChaosOutcome, outcomeOf } from './outcome'
import { processFaults } from './processFaults'
import { strikeFaults } from './schedule'

const longestStopMs = 8000

export async function lmdbChaos(options: ChaosOptions): Promise<ChaosOutcome> {
  const { run, seed, settings, faultsForMs, leastFaults = 0, everyMs, endWithinMs, say = () => {} } = options
  const disk = smallDisk(options.diskMegabytes)
  const { directory } = disk
  const bus = `lmdb:${directory}`
  const clocks = clockFaults(`${directory}.clocks`, () => ['process'])
  let running: Running | undefined
  let ended: Finished | undefined
  /** Counts the starts and resumes in the log. `begunBefore`: this count before the latest process was started. */
  const begun = async () =>
    (await messagesOf(directory, run, 'runs')).filter(({ type }) => /^run\.(started|resumed)$/.test(type)).length
  let begunBefore = 0
  const start = (...args: readonly string[]) => {
    const one = troupe(['train', 'quickstart', '--bus', bus, ...args], clocks.env('process'))
    running = one
    ended = undefined
    void one.done.then(finished => {
      if (running === one) ended = finished
    })
  }
  const resume = () => start('--resume', run)
  let refusals = 0
  /** Resolves with true once the run has succeeded; resumes it if it could not open its log on a full disk. */
  const isOver = async (): Promise<boolean> => {
    if (ended === undefined) return false
    if (ended.code === 0) return true
    const { code, signal, stderr } = ended
    // Only a run that has left neither weights nor checkpoints is refused with this code.
    const isTooSmall = stderr.includes('config.disk_too_small')
    const isRefused = isTooSmall || (await begun()) === begunBefore
    if (!isRefused || !disk.wasFull(diskGraceMs))
      throw new Error(`the run ended with ${code ?? signal}: ${stderr.slice(-3000)}`)
    refusals++
    say(`the full disk refused the run with ${code}, and it is resumed: ${stderr.trim().split('\n').at(-1)}`)
    begunBefore = await begun()
    resume()
    return false
  }
  const victim = {
    ...{ name: 'process', role: 'process', start: resume },
    signal: (name: NodeJS.Signals) => void running!.process.kill(name),
    async ended() {
      const children = descendantsOf(running!.process.pid!)
      await running!.done
      begunBefore = await begun()
      await until(() => !children.some(isAlive), 20_000)
    },
  }
  const pid = () => (ended === undefined ? [running!.process.pid!] : [])
  const faults = [
    ...childFaults(pid, async () => (await messagesOf(directory, run, 'learner')).length),
    ...processFaults({ victims: [victim], longestStopMs, weight: 0.4 }),
    ...clocks.faults,
    ...disk.faults,
  ]
  try {
    start('--run', run, ...settings)
    const hasStarted = async () =>
      (await isOver()) || (await messagesOf(directory, run, 'runs')).some(({ type }) => type === 'run.started')
    await until(hasStarted, endWithinMs, 100)
    const counts = new Map(await strikeFaults({ faults, seed, faultsForMs, leastFaults, everyMs, isOver, say }))
    say('no more faults')
    await until(isOver, endWithinMs, 250).catch(thrown => {
      throw new Error(`${(thrown as Error).message}; it said: ${running!.said().slice(-2000)}`)
    })
    if (refusals > 0) say(`${refusals} times a full disk kept the run from opening its log`)
    const verified = await troupe(['replay', 'verify', '--bus', bus, '--run', run]).done
    const open = await openLmdbBus({ directory: runDirectory(directory, runId(run)).log, mode: 'read' })
    const leftOut = [...clocks.leftOut, ...disk.leftOut]
    const journal = openJournal(open, memoryBlobs(), runId(run))
    return await outcomeOf(journal, { faults: counts, leftOut, verified }).finally(() => open.close())
  } finally {
    running?.process.kill('SIGKILL')
    running?.process.kill('SIGCONT')
    await running?.done
    if (options.keepIn !== undefined) await keepLog({ bus, run, directory }, options.keepIn, say)
    disk.close()
    clocks.close()
  }
}
