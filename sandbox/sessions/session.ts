/**
 * Numbers the cells of a session, so that callers pass only code.
 *
 * in   code, cell by cell      out  results; copies of the session
 * Invariant: a cell follows the last one that ran. A cell that was refused, rejected or aborted uses up no number.
 */
import { randomUUID } from 'node:crypto'
import { SandboxError } from '../errors'
import type { RunRequest, RunResult, Sandbox } from '../sandbox'

export interface Session {
  readonly id: string
  /**
   * Runs the next cell, which sees the names that earlier cells made. It waits until the earlier cells have ended.
   * @throws SandboxError as `Sandbox.run`: sandbox.aborted, …
   */
  run(
    code: string,
    more?: Pick<RunRequest, 'stdin' | 'timeoutMs' | 'memoryMb' | 'maxOutputBytes'>,
    signal?: AbortSignal,
  ): Promise<RunResult>
  /**
   * Copies the session with the cells that have ended.
   * @throws SandboxError sandbox.session_unknown if the session has a cell and was closed or evicted
   */
  fork(): Session
  close(): void
}

/** Opens a session in a sandbox. @throws SandboxError sandbox.level_unmet if the sandbox has no sessions */
export function openSession(sandbox: Sandbox): Session {
  if (sandbox.noSessions !== undefined) {
    throw new SandboxError('sandbox.level_unmet', { retriable: false, message: sandbox.noSessions })
  }
  return sessionAt(sandbox, randomUUID(), 0)
}

function sessionAt(sandbox: Sandbox, id: string, first: number): Session {
  let cell = first
  let turn: Promise<unknown> = Promise.resolve()
  const runNext = async (code: string, more: Omit<RunRequest, 'id' | 'code'>, signal?: AbortSignal) => {
    const result = await sandbox.run({ id: `${id}/${cell}`, code, ...more, session: { id, cell } }, signal)
    if (result.status !== 'rejected') cell++
    return result
  }
  return {
    id,
    run(code, more = {}, signal) {
      const run = turn.then(() => runNext(code, more, signal))
      turn = run.catch(() => undefined)
      return run
    },
    fork() {
      const to = randomUUID()
      if (cell > 0 && !sandbox.forkSession?.(id, cell - 1, to)) {
        throw new SandboxError('sandbox.session_unknown', {
          retriable: false,
          message: `session ${id} cannot be forked after its cell ${cell - 1}: it was closed or evicted`,
          hint: 'fork a session before it is closed; a sandbox forgets its least recently used sessions beyond 20,000',
        })
      }
      return sessionAt(sandbox, to, cell)
    },
    close: () => sandbox.endSession?.(id),
  }
}
