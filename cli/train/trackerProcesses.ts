/**
 * Trackers of a recipe: a process of low priority for each (`troupe track`), so that a tracker takes no time from the
 * run.
 *
 * in   the run's bus and name, addresses of trackers
 * out  the run's figures in the trackers; on stderr what fails
 * Invariant: a tracker never ends a run, and delays only its end. A process that fails is started again, at most
 * `mostRestarts` times, and continues after the points that the tracker has. At the run's end the processes get `endMs`
 * for the last points, all at the same time; one that still runs then is killed.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { setPriority } from 'node:os'
import { join } from 'node:path'
import { TroupeError } from '../../runtime/errors'
import { placeOptions } from '../options/busOptions'

export interface TrackersOf {
  readonly bus: string
  readonly dir?: string
  readonly run: string
  readonly trackers: readonly string[]
  /** Time for the last points after the run's end, ms. */
  readonly endMs?: number
  /** Delay before the first restart of a process, ms; it doubles with each further one. */
  readonly restartMs?: number
  readonly say?: (line: string) => void
}

const mostRestarts = 5
const usualRestartMs = 10_000
const usualEndMs = 10_000
const lowPriority = 10

/** @throws TroupeError cli.wrong_usage for a memory bus, which no other process can read */
export function checkTrackersBus(bus: string, trackers: readonly string[]): void {
  if (bus !== 'memory:' || trackers.length === 0) return
  throw new TroupeError('cli.wrong_usage', {
    boundary: 'cli',
    retriable: false,
    message:
      "the recipe's trackers read the log from other processes, but the log of a memory bus exists only in this process",
    hint: "leave out --bus memory:, or add --set 'trackers=[]'",
  })
}

/** Starts the trackers. The function that it returns ends them, and resolves within `endMs`. */
export function startTrackers(options: TrackersOf): () => Promise<void> {
  const ends = options.trackers.map(to => startTracker(to, options))
  return async () => {
    await Promise.all(ends.map(end => end()))
  }
}

function startTracker(
  to: string,
  {
    bus,
    dir,
    run,
    endMs = usualEndMs,
    restartMs = usualRestartMs,
    say = line => process.stderr.write(`${line}\n`),
  }: TrackersOf,
): () => Promise<void> {
  const bin = join(__dirname, __filename.endsWith('.ts') ? '../bin.js' : '../../../cli/bin.js')
  const where = ['--bus', bus, ...(dir === undefined ? [] : ['--dir', dir])]
  const again = `npx troupe track ${run} --to '${to}'${placeOptions({ bus, ...(dir === undefined ? {} : { dir }) })}`
  let child: ChildProcess | undefined
  let isEnding = false
  let restarts = 0
  let timer: NodeJS.Timeout | undefined
  let settle: (code: number | null) => void = () => {}
  /** Exit code of the latest process that has ended; null: it was killed, or none has run. */
  let latest: number | null = null

  function start(): void {
    const started = spawn(process.execPath, [bin, 'track', run, '--to', to, ...where, '--until-stdin-ends'], {
      stdio: ['pipe', 'ignore', 'inherit'],
      detached: true,
    })
    child = started
    started.stdin?.on('error', () => {}) // the tracker has ended by itself, and its stderr says why
    started.once('error', error => {
      say(`tracker ${to}: it could not be started: ${error.message}`)
      if (started.pid !== undefined) return
      child = undefined
      settle(null)
    })
    started.once('spawn', () => lowered(started.pid!))
    started.once('exit', code => {
      child = undefined
      latest = code
      settle(code)
      if (isEnding || code === 0) return
      if (restarts === mostRestarts)
        return say(`tracker ${to}: given up; \`${again}\` continues after the points that it has`)
      const afterMs = restartMs * 2 ** restarts++
      say(`tracker ${to}: its process ended; starting it again in ${afterMs / 1000} s`)
      timer = setTimeout(start, afterMs)
      timer.unref()
    })
    started.unref()
  }

  start()
  return async () => {
    isEnding = true
    clearTimeout(timer)
    const code = await endOf(child)
    if (code !== 0) say(`tracker ${to}: it lacks the last points; \`${again}\` adds them`)
  }

  /**
   * Ends the tracker's process. Returns its exit code, or that of the latest process if none runs; null if that process
   * was killed, or none could be started.
   */
  async function endOf(running: ChildProcess | undefined): Promise<number | null> {
    if (running === undefined) return latest
    const ended = new Promise<number | null>(resolve => {
      settle = resolve
    })
    running.stdin?.end()
    const limit = setTimeout(() => running.kill('SIGKILL'), endMs)
    return ended.finally(() => clearTimeout(limit))
  }
}

function lowered(pid: number): void {
  try {
    setPriority(pid, lowPriority)
  } catch {
    // The tracker has ended already, or the system does not allow a lower priority: then it runs with the usual one.
  }
}
