/**
 * Worker: what a piscina thread does with one call: start its launcher, feed it, capture its output, say how it ended.
 *
 * in   a LaneTask      out  a LaneOutcome; the pids of the call, in the shared table, as soon as they are known
 * Invariant: when it returns, the launcher has exited and everything that the call started has been killed. The outcome
 * comes from the launcher's report, which the code cannot write to, and from timers; never from what the code printed.
 *
 * In a checkout this file is transpiled alone (see workerFile.ts): at run time it may import node: modules, ./processes and ../waitStatus only.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { rmSync } from 'node:fs'
import { join } from 'node:path'
import type { Readable, Writable } from 'node:stream'
import { workerData } from 'node:worker_threads'
import type { Call } from '../limits'
import type { RunEnding } from '../sandbox'
import { endingOf } from '../waitStatus'
import { MARK, signalTo, sweep } from './processes'

/** The same for all calls of a pool; given to the threads once. */
export interface LaneSetup {
  readonly python: string
  /** The compiled launcher. */
  readonly launcher: string
  /** The pool's private directory; each call gets one of its own in it. */
  readonly base: string
  /** Directories for sys.path after the standard library, `:` between them. */
  readonly packages: string
  readonly fileBytes: number
  readonly openFiles: number
  /** Int32 cells, three a slot: see SLOT. Written here, read by the pool when it has to kill. */
  readonly table: SharedArrayBuffer
}

/** Cells of a slot. `stop` is set by the pool; the pids by the worker. */
export const SLOT = { cells: 3, stop: 0, launcher: 1, child: 2 } as const

export interface LaneTask {
  readonly slot: number
  /** Unique in the pool's life; names the directory and marks the processes. */
  readonly mark: string
  readonly call: Call
  /** RLIMIT_NPROC, a limit of the whole user; -1 for none. */
  readonly processLimit: number
}

interface Ended extends RunEnding {
  readonly kind: 'ended'
}

/** stopped: the pool asked for it. failed: the code was never begun. */
export type LaneOutcome = Ended | { readonly kind: 'stopped' } | { readonly kind: 'failed'; readonly message: string }

/** An interpreter that has not begun the code by then is given up. */
const START_MS = 20_000
/** The launcher keeps the deadline; it is killed when its report is this late, as it is if the code stopped it. */
const LATE_MS = 2500
/** Removing what a call wrote may take this long. */
const CLEAN_MS = 10_000
/** Output that is still open after the launcher has exited is held by a process that escaped; it is not waited for. */
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
  // The pool sets `stop` before it reads the pid, and here it is the other way round: one of the two sees the other.
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
      if (!report.done && (child > 0 || late)) sweep(task.mark, pid, child)
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
      if (Atomics.load(cells, SLOT.stop)) resolve({ kind: 'stopped' })
      else if (report.done) resolve({ kind: 'ended', ...streams, ...report.done })
      else if (report.failed || Atomics.load(cells, SLOT.child) === 0) {
        const why = report.failed ?? (late ? `not begun within ${START_MS} ms` : `exit ${code ?? signal}`)
        resolve({ kind: 'failed', message: `the interpreter could not start the code: ${why}` })
      } else {
        // Somebody killed the launcher: the code itself, the kernel short of memory, or our watchdog.
        const wallMs = performance.now() - started
        const rest = { exitCode: null, signal: signal ?? 'SIGKILL', wallMs, cpuMs: 0, maxRssBytes: 0 }
        resolve({ kind: 'ended', status: late ? 'timeout' : 'killed', ...rest, ...streams })
      }
    })
  })
}

/** A launcher in a session of its own, with nothing of this process's environment. */
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
        // A library that starts a thread a core would meet the limits, and slow its neighbours.
        OMP_NUM_THREADS: '1',
        OPENBLAS_NUM_THREADS: '1',
        MKL_NUM_THREADS: '1',
      },
    },
  )
  // Code may end without having read what it was given: EPIPE is no fault.
  const control = launcher.stdio[3] as Writable | undefined
  for (const stream of [launcher.stdin, control]) stream?.on('error', () => undefined)
  control?.write(call.code)
  launcher.stdin?.end(call.stdin)
  return launcher
}

/** Keeps the head of a stream and counts all of it; it always reads on, so the writer never waits for us. */
function capture(stream: Readable, most: number) {
  const kept: Buffer[] = []
  let keptBytes = 0
  let total = 0
  stream.on('error', () => undefined)
  stream.on('data', (chunk: Buffer) => {
    total += chunk.length
    const room = most - keptBytes
    if (room <= 0) return
    const head = Buffer.from(chunk.subarray(0, room)) // a copy: the chunk may be a corner of a large buffer
    kept.push(head)
    keptBytes += head.length
  })
  return { bytes: () => new Uint8Array(Buffer.concat(kept)), total: () => total }
}

type Report = Pick<Ended, 'status' | 'exitCode' | 'signal' | 'wallMs' | 'cpuMs' | 'maxRssBytes'>

/** The launcher's lines; see launcher.py for their form. */
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
