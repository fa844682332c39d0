/**
 * Pauses writes to a full disk, and continues them when there is room.
 *
 * in   needs: a directory, bytes, what is written      out  a promise that resolves once the bytes are free
 * Invariants: until `close`, `attempt` repeats work that failed for lack of space, so such work must write everything
 * or nothing. While a write with `stopsClock` (the log, its blobs) waits, the clock `fx.elapsed` stands still: no
 * deadline on that clock passes during the pause. After `close` nothing waits: what finds no room fails with the error
 * of the full disk.
 */
import type { Effects } from '../effects'
import { TroupeError } from '../errors'
import type { Log } from '../log'
import { isDiskFull, needText, reserveOf, type Space, sizeText, spaceIn } from './freeSpace'

/** A write that waits for room. */
export interface Need {
  /** Name for messages, such as `the log`. */
  readonly what: string
  /** Directory that the write goes to; it need not exist yet. */
  readonly directory: string
  readonly bytes: number
  /**
   * True for a write without which no part of the run can continue (the log and its blobs): the run's clock stands
   * still while it waits. Default: false.
   */
  readonly stopsClock?: boolean
}

/** Data about a pause that begins. */
export interface Pause {
  readonly what: string
  readonly directory: string
  /** Free bytes at which the run resumes. */
  readonly needBytes: number
  readonly freeBytes: number
}

export interface DiskPause {
  /**
   * The run's effects; their `elapsed` stands still while a write with `stopsClock` waits, and from a call of
   * `stopClock` until the function that it returned is called.
   */
  readonly fx: Effects
  /** True while a write with `stopsClock` waits. */
  readonly isPaused: () => boolean
  /**
   * Resolves once the bytes and the reserve (bytes that a run leaves free) are free. @throws TroupeError bus.disk_full
   * if they are not free at or after `close`
   */
  room(need: Need): Promise<void>
  /**
   * Waits for room, then does the work. If that fails for lack of space (a used-up quota does not show in the free
   * space), waits and does it again: the wait is `lookEveryMs` at first, and doubles with each failure, to 32 times as
   * much.
   */
  attempt<T>(need: Need, work: () => Promise<T>): Promise<T>
  /**
   * Stops the run's clock, as a full disk does, until the returned function is called; for a pause that a person
   * ordered.
   */
  stopClock(): () => void
  /** Sets the listener of pauses: it is called once as each begins. */
  onPause(listener: (pause: Pause) => void): void
  close(): void
}

export interface DiskPauseOptions {
  readonly fx: Effects
  readonly log: Log
  /** Reads the space of a directory. Default: the file system's. */
  readonly spaceOf?: (directory: string) => Space | undefined
  /** Milliseconds between two checks of the free space while there is no room. Default 1000. */
  readonly lookEveryMs?: number
}

/** Upper bound on the time between two attempts at a write, as a multiple of `lookEveryMs`. */
const mostBackoff = 32
/**
 * Milliseconds for which one measurement of free space is used, provided that at most a quarter of the reserve is
 * written meanwhile.
 */
const goodForMs = 50

interface Looked {
  readonly at: number
  /** Bytes that may be written before the next look. */
  leftBytes: number
}

