/**
 * Runs one command in a container: starts it with `exec`, reads its two streams, and ends it at its deadline.
 *
 * in   a container, a command        out  an ExecResult
 * Invariant: a shell wrapper around the command writes the first line of standard output: its process id inside the
 * container, or why it started nothing. The command never writes that line. A deadline or an abort kills the processes
 * of the command's session and their descendants, in at most 50 scans of /proc; `reason` reports a command that still
 * runs 5 s after its deadline. Docker reports the end by a signal as exit code 128 + signal, so 129 to 159 are read as
 * signals 1 to 31.
 */
import type { Socket } from 'node:net'
import type { ExecRequest, ExecResult } from '../drivers/driver'
import { type Engine, EngineError } from './engine'

/**
 * Shell script whose arguments are the directory and the command's words. It reports a missing directory or program
 * itself, since the engine's own message differs between versions.
 */
const wrapper = `cd -- "$1" 2>/dev/null || { echo "r $1: No such file or directory"; exit 125; }
shift
command -v -- "$1" >/dev/null || { echo "r $1: No such file or directory"; exit 125; }
echo "p $$"
exec "$@"`

/**
 * Shell script that kills the processes of session $1 and their descendants. It reads /proc again until it finds none,
 * at most 50 times. It uses only shell builtins, since small images have no `ps` or `pkill`.
 */
const killer = `found="$1"
tries=0
while [ -n "$found" ] && [ $tries -lt 50 ]; do
  tries=$((tries+1)); next=
  for d in /proc/[0-9]*; do
    pid="\${d#/proc/}"; IFS= read -r line 2>/dev/null <"$d/stat" || continue
    set -- "$1" \${line##*) }
    case "$2" in Z|X) continue;; esac
    case " $seen $1 " in *" $3 "*|*" $pid "*) mine=1;; *) mine=;; esac
    if [ -n "$mine" ] || [ "$5" = "$1" ]; then kill -9 "$pid" 2>/dev/null; seen="$seen $pid"; next=1; fi
  done
  found="$next"
done`

export interface CommandOptions extends ExecRequest {
  readonly cwd: string
  readonly maxOutputBytes: number
}

/** Interval in ms at which the Docker engine is asked if the command has ended, as long as the streams are open. */
const lookMs = 200
/**
 * Upper bound in ms on each of three waits after a deadline or an abort: for the wrapper's first line, which names the
 * process to kill; for the kill; and, from the deadline on, for the command's end.
 */
const endMs = 5000
const stillRuns = `the command still runs: it had not ended ${endMs / 1000} s after its deadline`

export async function runCommand(
  engine: Engine,
  container: string,
  request: CommandOptions,
  signal?: AbortSignal,
): Promise<ExecResult> {
  const { command, user, cwd, env = {}, stdin, timeoutMs, maxOutputBytes } = request
  const began = performance.now()
  const wall = () => performance.now() - began
  const words = typeof command === 'string' ? ['/bin/sh', '-c', command] : command
  const input = Buffer.from(stdin ?? '')
  let id: string
  let socket: Socket
  try {
    const created = await engine.call<{ Id: string }>('POST', `/containers/${container}/exec`, {
      json: {
        ...{ AttachStdin: input.length > 0, AttachStdout: true, AttachStderr: true, Tty: false },
        Cmd: ['/bin/sh', '-c', wrapper, 'sh', cwd, ...words],
        Env: Object.entries(env).map(([name, value]) => `${name}=${value}`),
        ...(user === undefined ? {} : { User: String(user) }),
      },
    })
    id = created.Id
    socket = await engine.hijack(`/exec/${id}/start`, { json: { Detach: false, Tty: false } })
  } catch (thrown) {
    if (!(thrown instanceof EngineError)) throw thrown
    // 404: no such container; 409: it does not run. Anything else is about the command.
    const isGone = thrown.status === 404 || thrown.status === 409
    return ending(isGone ? 'lost' : 'rejected', wall(), { reason: thrown.message })
  }
  const output = readFrames(socket, maxOutputBytes)
  socket.on('error', () => {}) // an error is ignored: the connection's end reports it
  if (input.length > 0) socket.end(input)
  let isLate = false
  const kill = async () => {
    const pid = await Promise.race([output.started, after(endMs)])
    if (typeof pid === 'number') await killSession(engine, container, pid).catch(() => {})
  }
  const stop = () => {
    isLate = true
    void kill()
  }
  const timer = setTimeout(stop, timeoutMs)
  signal?.addEventListener('abort', stop, { once: true })
  try {
    const end = await commandEnd(engine, id, output, () => isLate)
    signal?.throwIfAborted()
    const streams = output.taken()
    if (streams.reason !== undefined) return ending('rejected', wall(), { reason: streams.reason })
    if (end === 'outlived kill') return { ...ending('timeout', wall(), { reason: stillRuns }), ...streams.bytes }
    if (isLate) return { ...ending('timeout', wall()), ...streams.bytes, signal: 9 }
    if (end === 'container died') return { ...ending('lost', wall()), ...streams.bytes }
    const bySignal = end > 128 && end < 160
    return {
      ...ending(end === 0 ? 'ok' : 'error', wall()),
      ...streams.bytes,
      ...{ exitCode: bySignal ? null : end, signal: bySignal ? end - 128 : null },
    }
  } finally {
    clearTimeout(timer)
    signal?.removeEventListener('abort', stop)
    socket.destroy()
  }
}

