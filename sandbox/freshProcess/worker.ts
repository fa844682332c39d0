/**
 * Worker: runs one call in a piscina thread: starts its launcher, writes its input, captures its output, reports its
 * end.
 *
 * in   a LaneTask      out  a LaneOutcome; the pids of the call, in the shared table, as soon as they are known
 * Invariant: when the promise of `run` resolves, the launcher has exited and the processes of the call have been
 * killed, except those that escaped (see pool.ts). The outcome comes from the launcher's report, which the code cannot
 * write to, from the launcher's exit, the pool's `stop` and timers; never from the code's output.
 *
 * In a checkout this file is transpiled alone (see workerFile.ts): at run time it may import only node: modules,
 * ./killProcesses and ../waitStatus.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { rmSync } from 'node:fs'
import { join } from 'node:path'
import type { Readable, Writable } from 'node:stream'
import { workerData } from 'node:worker_threads'
import type { Call } from '../limits'
import type { RunEnding } from '../sandbox'
import { endingOf } from '../waitStatus'
import { killCall, MARK, signalTo } from './killProcesses'

/** Settings common to all calls of a pool; each worker thread receives them once. */
export interface LaneSetup {
  readonly python: string
  /** Path of the compiled launcher. */
  readonly launcher: string
  /** Private directory of the pool; each call gets a directory in it. */
  readonly base: string
  /** Directories that sys.path has after the standard library, separated by `:`. */
  readonly packages: string
  readonly fileBytes: number
  readonly openFiles: number
  /**
   * Int32 cells, three for each slot (see SLOT). The pool writes `stop`; the worker writes pids, which the pool reads
   * to kill the processes.
   */
  readonly table: SharedArrayBuffer
}

/** Indices of a slot's cells. The pool sets `stop`, the worker sets the pids of the launcher and of the code. */
export const SLOT = { cells: 3, stop: 0, launcher: 1, child: 2 } as const

export interface LaneTask {
  readonly slot: number
  /** Id of one attempt at a call, unique in the pool's life. It names the call's directory and marks its processes. */
  readonly mark: string
  readonly call: Call
  /** Value of RLIMIT_NPROC, which counts the processes and threads of the whole user; -1 for no limit. */
  readonly processLimit: number
}

interface Ended extends RunEnding {
  readonly kind: 'ended'
}

/**
 * Outcome of a call. ended: the code ran and ended. stopped: the pool stopped the call. failed: the code did not begin.
 */
export type LaneOutcome = Ended | { readonly kind: 'stopped' } | { readonly kind: 'failed'; readonly message: string }

/**
 * Upper bound in ms on the time from the start of the launcher until it begins the code; then the launcher is killed.
 */
const START_MS = 20_000
/**
 * Milliseconds after the call's deadline at which a launcher that has not reported is killed. The launcher enforces the
 * deadline, but the code may have stopped the launcher.
 */
const LATE_MS = 2500
/** Upper bound in ms on the time from the launcher's report to its exit: meanwhile it removes the files of the call. */
const CLEAN_MS = 10_000
/** Milliseconds after the launcher's exit at which open streams are closed: a process that escaped may hold them. */
const DRAIN_MS = 300

export default function run(task: LaneTask): Promise<LaneOutcome> {
  const setup = workerData as LaneSetup
  const cells = new Int32Array(setup.table, task.slot * SLOT.cells * 4, SLOT.cells)
  if (Atomics.load(cells, SLOT.stop)) return Promise.resolve({ kind: 'stopped' })
  const started = performance.now()
  const directory = join(setup.base, task.mark)
  const launcher = launch(setup, task, directory)
  if (launcher.pid === undefined) {
    return new Promise(resolve => launcher.once('error', error => resolve({ kind: 'failed', message: error.message })))
  }
  const pid = launcher.pid
  Atomics.store(cells, SLOT.launcher, pid)
  // The pool sets `stop`, then reads the pid; the worker sets the pid, then reads `stop`. So at least one of them sees
  // the other's value.
  if (Atomics.load(cells, SLOT.stop)) signalTo(pid, 'SIGTERM')

  return new Promise(resolve => {
    const stdout = capture(launcher.stdout as Readable, task.call.maxOutputBytes)
    const stderr = capture(launcher.stderr as Readable, task.call.maxOutputBytes)
    let late = false
    const giveUp = () => {
      late = true
      signalTo(-pid, 'SIGKILL')
    }
    let watchdog = setTimeout(giveUp, START_MS)
    const report = readReport(launcher.stdio[3] as Readable, line => {
      clearTimeout(watchdog)
      if (line.startsWith('begun ')) {
        Atomics.store(cells, SLOT.child, Number(line.slice(6)))
        watchdog = setTimeout(giveUp, task.call.timeoutMs + LATE_MS)
      } else watchdog = setTimeout(giveUp, CLEAN_MS)
    })
    launcher.once('exit', () => {
      clearTimeout(watchdog)
      const child = Atomics.load(cells, SLOT.child)
      if (!report.done && (child > 0 || late)) killCall(task.mark, pid, child)
      watchdog = setTimeout(() => {
        for (const stream of launcher.stdio) stream?.destroy()
      }, DRAIN_MS)
    })
    launcher.once('close', (code, signal) => {
      clearTimeout(watchdog)
      if (!report.done || late) rmSync(directory, { recursive: true, force: true, maxRetries: 2 })
      const streams = {
        stdout: stdout.bytes(),
        stderr: stderr.bytes(),
        stdoutBytes: stdout.total(),
        stderrBytes: stderr.total(),
      }
      const hasBegun = Atomics.load(cells, SLOT.child) > 0
      const { done } = report
      if (Atomics.load(cells, SLOT.stop)) resolve({ kind: 'stopped' })
      else if (done && (hasBegun || done.status === 'timeout')) resolve({ kind: 'ended', ...streams, ...done })
      else if (report.failed || !hasBegun) {
        const end = done ?? { signal, exitCode: code }
        const how = end.signal === null ? `it ended with exit code ${end.exitCode}` : `it was ended by ${end.signal}`
        const why = report.failed ?? (late ? `it did not begin within ${START_MS} ms` : how)
        resolve({ kind: 'failed', message: `the interpreter could not start the code: ${why}` })
      } else {
        // The launcher was killed before it reported: by the code, by the kernel for lack of memory, or by the
        // watchdog.
        const wallMs = performance.now() - started
        const rest = { exitCode: null, signal: signal ?? 'SIGKILL', wallMs, cpuMs: 0, maxRssBytes: 0 }
        resolve({ kind: 'ended', status: late ? 'timeout' : 'killed', ...rest, ...streams })
      }
    })
  })
}

