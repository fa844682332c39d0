/**
 * ProcessPool: the sandbox of level `none`. For each call, one of Piscina's worker threads starts a launcher: a fresh
 * interpreter that runs the code under rlimits.
 *
 * in   requests, at most lanes (calls that run) + queueLimit (calls that wait) at once
 * out  results, in the order in which calls end
 * Invariant: a call is answered once, after every process that it started is dead (exception below); also when it is
 * aborted, when its worker thread dies, and when the pool closes. Piscina's own abort is not used, since it would end
 * the thread with all its calls: the pool signals the call's launcher, whose pid is in a table that pool and threads
 * share.
 *
 * Not defended at this level: the code runs as this user. It can read the user's files, use the network, fill the disk
 * (64 MiB for each file), signal the user's processes, and, unless this user is root, read their environment. A process
 * that clears its environment, leaves its session and kills its launcher outlives its call. `maxProcesses` relies on
 * RLIMIT_NPROC, which the kernel does not enforce for root.
 */
import { rmSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { Piscina } from 'piscina'
import { SandboxError } from '../errors'
import type { Interpreter } from '../interpreter'
import { type Call, callOf, MAX_FILE_BYTES, MAX_OPEN_FILES } from '../limits'
import { DEFAULT_QUEUE_LIMIT, type SandboxOptions } from '../options'
import { aborted, closed, queueFull, rejected } from '../refusals'
import type { RunRequest, RunResult, Sandbox, SandboxLevel } from '../sandbox'
import { workerFile } from '../workerFile'
import { cellProgram } from './cellProgram'
import { killCall, signalTo } from './killProcesses'
import { countUserProcesses } from './userProcesses'
import { type LaneOutcome, type LaneSetup, type LaneTask, SLOT } from './worker'

const LEVEL: SandboxLevel = 'none'
const DEFAULT_MAX_PROCESSES = 64
/**
 * Upper bound in ms on the wait until a launcher whose worker thread died has ended by itself; then the pool kills the
 * launcher.
 */
const LOST_MS = 3000

/** Opens a sandbox of level `none`. @param base private directory of the sandbox; the pool removes it when it closes */
export function openProcessPool(options: SandboxOptions, interpreter: Interpreter, base: string): Sandbox {
  const { python, packages, launcher } = interpreter
  const lanes = options.lanes ?? 2 * availableParallelism()
  const table = new SharedArrayBuffer(lanes * SLOT.cells * 4)
  const limits = { fileBytes: MAX_FILE_BYTES, openFiles: MAX_OPEN_FILES }
  const setup = { python, packages, launcher, base, table, ...limits }
  return new ProcessPool(
    lanes,
    options.queueLimit ?? DEFAULT_QUEUE_LIMIT,
    setup,
    workerFile(base, 'freshProcess/worker'),
  )
}

/** A call that waits for a worker slot (lane). */
interface Waiting {
  readonly begin: (slot: number) => void
  readonly refuse: (error: SandboxError) => void
}

class ProcessPool implements Sandbox {
  readonly level = LEVEL
  readonly noSessions = "sessions need level 'full'; at level 'none' each call starts an interpreter"
  readonly #piscina: Piscina<LaneTask, LaneOutcome>
  readonly #cells: Int32Array
  readonly #free: number[]
  /** Waiting calls, first come, first served. A Set keeps the order and deletes an aborted call at once. */
  readonly #waiting = new Set<Waiting>()
  readonly #running = new Set<Promise<unknown>>()
  readonly #removeBase = () => rmSync(this.setup.base, { recursive: true, force: true, maxRetries: 3 })
  #calls = 0
  #closing: Promise<void> | undefined

  constructor(
    readonly lanes: number,
    private readonly queueLimit: number,
    private readonly setup: LaneSetup,
    filename: string,
  ) {
    this.#cells = new Int32Array(setup.table)
    this.#free = Array.from({ length: lanes }, (_, slot) => slot)
    const threads = Math.min(lanes, availableParallelism())
    this.#piscina = new Piscina({
      filename,
      workerData: setup,
      minThreads: threads,
      maxThreads: threads,
      concurrentTasksPerWorker: Math.ceil(lanes / threads),
      // Piscina's queue is never used: calls wait in #waiting until a slot is free, so that an abort can remove them.
      maxQueue: lanes,
      // With atomics, an idle thread would block its event loop, and with it the output of its processes.
      atomics: 'disabled',
      execArgv: [], // The threads load plain JavaScript, so they need no option of this process.
      env: {},
    })
    // Piscina replaces an idle thread that dies. When a busy thread dies, the promises of its calls reject. So this
    // event needs no handling.
    this.#piscina.on('error', () => undefined)
    process.once('exit', this.#removeBase)
  }

  async run(request: RunRequest, signal?: AbortSignal): Promise<RunResult> {
    if (request.session) return rejected(request.id, this.noSessions)
    const asked = callOf(request, DEFAULT_MAX_PROCESSES)
    if (typeof asked === 'string') return rejected(request.id, asked)
    const call = asked.mode === 'cell' ? { ...asked, code: Buffer.from(cellProgram(request.code), 'utf8') } : asked
    const slot = await this.#lane(signal)
    const running = this.#inSlot(slot, call)
    this.#running.add(running)
    const stop = () => this.#stop(slot)
    signal?.addEventListener('abort', stop, { once: true })
    try {
      const outcome = await running
      if (outcome.kind === 'ended') return { id: request.id, ...withoutKind(outcome) }
      if (outcome.kind === 'stopped') throw signal?.aborted ? aborted(signal) : closed()
      throw new SandboxError('sandbox.start_failed', { retriable: true, message: outcome.message })
    } finally {
      signal?.removeEventListener('abort', stop)
      this.#running.delete(running)
      this.#release(slot)
    }
  }

  close(): Promise<void> {
    this.#closing ??= this.#close()
    return this.#closing
  }

  async #close(): Promise<void> {
    for (const { refuse } of this.#waiting) refuse(closed())
    for (let slot = 0; slot < this.lanes; slot++) this.#stop(slot)
    await Promise.allSettled(this.#running)
    await this.#piscina.destroy()
    process.off('exit', this.#removeBase)
    this.#removeBase()
  }

  /**
   * Resolves with a free slot, at once or after waiting. Rejects if the queue is full, the call aborted or the sandbox
   * closed.
   */
  #lane(signal: AbortSignal | undefined): Promise<number> {
    if (this.#closing) return Promise.reject(closed())
    if (signal?.aborted) return Promise.reject(aborted(signal))
    const slot = this.#free.pop()
    if (slot !== undefined) {
      this.#cells.fill(0, slot * SLOT.cells, (slot + 1) * SLOT.cells)
      return Promise.resolve(slot)
    }
    if (this.#waiting.size >= this.queueLimit) return Promise.reject(queueFull(this.lanes, this.queueLimit))
    return new Promise((resolve, reject) => {
      const settle = <T>(answer: (value: T) => void, value: T) => {
        this.#waiting.delete(waiting)
        signal?.removeEventListener('abort', onAbort)
        answer(value)
      }
      const waiting: Waiting = { begin: slot => settle(resolve, slot), refuse: error => settle(reject, error) }
      const onAbort = () => waiting.refuse(aborted(signal!))
      signal?.addEventListener('abort', onAbort, { once: true })
      this.#waiting.add(waiting)
    })
  }

  #release(slot: number): void {
    this.#cells.fill(0, slot * SLOT.cells, (slot + 1) * SLOT.cells)
    const [next] = this.#waiting
    if (next) next.begin(slot)
    else this.#free.push(slot)
  }

  /**
   * Runs one call. If its worker thread dies, the call runs once more under a new mark, since it has not been answered
   * yet.
   */
  async #inSlot(slot: number, call: Call): Promise<LaneOutcome> {
    const cells = this.#cells.subarray(slot * SLOT.cells, (slot + 1) * SLOT.cells)
    for (let attempt = 0; ; attempt++) {
      const mark = `${process.pid}-${this.#calls++}`
      try {
        const processLimit = await countUserProcesses().then(now =>
          now < 0 ? -1 : now + 2 * this.lanes + call.maxProcesses,
        )
        return await this.#piscina.run({ slot, mark, call, processLimit })
      } catch (cause) {
        await this.#endLost(mark, cells)
        if (Atomics.load(cells, SLOT.stop)) return { kind: 'stopped' }
        if (attempt > 0) {
          const message = `the worker thread of the call failed twice: ${(cause as Error).message}`
          throw new SandboxError('sandbox.worker_lost', { retriable: true, message, cause })
        }
        cells.fill(0)
      }
    }
  }

  #stop(slot: number): void {
    const at = slot * SLOT.cells
    Atomics.store(this.#cells, at + SLOT.stop, 1)
    const pid = Atomics.load(this.#cells, at + SLOT.launcher)
    if (pid > 0) signalTo(pid, 'SIGTERM')
  }

  /**
   * Waits, at most LOST_MS, until the launcher of a dead thread ends, then kills what is left of its call. The launcher
   * ends its call and exits on SIGHUP, which the kernel has sent, and on SIGTERM, which is sent here.
   */
  async #endLost(mark: string, cells: Int32Array): Promise<void> {
    const launcher = Atomics.load(cells, SLOT.launcher)
    if (launcher === 0) return
    signalTo(launcher, 'SIGTERM')
    const until = performance.now() + LOST_MS
    while (signalTo(launcher, 0) && performance.now() < until) await sleep(5)
    killCall(mark, launcher, Atomics.load(cells, SLOT.child))
    rmSync(join(this.setup.base, mark), { recursive: true, force: true, maxRetries: 2 })
  }
}

function withoutKind({ kind: _, ...rest }: Extract<LaneOutcome, { kind: 'ended' }>): Omit<RunResult, 'id'> {
  return rest
}