/** Waits for the command's end. Resolves with its exit code, or with why there is none. */
async function commandEnd(
  engine: Engine,
  id: string,
  output: Frames,
  isLate: () => boolean,
): Promise<number | 'container died' | 'outlived kill'> {
  let lateSince: number | undefined
  for (;;) {
    const isOver = (await Promise.race([output.ended.then(() => 'over'), after(lookMs)])) === 'over'
    const seen = output.total()
    try {
      const { Running, ExitCode } = await engine.call<{ Running: boolean; ExitCode: number | null }>(
        'GET',
        `/exec/${id}/json`,
      )
      if (!Running && ExitCode !== null) {
        // Processes that the command left behind may hold the streams open. Output that arrived while the engine
        // answered may still be the command's, so the loop goes on until none did.
        if (isOver || output.total() === seen) return ExitCode
        continue
      }
      if (isOver) await after(5) // the engine notes the exit just after the streams' end
    } catch (thrown) {
      if (thrown instanceof EngineError) return 'container died'
      throw thrown
    }
    if (isLate()) {
      lateSince ??= performance.now()
      if (performance.now() - lateSince > endMs) return 'outlived kill'
    }
  }
}

async function killSession(engine: Engine, container: string, session: number): Promise<void> {
  const { Id } = await engine.call<{ Id: string }>('POST', `/containers/${container}/exec`, {
    json: { AttachStdout: true, User: '0', Cmd: ['/bin/sh', '-c', killer, 'sh', String(session)] },
  })
  const socket = await engine.hijack(`/exec/${Id}/start`, { json: { Detach: false, Tty: false } })
  socket.resume()
  await Promise.race([new Promise(resolve => socket.once('close', resolve).once('end', resolve)), after(endMs)])
  socket.destroy()
}

interface Frames {
  /** Process id of the command inside the container. */
  readonly started: Promise<number>
  readonly ended: Promise<void>
  total(): number
  taken(): {
    readonly reason: string | undefined
    readonly bytes: Pick<ExecResult, 'stdout' | 'stderr' | 'stdoutBytes' | 'stderrBytes'>
  }
}

/**
 * Reads Docker's frames: 1 byte that names the stream, 3 unused bytes, 4 bytes of length (big-endian), the data.
 */
function readFrames(socket: Socket, limit: number): Frames {
  const kept: Record<1 | 2, Buffer[]> = { 1: [], 2: [] }
  const count = { 1: 0, 2: 0 }
  let first: Buffer | undefined = Buffer.alloc(0)
  let reason: string | undefined
  let rest = Buffer.alloc(0)
  let begun: (pid: number) => void
  const started = new Promise<number>(resolve => {
    begun = resolve
  })
  const add = (stream: 1 | 2, bytes: Buffer) => {
    const room = limit - count[stream]
    if (room > 0) kept[stream].push(bytes.subarray(0, room))
    count[stream] += bytes.length
  }
  const take = (stream: 1 | 2, bytes: Buffer) => {
    if (stream !== 1 || first === undefined) return add(stream, bytes)
    first = Buffer.concat([first, bytes])
    const end = first.indexOf(10)
    if (end < 0) return
    const line = first.subarray(0, end).toString()
    const after = first.subarray(end + 1)
    first = undefined
    if (line.startsWith('p ')) begun(Number(line.slice(2)))
    else reason = line.replace(/^r /, '') // why nothing was started: the wrapper's line (`r …`) or the engine's own
    if (after.length > 0) add(1, after)
  }
  socket.on('data', part => {
    rest = rest.length === 0 ? part : Buffer.concat([rest, part])
    while (rest.length >= 8) {
      const size = rest.readUInt32BE(4)
      if (rest.length < 8 + size) return
      take(rest[0] === 2 ? 2 : 1, rest.subarray(8, 8 + size))
      rest = rest.subarray(8 + size)
    }
  })
  const ended = new Promise<void>(resolve => {
    socket.once('end', resolve).once('close', () => resolve())
  })
  return {
    ...{ started, ended },
    total: () => count[1] + count[2],
    taken: () => ({
      // Without a first line from it, the wrapper never ran: the engine says why on one of the streams.
      reason: reason ?? (first === undefined ? undefined : `${first}${Buffer.concat(kept[2])}`.trim() || undefined),
      bytes: {
        ...{ stdout: Buffer.concat(kept[1]), stderr: Buffer.concat(kept[2]) },
        ...{ stdoutBytes: count[1], stderrBytes: count[2] },
      },
    }),
  }
}

const empty = Buffer.alloc(0)
const ending = (status: ExecResult['status'], wallMs: number, more: { readonly reason?: string } = {}): ExecResult => ({
  ...{ status, exitCode: null, signal: null, stdout: empty, stderr: empty, stdoutBytes: 0, stderrBytes: 0, wallMs },
  ...more,
})

const after = (ms: number) => new Promise<undefined>(resolve => setTimeout(resolve, ms, undefined).unref())