/** Starts a launcher in a process session of its own, without this process's environment. */
function launch(setup: LaneSetup, task: LaneTask, directory: string): ChildProcess {
  const { call } = task
  const numbers = [call.code.length, call.timeoutMs, call.memoryBytes, setup.fileBytes, setup.openFiles]
  const launcher = spawn(
    setup.python,
    ['-I', '-S', '-X', 'utf8', setup.launcher, String(process.pid), setup.base, directory].concat(
      numbers.map(String),
      String(task.processLimit),
      setup.packages,
    ),
    {
      cwd: '/',
      detached: true,
      stdio: [call.stdin.length > 0 ? 'pipe' : 'ignore', 'pipe', 'pipe', 'pipe'],
      env: {
        PATH: '/usr/local/bin:/usr/bin:/bin',
        LANG: 'C.UTF-8',
        HOME: directory,
        TMPDIR: directory,
        [MARK]: task.mark,
        // A library that starts a thread for each core would run into the limits and slow other calls.
        OMP_NUM_THREADS: '1',
        OPENBLAS_NUM_THREADS: '1',
        MKL_NUM_THREADS: '1',
      },
    },
  )
  // The code may end before it has read its input, so EPIPE is not a failure.
  const control = launcher.stdio[3] as Writable | undefined
  for (const stream of [launcher.stdin, control]) stream?.on('error', () => undefined)
  control?.write(call.code)
  launcher.stdin?.end(call.stdin)
  return launcher
}

/**
 * Captures the first `most` bytes of a stream and counts all bytes. It reads to the end, so that the writer never
 * blocks.
 */
function capture(stream: Readable, most: number) {
  const kept: Buffer[] = []
  let keptBytes = 0
  let total = 0
  stream.on('error', () => undefined)
  stream.on('data', (chunk: Buffer) => {
    total += chunk.length
    const room = most - keptBytes
    if (room <= 0) return
    // The bytes are copied, since the chunk may be part of a large buffer.
    const head = Buffer.from(chunk.subarray(0, room))
    kept.push(head)
    keptBytes += head.length
  })
  return { bytes: () => new Uint8Array(Buffer.concat(kept)), total: () => total }
}

type Report = Pick<Ended, 'status' | 'exitCode' | 'signal' | 'wallMs' | 'cpuMs' | 'maxRssBytes'>

/** Reads the launcher's report. The returned object is filled as its lines arrive; launcher.py describes the lines. */
function readReport(stream: Readable, onLine: (line: string) => void): { done?: Report; failed?: string } {
  const report: { done?: Report; failed?: string } = {}
  let text = ''
  stream.setEncoding('latin1')
  stream.on('data', (chunk: string) => {
    text += chunk
    for (let end = text.indexOf('\n'); end >= 0; end = text.indexOf('\n')) {
      const line = text.slice(0, end)
      text = text.slice(end + 1)
      onLine(line)
      if (line.startsWith('failed ')) report.failed = line.slice(7)
      if (line.startsWith('done ')) report.done = parseDone(line.slice(5).split(' ').map(Number))
    }
  })
  return report
}

function parseDone(numbers: readonly number[]): Report {
  const [waitStatus = 0, timedOut = 0, wallUs = 0, cpuUs = 0, maxRssKib = 0] = numbers
  const ending = endingOf(waitStatus, timedOut !== 0)
  return { ...ending, wallMs: wallUs / 1000, cpuMs: cpuUs / 1000, maxRssBytes: maxRssKib * 1024 }
}
