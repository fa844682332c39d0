/** Runs the `troupe` command in this process, and keeps what it writes: for sweeps that run hundreds of commands. */
import { main } from '../../cli/main'

export interface CommandResult {
  readonly code: number
  readonly stdout: string
  readonly stderr: string
}

/** Commands run one after the other: what is written meanwhile is taken for the command's. */
export async function commandHere(args: readonly string[]): Promise<CommandResult> {
  const written = { stdout: '', stderr: '' }
  const { stdout, stderr, exitCode } = process
  const before = { stdout: stdout.write, stderr: stderr.write }
  const into = (name: 'stdout' | 'stderr') => (text: unknown) => {
    written[name] += String(text)
    return true
  }
  stdout.write = into('stdout')
  stderr.write = into('stderr')
  try {
    return { code: await main(args), ...written }
  } finally {
    stdout.write = before.stdout
    stderr.write = before.stderr
    process.exitCode = exitCode
  }
}
