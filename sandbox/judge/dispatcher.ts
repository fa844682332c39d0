/**
 * Dispatcher: passes the submissions of many clients to one sandbox, fairly. The sandbox has at most 16 more
 * submissions than it runs at once.
 *
 * in   requests with one or many submissions; each request with its client and the longest time that it may wait
 * out  the verdicts on the submissions
 * Invariant: every submission of an admitted request gets exactly one verdict, unless its client disconnects. Clients
 * take turns, by address and then by connection, so that no client waits for another client's flood.
 */
import { CALL_BOUNDS, DEFAULT_MAX_OUTPUT_BYTES } from '../limits'
import { retryLost } from '../retryLost'
import { isOutOfMemory, type RunRequest, type RunResult, type Sandbox } from '../sandbox'
import { CallStatistics } from './callStatistics'
import { cppRequest } from './cppProgram'
import { mathRequest } from './mathProgram'
import { type Call, RequestJob } from './requestJob'
import { RoundRobin } from './roundRobin'
import type { BadSubmission, Submission } from './submission'
import { notRun, type Verdict, verdictOf } from './verdict'

export interface DispatcherLimits {
  /** Deadline of one run, ms. A C++ program has `compileMs` for its compilation in addition. */
  readonly timeoutMs: number
  readonly compileMs: number
  readonly memoryMb: number
  readonly cppMemoryMb: number
  readonly maxOutputChars: number
  /** Upper bound on the waiting submissions of all clients. */
  readonly maxQueuedCalls: number
  /** Upper bound on the waiting submissions of one address, so that no address can fill the queue. */
  readonly maxClientCalls: number
  /** true: submissions of type math are compared by math-verify. */
  readonly math: boolean
}

/** Sender of a request. Clients take turns by address, then by connection. */
export interface Client {
  readonly address: string
  readonly connection: object
}

/** Upper bound on the attempts to run a call for which the machine has no memory. */
const MEMORY_ATTEMPTS = 3
/** Milliseconds after a call's deadline within which the sandbox reports the end of the call. */
const LATE_MS = 2000
/** Upper bound on the calls that wait inside the sandbox. A larger number makes a new client wait longer. */
const AHEAD = 16
/**
 * Minimum number of bytes captured of each stream. More are captured if the expected output is longer, since stdout is
 * compared as a whole.
 */
const CAPTURED_BYTES = 16 * DEFAULT_MAX_OUTPUT_BYTES

export class Dispatcher {
  readonly statistics = new CallStatistics()
  readonly #addresses = new Map<string, { readonly turns: RoundRobin<Call>; waiting: number; open: number }>()
  readonly #connections = new WeakMap<object, RoundRobin<Call>>()
  readonly #waitingCalls = new RoundRobin<Call>()
  readonly #jobs = new Set<RequestJob>()
  readonly #numbers = new WeakMap<object, number>()
  #lastNumber = 0
  #waiting = 0
  #running = 0

  constructor(
    private readonly sandbox: Sandbox,
    private readonly limits: DispatcherLimits,
  ) {}

