/**
 * A session as a value: cells are numbered for you.
 *
 * in   code, cell by cell      out  results; copies of the session as it is now
 */
import { randomUUID } from 'node:crypto'
import { SandboxError } from './errors'
import type { RunRequest, RunResult, Sandbox } from './sandbox'

export interface Session {
  readonly id: string
  /** Runs the next cell, over the names that the cells before have made. */
  run(code: string, more?: Pick<RunRequest, 'stdin' | 'timeoutMs' | 'memoryMb' | 'maxOutputBytes'>): Promise<RunResult>
  /** Another session that begins as this one is now. */
  fork(): Session
  close(): void
}

/** @throws SandboxError sandbox.level_unmet where the sandbox has no sessions */
export function openSession(sandbox: Sandbox): Session {
  if (sandbox.level !== 'full') {
    throw new SandboxError('sandbox.level_unmet', {
      retriable: false,
      message: `sessions need level 'full', this sandbox is at '${sandbox.level}'`,
    })
  }
  return sessionAt(sandbox, randomUUID(), 0)
}

function sessionAt(sandbox: Sandbox, id: string, first: number): Session {
  let cell = first
  return {
    id,
    async run(code, more = {}) {
      const place = { id, cell: cell++ }
      const result = await sandbox.run({ id: `${id}/${place.cell}`, code, ...more, session: place })
      if (result.status === 'rejected') cell = Math.min(cell, place.cell)
      return result
    },
    fork() {
      const to = randomUUID()
      if (cell > 0) sandbox.forkSession?.(id, cell - 1, to)
      return sessionAt(sandbox, to, cell)
    },
    close: () => sandbox.endSession?.(id),
  }
}