export function diskPause(options: DiskPauseOptions): DiskPause {
  const { log, spaceOf = spaceIn, lookEveryMs = 1000 } = options
  const looked = new Map<string, Looked>()
  /** Number of waiting writes by key (`what` and `directory`); writes with the same key share one pause. */
  const waiting = new Map<string, number>()
  /** Running polls for room, by the same keys as `waiting`. They never reject. */
  const polls = new Map<string, Promise<void>>()
  const over = new AbortController()
  let listener: (pause: Pause) => void = () => {}
  /**
   * Number of pauses that stop the clock now; time on the outer clock at which it was stopped, ms; total duration of
   * all earlier stops, ms.
   */
  let [stops, stoppedAt, stoppedMs] = [0, 0, 0]
  /** Number of present pauses of writes with `stopsClock`. */
  let logStops = 0
  let startClock: () => void = () => {}

  const elapsed = () => (stops > 0 ? stoppedAt : options.fx.elapsed()) - stoppedMs
  const fx: Effects = { ...options.fx, elapsed }

  function stopClock(): () => void {
    if (stops++ === 0) stoppedAt = options.fx.elapsed()
    let isOver = false
    return () => {
      if (isOver) return
      isOver = true
      if (--stops === 0) stoppedMs += options.fx.elapsed() - stoppedAt
    }
  }

  /**
   * Free bytes at which a paused write continues: its own bytes and twice the reserve, since with less the run could
   * pause again at once.
   */
  const neededFor = ({ bytes }: Need, space: Space) => 2 * reserveOf(space) + bytes

  /** True if there is room for the need and the reserve beside it. */
  function hasRoom({ directory, bytes }: Need): boolean {
    const now = performance.now()
    const last = looked.get(directory)
    if (last !== undefined && now - last.at < goodForMs && bytes <= last.leftBytes) {
      last.leftBytes -= bytes
      return true
    }
    looked.delete(directory)
    const space = spaceOf(directory)
    if (space === undefined) return true
    const leftBytes = space.freeBytes - reserveOf(space) - bytes
    if (leftBytes < 0) return false
    looked.set(directory, { at: now, leftBytes: Math.min(leftBytes, reserveOf(space) / 4) })
    return true
  }

  /**
   * Begins a pause, or joins the pause of writes with the same `what` and directory. Returns a function that ends this
   * write's wait.
   */
  function pauseFor(need: Need): () => void {
    const { what, directory, stopsClock = false } = need
    const key = keyOf(need)
    const others = waiting.get(key) ?? 0
    waiting.set(key, others + 1)
    if (others === 0) {
      if (stopsClock && logStops++ === 0) startClock = stopClock()
      const space = spaceOf(directory)
      const needBytes = space === undefined ? need.bytes : neededFor(need, space)
      const freeBytes = space?.freeBytes ?? 0
      const fields = { path: directory, need: sizeText(needBytes), free: sizeText(freeBytes) }
      log.warn(fields, `the run pauses: the disk has no space left for ${what}; it resumes when there is room`)
      listener({ what, directory, needBytes, freeBytes })
    }
    return () => {
      const left = (waiting.get(key) ?? 1) - 1
      if (left > 0) return void waiting.set(key, left)
      waiting.delete(key)
      if (stopsClock && --logStops === 0) startClock()
      if (!over.signal.aborted) log.warn({ path: directory }, `the run resumes: there is room for ${what} again`)
    }
  }

  async function untilRoom(need: Need): Promise<void> {
    const end = pauseFor(need)
    try {
      for (let isFull = true; isFull && !over.signal.aborted; ) {
        await wait(lookEveryMs, over.signal)
        const space = spaceOf(need.directory)
        isFull = space !== undefined && space.freeBytes < neededFor(need, space)
      }
    } finally {
      end()
      polls.delete(keyOf(need))
    }
  }

  async function room(need: Need): Promise<void> {
    const key = keyOf(need)
    // If writes with the same key already wait, this write waits for the same poll.
    while (polls.has(key) || !hasRoom(need)) {
      if (over.signal.aborted) throw diskFull(need)
      const poll = polls.get(key) ?? untilRoom(need)
      polls.set(key, poll)
      await poll
    }
  }

  return {
    fx,
    isPaused: () => logStops > 0,
    stopClock,
    room,
    async attempt(need, work) {
      let end: (() => void) | undefined
      try {
        for (let backoff = 1; ; backoff = Math.min(mostBackoff, 2 * backoff)) {
          await room(need)
          try {
            return await work()
          } catch (thrown) {
            if (!isDiskFull(thrown) || over.signal.aborted) throw thrown
            // The disk was full although `room` had found enough: a quota is used up, another program wrote meanwhile,
            // or the work needed more bytes than `need` says.
            end ??= pauseFor(need)
            await wait(lookEveryMs * backoff, over.signal)
          }
        }
      } finally {
        end?.()
      }
    },
    onPause(given) {
      listener = given
    },
    close: () => over.abort(),
  }
}

const keyOf = ({ what, directory }: Need): string => `${what} ${directory}`

const diskFull = ({ what, directory, bytes }: Need): TroupeError =>
  new TroupeError('bus.disk_full', {
    boundary: 'bus',
    retriable: true,
    message: `the disk has no space left for ${what} in ${directory}: ${needText(directory, bytes)}`,
    hint: `free space on the file system of ${directory}, or raise the quota of this user, then resume the run with --resume`,
  })

function wait(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise(resolve => {
    if (signal.aborted) return resolve()
    const done = () => {
      clearTimeout(timer)
      signal.removeEventListener('abort', done)
      resolve()
    }
    const timer = setTimeout(done, ms)
    signal.addEventListener('abort', done, { once: true })
  })
}
