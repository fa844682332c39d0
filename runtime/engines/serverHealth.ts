/**
 * Whether an inference server still lives: asked every few seconds, and at once when a request has failed.
 *
 * in   the server        out  the reason why it is given up, once
 * Invariant: a server that says that its engine is dead, or where nobody listens, is given up within seconds; one that is
 * only slow keeps a minute. What is given up stays so: a server that comes back is another engine.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { asError, TroupeError } from '../errors'
import type { ServerHttp } from './serverHttp'

export interface ServerHealth {
  /** Resolves, with the reason, when the server is given up. */
  readonly lost: Promise<Error>
  /** Asks now. undefined: it lives. */
  check(): Promise<Error | undefined>
  close(): void
}

export interface ServerHealthOptions {
  readonly everyMs?: number
  readonly timeoutMs?: number
  /** What is asked; 200 is life. Default /health. */
  readonly path?: string
  /** Questions in a row that may time out. */
  readonly patience?: number
}

const againMs = 300

export function serverHealth(http: ServerHttp, options: ServerHealthOptions = {}): ServerHealth {
  const { everyMs = 2000, timeoutMs = 10_000, patience = 6, path = '/health' } = options
  const stopped = new AbortController()
  let declare: (error: Error) => void = () => {}
  const lost = new Promise<Error>(resolve => {
    declare = resolve
  })
  let late = 0

  /** dead: given up at once. */
  async function ask(): Promise<{ readonly error: Error; readonly dead: boolean } | undefined> {
    try {
      const { status, text } = await http.get(path, timeoutMs)
      if (status === 200) return undefined
      return { error: gone(http.url, `${path} says ${status} ${text.slice(0, 200)}`.trim()), dead: true }
    } catch (thrown) {
      const error = asError(thrown)
      return { error, dead: !(error instanceof TroupeError && error.code === 'engine.timeout') }
    }
  }

  async function check(): Promise<Error | undefined> {
    let found = await ask()
    if (found?.dead) {
      await sleep(againMs) // one refused connection is not yet a dead server
      found = await ask()
    }
    late = found === undefined ? 0 : late + 1
    if (found === undefined || !(found.dead || late >= patience)) return undefined
    if (!stopped.signal.aborted) declare(found.error)
    stopped.abort()
    return found.error
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
