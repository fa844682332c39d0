/**
 * The tool `str_replace_editor`: views and edits text files of an environment.
 *
 * in   the arguments of a call, an environment        out  the outcome of the call
 * Invariant: files are read and written by programs in the environment, as the agent's user: the tool sees and changes
 * no file that the user could not. A file keeps its mode and owner. One of more than 1 MiB is refused.
 */
import { type ToolOutcome, toolOutcome } from '../../kernels'
import type { Environment, ExecResult } from '../drivers/driver'
import { execAs, outcomeOf, type ToolUse } from './bash'
import { applyEdit } from './edit'

/** Upper bound on the size of a file that is shown or edited, in bytes. */
const mostBytes = 1024 * 1024

const isDirectory = 20
const isMissing = 21
const isTooLong = 22
const read = `if [ -d "$1" ]; then exit ${isDirectory}; elif [ ! -e "$1" ]; then exit ${isMissing}; elif [ ! -f "$1" ]; then exit ${isTooLong}; else cat < "$1"; fi`
const list = 'cd "$1" && find . -maxdepth 2 -not -path "*/.*" | sort | head -n 1000'
const write = 'mkdir -p -- "$(dirname -- "$1")" && cat > "$1"'

export async function runEditor(
  environment: Environment,
  args: Readonly<Record<string, unknown>>,
  use: ToolUse,
): Promise<ToolOutcome> {
  const { path, command } = args
  if (typeof path !== 'string' || !path.startsWith('/') || path.includes('\0'))
    return refused('path must be an absolute path, such as /app/main.py')
  const found = await execAs(environment, sh(read, path), use, { maxOutputBytes: mostBytes })
  if (found.exitCode === isDirectory) return directory(environment, path, command, use)
  if (found.exitCode === isTooLong) return refused(`${path} is not a regular file`)
  if (found.status !== 'ok' && found.exitCode !== isMissing) return outcomeOf(found, use.timeoutMs)
  if (found.stdoutBytes > mostBytes) return refused(`${path} has more than ${mostBytes} bytes; use bash for such files`)
  const text = found.exitCode === isMissing ? undefined : textOf(found)
  if (text === null) return refused(`${path} is not UTF-8 text`)
  const edited = applyEdit(args, text)
  if (edited.kind === 'fault') return { ...refused(edited.reason), wallMs: found.wallMs }
  if (edited.kind === 'shown') return shown(edited.shown, found.wallMs)
  const written = await execAs(environment, sh(write, path), use, { stdin: edited.text })
  if (written.status !== 'ok') return outcomeOf(written, use.timeoutMs)
  return shown(edited.shown, found.wallMs + written.wallMs)
}

async function directory(environment: Environment, path: string, command: unknown, use: ToolUse): Promise<ToolOutcome> {
  if (command !== 'view') return refused(`${path} is a directory`)
  return outcomeOf(await execAs(environment, sh(list, path), use), use.timeoutMs)
}

const sh = (script: string, path: string) => ['sh', '-c', script, 'sh', path]

/** Returns the file's text; null if it is not UTF-8. */
function textOf({ stdout }: ExecResult): string | null {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(stdout)
  } catch {
    return null
  }
}

const shown = (text: string, wallMs: number) =>
  toolOutcome({ status: 'ok', exitCode: 0, stdout: text === '' ? '' : `${text}\n`, wallMs })

const refused = (reason: string) => toolOutcome({ status: 'rejected', reason })
