/**
 * Liveness of an inference server: polled every few seconds, and at once when a request has failed.
 *
 * in   the server        out  the reason why it is declared lost, once
 * Invariant: a server is declared lost when a poll and its repetition after 300 ms both find one of these: a
 * connection to it fails; /health answers 5xx, which means a dead engine; or the answer is a status below 500 other
 * than 200 and 429. A slow server, or one that answers 5xx on another path, is declared lost only after six such polls
 * in a row by default (about a minute), however many requests fail meanwhile. A server that answers "too many requests"
 * is alive. A lost server stays lost: if it answers again, it counts as another engine.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { systemEffects } from '../../../runtime/effects'
import { asError, TroupeError } from '../../../runtime/errors'
import { excerpt } from '../../../runtime/secrets/knownSecrets'
import type { ServerHttp } from './http'

export interface ServerHealth {
  /** Resolves with the reason once the server is declared lost. */
  readonly lost: Promise<Error>
  /**
   * Polls now. Resolves with the error if the server is declared lost; with undefined if it is alive, or if it is slow
   * or failing but `patience` is not used up.
   */
  check(): Promise<Error | undefined>
  close(): void
}

export interface ServerHealthOptions {
  readonly everyMs?: number
  readonly timeoutMs?: number
  /** Path to poll; the statuses 200 and 429 mean alive. Default: /health. */
  readonly path?: string
  /**
   * Number of unsuccessful polls in a row after which a server that is slow, or answers with errors, is declared lost;
   * error answers count at most once per `timeoutMs`. Default: 6.
   */
  readonly patience?: number
}

const againMs = 300
/**
 * Path at which a server reports on its engine: a 5xx there means that the engine is dead; at other paths it may pass.
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

  /**
   * Polls once; undefined means alive. dead: declared lost if a second poll finds the same. slow: the poll timed out.
   * failing: the server answers with an error.
   */
  async function ask(): Promise<{ readonly error: Error; readonly is: 'dead' | 'slow' | 'failing' } | undefined> {
    try {
      const { status, text } = await http.get(path, timeoutMs)
      if (status === 200 || status === 429) return undefined
      const is = status >= 500 && path !== engineHealth ? 'failing' : 'dead'
      return { error: gone(http.url, `${path} says ${status} ${excerpt(text, 200)}`.trim()), is }
    } catch (thrown) {
      const error = asError(thrown)
      return { error, is: error instanceof TroupeError && error.code === 'engine.timeout' ? 'slow' : 'dead' }
    }
  }

  async function look(): Promise<Error | undefined> {
    let found = await ask()
    if (found?.is === 'dead') {
      await sleep(againMs) // one refused connection does not prove that the server is dead
      found = await ask()
    }
    if (found === undefined) {
      late = 0
      return undefined
    }
    // Every failed request polls at once, so failing answers may come often. At most one per timeout counts: a failing
    // server gets the same time as a slow one.
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

  /** Polls the server; concurrent callers share one poll. */
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
    message: `the server at ${url} fails its health check: ${what}`,
  })
