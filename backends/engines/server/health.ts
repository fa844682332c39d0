/**
 * Liveness of an inference server: polled every few seconds, and at once when a request has failed.
 *
 * in   the server        out  the reason why it is given up, once
 * Invariant: a server that reports a dead engine, or where nobody listens, is given up within seconds. A slow one has a minute,
 * however many requests fail meanwhile. One that answers "too many requests" is alive. A server that was given up stays so:
 * if it comes back, it is another engine.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { systemEffects } from '../../../runtime/effects'
import { asError, TroupeError } from '../../../runtime/errors'
import type { ServerHttp } from './http'

export interface ServerHealth {
  /** Resolves with the reason when the server is given up. */
  readonly lost: Promise<Error>
  /** Polls now; undefined means alive. */
  check(): Promise<Error | undefined>
  close(): void
}

export interface ServerHealthOptions {
  readonly everyMs?: number
  readonly timeoutMs?: number
  /** Path to poll; 200 and 429 mean alive. Default /health. */
  readonly path?: string
  /** Polls in a row that may time out. */
  readonly patience?: number
}

const againMs = 300
/**
 * Path at which a server reports on its engine: a 5xx there means that the engine is dead, elsewhere a bad moment of the server.
 */
const engineHealth = '/health'

export function serverHealth(http: ServerHttp, options: ServerHealthOptions = {}): ServerHealth {
  const { everyMs = 2000, timeoutMs = 10_000, patience = 6, path = engineHealth } = options
  const stopped = new AbortController()
  let declare: (error: Error) => void = () => {}
  const lost = new Promise<Error>(resolve => {
    declare = resolve
  })
  let late = 0
  let lateAt = Number.NEGATIVE_INFINITY
  let asking: Promise<Error | undefined> | undefined

  /** dead: given up at once. slow: it used all of its time. failing: it answers at once with an error. */
  async function ask(): Promise<{ readonly error: Error; readonly is: 'dead' | 'slow' | 'failing' } | undefined> {
    try {
      const { status, text } = await http.get(path, timeoutMs)
      if (status === 200 || status === 429) return undefined
      const is = status >= 500 && path !== engineHealth ? 'failing' : 'dead'
      return { error: gone(http.url, `${path} says ${status} ${text.slice(0, 200)}`.trim()), is }
    } catch (thrown) {
      const error = asError(thrown)
      return { error, is: error instanceof TroupeError && error.code === 'engine.timeout' ? 'slow' : 'dead' }
    }
  }

  async function look(): Promise<Error | undefined> {
    let found = await ask()
    if (found?.is === 'dead') {
      await sleep(againMs) // one refused connection is not yet a dead server
      found = await ask()
    }
    if (found === undefined) {
      late = 0
      return undefined
    }
    // A server that fails at once is polled as often as requests fail, so it gets as much time as a slow one.
    const now = systemEffects.elapsed()
    if (found.is === 'slow' || now - lateAt >= timeoutMs) {
      late++
      lateAt = now
    }
    if (found.is !== 'dead' && late < patience) return undefined
    if (!stopped.signal.aborted) declare(found.error)
    stopped.abort()
    return found.error
  }

  /** Concurrent callers share one poll. */
  const check = (): Promise<Error | undefined> => {
    asking ??= look().finally(() => {
      asking = undefined
    })
    return asking
  }

  async function watch(): Promise<void> {
    while (!stopped.signal.aborted) {
      await sleep(everyMs, undefined, { signal: stopped.signal, ref: false }).catch(() => {})
      if (!stopped.signal.aborted) await check()
    }
  }
  void watch()

  return { lost, check, close: () => stopped.abort() }
}

const gone = (url: string, what: string): TroupeError =>
  new TroupeError('engine.lost', {
    boundary: 'engine',
    retriable: true,
    message: `the server at ${url} is dead: ${what}`,
  })
