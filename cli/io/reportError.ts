/**
 * Prints an error on stderr as every command does: message, hint, code; the stack only where nothing else names the
 * cause.
 *
 * in   what was thrown        out  the command's exit code, as cli/main.ts lists them
 * Invariant: no known secret is printed, and no control character of the error's texts reaches the terminal.
 */
import { asError, TroupeError } from '../../runtime/errors'
import { redactSecrets } from '../../runtime/secrets/knownSecrets'
import { SandboxError } from '../../sandbox/errors'
import { escapeForTerminal } from './terminal'

export function reportError(thrown: unknown): number {
  const error = asError(thrown)
  process.stderr.write(`troupe: ${escapeForTerminal(redactSecrets(error.message))}\n`)
  // A SandboxError has the same fields; the sandbox does not know TroupeError.
  if (error instanceof TroupeError || error instanceof SandboxError) {
    if (error.hint !== undefined) process.stderr.write(`  hint: ${escapeForTerminal(redactSecrets(error.hint))}\n`)
    process.stderr.write(`  code: ${error.code}\n`)
    return ['config', 'cli', 'replay'].includes(error.boundary) ? 2 : 1
  }
  // The message of a failed file operation names the file, so the stack is not printed.
  const { syscall, path, code } = error as NodeJS.ErrnoException
  if (syscall !== undefined && path !== undefined) {
    const cure = ['EACCES', 'EPERM', 'EROFS'].includes(code ?? '')
      ? 'check the permissions of the path, or name another path'
      : undefined
    process.stderr.write(`${cure === undefined ? '' : `  hint: ${cure}\n`}  code: ${code}\n`)
  } else process.stderr.write(`${escapeForTerminal(redactSecrets(error.stack ?? ''))}\n`)
  return 1
}
