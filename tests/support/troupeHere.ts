/**
 * Runs the `troupe` command in the test's process, without the second that a process of its own takes to start. For
 * tests about what a command reads and writes; those about its process (signals, pipes, the start) use cli.ts, and so do
 * pictures and Parquet, since Jest cannot load their ES modules.
 *
 * in   the words of a command line, variables     out  its exit code, what it wrote to stdout and stderr
 * Invariant: one call runs at a time, since each has the streams, the variables, the directory and the exit code for
 * itself. Neither stream is a terminal, as in a process whose output is read.
 */
import { main } from '../../cli/main'

export interface Said {
  readonly code: number
  readonly stdout: string
  readonly stderr: string
}

let latest: Promise<unknown> = Promise.resolve()

/** @param cwd working directory; default: that of the test's process */
export function troupeHere(args: readonly string[], env: NodeJS.ProcessEnv = {}, cwd?: string): Promise<Said> {
  const said = latest.then(() => call(args, env, cwd ?? process.cwd()))
  latest = said.catch(() => {})
  return said
}

async function call(args: readonly string[], env: NodeJS.ProcessEnv, cwd: string): Promise<Said> {
  const home = process.cwd()
  const given = { TROUPE_LOG: 'warn', ...env }
  const before = Object.keys(given).map(name => [name, process.env[name]] as const)
  const exitCode = process.exitCode
  const [stdout, stderr] = [captured(process.stdout), captured(process.stderr)]
  Object.assign(process.env, given)
  process.chdir(cwd)
  try {
    const code = await main(args)
    return { code, stdout: stdout.text(), stderr: stderr.text() }
  } finally {
    process.chdir(home)
    stdout.release()
    stderr.release()
    process.exitCode = exitCode
    for (const [name, value] of before) {
      if (value === undefined) delete process.env[name]
      else process.env[name] = value
    }
  }
}

/** Keeps what is written to a stream, instead of writing it. */
function captured(stream: NodeJS.WriteStream) {
  const pieces: Buffer[] = []
  const { isTTY } = stream
  stream.isTTY = false
  const spy = jest.spyOn(stream, 'write').mockImplementation(((piece: string | Uint8Array, ...rest: unknown[]) => {
    pieces.push(Buffer.from(piece as Uint8Array))
    for (const written of rest) if (typeof written === 'function') written()
    return true
  }) as typeof stream.write)
  return {
    text: () => Buffer.concat(pieces).toString('utf8'),
    release() {
      spy.mockRestore()
      stream.isTTY = isTTY
    },
  }
}
