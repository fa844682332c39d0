/**
 * Venvs with pip and nothing else. To make one takes seconds, so one is made and the others are copies of it.
 *
 * in   the checkout's Python     out  a venv wherever a test wants one
 */
import { spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pythonPath } from '../../runtime/python'

export interface EmptyVenvs {
  /** Makes a venv at the path, whose parent folder must exist. */
  put(path: string): void
  remove(): void
}

export function emptyVenvs(): EmptyVenvs {
  const folder = mkdtempSync(join(tmpdir(), 'troupe-venv-'))
  const template = join(folder, 'venv')
  run(pythonPath(), ['-m', 'venv', template])
  return {
    // Times are kept, or Python would compile every module again.
    put: path => run('cp', ['-a', template, path]),
    remove: () => rmSync(folder, { recursive: true, force: true }),
  }
}

function run(command: string, args: readonly string[]): void {
  const { status, stderr } = spawnSync(command, args, { encoding: 'utf8' })
  if (status !== 0) throw new Error(`${command} ${args.join(' ')} ended with ${status}: ${stderr}`)
}