  /** Number of submissions that wait here, and number that were passed to the sandbox and have not ended. */
  get load(): { readonly waiting: number; readonly running: number } {
    return { waiting: this.#waiting, running: this.#running }
  }

  /**
   * Checks if `calls` more submissions of the client may wait. Returns undefined if they may, else the bound that they
   * would exceed: the client's or the whole server's.
   */
  overLimit(client: Client, calls: number): 'client' | 'server' | undefined {
    if (this.#waiting + calls > this.limits.maxQueuedCalls) return 'server'
    const waiting = this.#addresses.get(client.address)?.waiting ?? 0
    return waiting + calls > this.limits.maxClientCalls ? 'client' : undefined
  }

  /**
   * Resolves with the verdicts, in the items' order. A submission that still waits after `waitMs` is answered
   * `queue_timeout`. A submission that the sandbox has at that moment gets its whole deadline and LATE_MS more; if it
   * has no verdict by then, it is answered `queue_timeout` too.
   * @param signal aborted when the client disconnects: waiting calls are dropped, running ones are ended, and the
   * promise never resolves
   */
  judge(
    client: Client,
    items: readonly (Submission | BadSubmission)[],
    waitMs: number,
    signal: AbortSignal,
  ): Promise<readonly Verdict[]> {
    return new Promise(resolve => {
      const address = this.#address(client.address)
      address.open++
      const events = {
        onWaiting: (change: number) => {
          this.#waiting += change
          address.waiting += change
        },
        onClose: () => {
          this.#jobs.delete(job)
          if (--address.open === 0) this.#addresses.delete(client.address)
        },
        onAnswered: resolve,
      }
      const job: RequestJob = new RequestJob(this.#nameOf(client), items, events, this.limits.math)
      this.#jobs.add(job)
      job.open()
      if (signal.aborted) job.drop()
      if (job.isDone) return
      signal.addEventListener('abort', () => this.statistics.count('dropped', job.drop()), { once: true })
      job.expiry = setTimeout(() => this.#expire(job, waitMs), Math.min(waitMs, 2 ** 31 - 1))
      this.#enqueue(client, address.turns, job)
      this.#dispatch()
    })
  }

  /** Ends all waiting and running calls; each is answered `internal_error`. */
  endAll(why: string): void {
    for (const job of this.#jobs) this.statistics.count('internalErrors', job.end(why))
  }

  /**
   * Answers the waiting calls of a job (the submissions of one request) `queue_timeout`. The job's calls in the sandbox
   * get the same answer LATE_MS after the deadline that they would have if they began now.
   */
  #expire(job: RequestJob, waitMs: number): void {
    this.statistics.count('queueTimeouts', job.expire(waitMs))
    const { timeoutMs, compileMs } = this.limits
    const longest = timeoutMs + (job.items.some(item => 'type' in item && item.type === 'cpp') ? compileMs : 0)
    if (job.isDone) return
    job.expiry = setTimeout(() => this.statistics.count('queueTimeouts', job.giveUp(waitMs)), longest + LATE_MS)
  }

  /** Returns the client name of a connection in requests to the sandbox, which lets its clients take turns. */
  #nameOf({ address, connection }: Client): string {
    const number = this.#numbers.get(connection) ?? ++this.#lastNumber
    this.#numbers.set(connection, number)
    return `${address} ${number}`
  }

  #address(name: string) {
    const known = this.#addresses.get(name)
    if (known) return known
    const fresh = { turns: new RoundRobin<Call>(), waiting: 0, open: 0 }
    this.#addresses.set(name, fresh)
    return fresh
  }

  #enqueue(client: Client, turns: RoundRobin<Call>, job: RequestJob): void {
    let connection = this.#connections.get(client.connection)
    if (!connection) {
      connection = new RoundRobin()
      this.#connections.set(client.connection, connection)
    }
    connection.add(job)
    turns.add(connection)
    this.#waitingCalls.add(turns)
  }

  /**
   * Passes waiting calls to the sandbox: a few more than it runs at once, so that a free worker slot has its next call
   * at once.
   */
  #dispatch(): void {
    const { lanes } = this.sandbox
    while (this.#running < lanes + Math.min(lanes, AHEAD)) {
      const call = this.#waitingCalls.take()
      if (!call) return
      void this.#run(call)
    }
  }

  async #run({ job, index }: Call): Promise<void> {
    const submission = job.items[index] as Submission
    this.#running++
    const waitedMs = job.ageMs
    try {
      const result = await this.#result({ ...this.#request(submission), client: job.client }, job.stopped)
      this.statistics.waited(waitedMs + (result.queuedMs ?? 0))
      this.statistics.count(result.status === 'timeout' ? 'timedOut' : 'answered')
      job.settle(index, verdictOf(submission, result, this.limits))
    } catch (error) {
      if (!job.stopped.aborted) this.statistics.count('internalErrors')
      job.settle(index, notRun(submission.subId, 'internal_error', (error as Error).message, job.ageMs))
    } finally {
      this.#running--
      this.statistics.ended()
      this.#dispatch()
    }
  }

  /** Runs a call; again if the machine had no memory for it or its zygote died: neither is the submission's fault. */
  async #result(request: RunRequest, stopped: AbortSignal): Promise<RunResult> {
    for (let attempt = 1; ; attempt++) {
      const result = await retryLost(() => this.sandbox.run(request, stopped))
      if (!isOutOfMemory(result) || attempt === MEMORY_ATTEMPTS) return result
    }
  }

  #request({ subId, type, solution, input, expectedOutput }: Submission): RunRequest {
    const { timeoutMs, memoryMb, compileMs, cppMemoryMb } = this.limits
    const wanted = Math.max(CAPTURED_BYTES, 4 * (expectedOutput?.length ?? 0) + DEFAULT_MAX_OUTPUT_BYTES)
    const maxOutputBytes = Math.min(CALL_BOUNDS.maxOutputBytes[1], wanted)
    if (type === 'python') return { id: subId, code: solution, stdin: input, timeoutMs, memoryMb, maxOutputBytes }
    if (type === 'math')
      return mathRequest(subId, solution, expectedOutput ?? '', { timeoutMs, memoryMb, maxOutputBytes })
    return cppRequest(subId, solution, input, { runMs: timeoutMs, compileMs, memoryMb: cppMemoryMb, maxOutputBytes })
  }
}
