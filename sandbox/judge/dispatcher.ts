/**
 * Dispatcher: gives submissions of many clients to one sandbox, fairly, and never more than it can hold.
 *
 * in   requests of one or many submissions, each with its client and the time that it may wait      out  their verdicts
 * Invariant: every submission of a request that was let in gets exactly one verdict, unless its client goes away;
 * clients take turns (addresses, then their connections), so nobody waits for another's flood.
 */
import { setMaxListeners } from 'node:events'
import { CALL_BOUNDS, DEFAULT_MAX_OUTPUT_BYTES } from '../limits'
import type { RunRequest, Sandbox } from '../sandbox'
import { cppRequest } from './cppProgram'
import type { BadSubmission, Submission } from './submission'
import { Tally } from './tally'
import { type Source, Turns } from './turns'
import { invalid, unrun, type Verdict, verdictOf } from './verdict'

export interface DispatcherLimits {
  /** Of one run; a C++ program's compilation has `compileMs` beside it. */
  readonly timeoutMs: number
  readonly compileMs: number
  readonly memoryMb: number
  readonly cppMemoryMb: number
  readonly maxOutputChars: number
  /** Submissions that may wait, of all clients. */
  readonly maxQueuedCalls: number
  /** Submissions that may wait of one address, so that none can shut the others out. */
  readonly maxClientCalls: number
}

/** Whose request it is: turns go by address, then by connection. */
export interface Client {
  readonly address: string
  readonly connection: object
}

interface Call {
  readonly job: Job
  readonly index: number
}

/** A call that was begun in time has been ended by the sandbox this long after its limit. */
const LATE_MS = 2000
/** The more are with the sandbox, the longer waits who comes new. */
const AHEAD = 16
/** Streams are captured this far: the tail of stderr must be in it, and stdout is compared as a whole. */
const CAPTURED_BYTES = 16 * DEFAULT_MAX_OUTPUT_BYTES

export class Dispatcher {
  readonly tally = new Tally()
  readonly #addresses = new Map<string, { readonly turns: Turns<Call>; waiting: number; open: number }>()
  readonly #connections = new WeakMap<object, Turns<Call>>()
  readonly #turns = new Turns<Call>()
  readonly #jobs = new Set<Job>()
  #waiting = 0
  #running = 0

  constructor(
    private readonly sandbox: Sandbox,
    private readonly limits: DispatcherLimits,
  ) {}

  /** Submissions that wait, and those that are with the sandbox. */
  get load(): { readonly waiting: number; readonly running: number } {
    return { waiting: this.#waiting, running: this.#running }
  }

  /** Who is over its bound if so many more are let in: this client, or all of them together. */
  crowded(client: Client, calls: number): 'client' | 'server' | undefined {
    if (this.#waiting + calls > this.limits.maxQueuedCalls) return 'server'
    const waiting = this.#addresses.get(client.address)?.waiting ?? 0
    return waiting + calls > this.limits.maxClientCalls ? 'client' : undefined
  }

  /**
   * The verdicts, in the items' order. What has not begun after `waitMs` is answered `queue_timeout`; what the sandbox
   * has by then has the time that it would need if it had begun.
   * @param signal the client's going away: what waits is forgotten, what runs is ended; then this never resolves
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
      const job = new Job(items, {
        onWaiting: change => {
          this.#waiting += change
          address.waiting += change
        },
        onClose: () => {
          this.#jobs.delete(job)
          if (--address.open === 0) this.#addresses.delete(client.address)
        },
        onAnswered: resolve,
      })
      this.#jobs.add(job)
      job.open()
      if (signal.aborted) job.drop()
      if (job.isDone) return
      signal.addEventListener('abort', () => this.tally.count('dropped', job.drop()), { once: true })
      job.expiry = setTimeout(() => this.#expire(job, waitMs), Math.min(waitMs, 2 ** 31 - 1))
      this.#enlist(client, address.turns, job)
      this.#pump()
    })
  }

  /** Ends what waits and what runs; each is answered `internal_error`. */
  endAll(why: string): void {
    for (const job of this.#jobs) this.tally.count('internalErrors', job.end(why))
  }

  /** Calls that the sandbox has, and has not begun either, are given up once their own time would be over too. */
  #expire(job: Job, waitMs: number): void {
    this.tally.count('queueTimeouts', job.expire(waitMs))
    const { timeoutMs, compileMs } = this.limits
    const longest = timeoutMs + (job.items.some(item => 'type' in item && item.type === 'cpp') ? compileMs : 0)
    if (job.isDone) return
    job.expiry = setTimeout(() => this.tally.count('queueTimeouts', job.giveUp(waitMs)), longest + LATE_MS)
  }

  #address(name: string) {
    const known = this.#addresses.get(name)
    if (known) return known
    const fresh = { turns: new Turns<Call>(), waiting: 0, open: 0 }
    this.#addresses.set(name, fresh)
    return fresh
  }

  #enlist(client: Client, turns: Turns<Call>, job: Job): void {
    let connection = this.#connections.get(client.connection)
    if (!connection) {
      connection = new Turns()
      this.#connections.set(client.connection, connection)
    }
    connection.add(job)
    turns.add(connection)
    this.#turns.add(turns)
  }

  /** A few more than it has lanes are with the sandbox, so that a lane that becomes free has its next call at once. */
  #pump(): void {
    const { lanes } = this.sandbox
    while (this.#running < lanes + Math.min(lanes, AHEAD)) {
      const call = this.#turns.take()
      if (!call) return
      void this.#run(call)
    }
  }

  async #run({ job, index }: Call): Promise<void> {
    const submission = job.items[index] as Submission
    this.#running++
    const waitedMs = job.ageMs
    try {
      const result = await this.sandbox.run(this.#request(submission), job.stopped)
      this.tally.waited(waitedMs + (result.queuedMs ?? 0))
      this.tally.count(result.status === 'timeout' ? 'timedOut' : 'answered')
      job.settle(index, verdictOf(submission, result, this.limits))
    } catch (error) {
      if (!job.stopped.aborted) this.tally.count('internalErrors')
      job.settle(index, unrun(submission.subId, 'internal_error', (error as Error).message, job.ageMs))
    } finally {
      this.#running--
      this.tally.ended()
      this.#pump()
    }
  }

  #request({ subId, type, solution, input, expectedOutput }: Submission): RunRequest {
    const { timeoutMs, memoryMb, compileMs, cppMemoryMb } = this.limits
    const wanted = Math.max(CAPTURED_BYTES, 4 * (expectedOutput?.length ?? 0) + DEFAULT_MAX_OUTPUT_BYTES)
    const maxOutputBytes = Math.min(CALL_BOUNDS.maxOutputBytes[1], wanted)
    if (type === 'python') return { id: subId, code: solution, stdin: input, timeoutMs, memoryMb, maxOutputBytes }
    return cppRequest(subId, solution, input, { runMs: timeoutMs, compileMs, memoryMb: cppMemoryMb, maxOutputBytes })
  }
}

interface JobEvents {
  onWaiting(change: number): void
  onAnswered(verdicts: readonly Verdict[]): void
  onClose(): void
}

/** One request's submissions: those that wait are given out in order. */
class Job implements Source<Call> {
  readonly #controller = new AbortController()
  readonly #began = performance.now()
  readonly #verdicts: Verdict[]
  /** Indices of what can run, and how many of them have been given out. */
  readonly #runnable: number[] = []
  #given = 0
  #open: number
  #dropped = false
  expiry: NodeJS.Timeout | undefined

  constructor(
    readonly items: readonly (Submission | BadSubmission)[],
    private readonly events: JobEvents,
  ) {
    setMaxListeners(0, this.#controller.signal)
    this.#verdicts = new Array<Verdict>(items.length)
    this.#open = items.length
  }

  /** Answers what cannot run; the rest waits from now on. */
  open(): void {
    for (const [index, item] of this.items.entries()) if (!cannotRun(item)) this.#runnable.push(index)
    this.events.onWaiting(this.#runnable.length)
    for (const [index, item] of this.items.entries()) {
      const verdict = cannotRun(item)
      if (verdict) this.settle(index, verdict)
    }
  }

  get stopped(): AbortSignal {
    return this.#controller.signal
  }

  get isDone(): boolean {
    return this.#open === 0 || this.#dropped
  }

  get ageMs(): number {
    return performance.now() - this.#began
  }

  take(): Call | undefined {
    const index = this.#runnable[this.#given]
    if (index === undefined) return undefined
    this.#given++
    this.events.onWaiting(-1)
    return { job: this, index }
  }

  settle(index: number, verdict: Verdict): void {
    if (this.#dropped || this.#verdicts[index]) return
    this.#verdicts[index] = verdict
    if (--this.#open > 0) return
    clearTimeout(this.expiry)
    this.events.onClose()
    this.events.onAnswered(this.#verdicts)
  }

  /** Answers what still waits. Returns how many those were. */
  expire(waitMs: number): number {
    const waiting = this.#takeWaiting()
    for (const index of waiting) this.#fail(index, 'queue_timeout', waited(waitMs))
    return waiting.length
  }

  /** Answers what was given out and has not ended, and ends it. Returns how many those were. */
  giveUp(waitMs: number): number {
    const open = this.#open
    for (const index of this.items.keys()) this.#fail(index, 'queue_timeout', waited(waitMs))
    this.#controller.abort(new Error('its time to wait is over'))
    return open
  }

  /** Answers what waits and what runs, and ends it. Returns how many those were. */
  end(why: string): number {
    const open = this.#open
    this.#takeWaiting()
    for (const index of this.items.keys()) this.#fail(index, 'internal_error', why)
    this.#controller.abort(new Error(why))
    return open
  }

  /** Forgets what waits, ends what runs. Returns how many those were. */
  drop(): number {
    if (this.isDone) return 0
    this.#dropped = true
    clearTimeout(this.expiry)
    this.#takeWaiting()
    this.#controller.abort(new Error('the client went away'))
    this.events.onClose()
    return this.#open
  }

  #fail(index: number, reason: 'queue_timeout' | 'internal_error', why: string): void {
    this.settle(index, unrun(this.items[index]!.subId, reason, why, this.ageMs))
  }

  #takeWaiting(): readonly number[] {
    const waiting = this.#runnable.slice(this.#given)
    this.#given = this.#runnable.length
    this.events.onWaiting(-waiting.length)
    return waiting
  }
}

const waited = (ms: number) => `no lane was free for it within ${ms} ms: send less at once, or use /long-batch`

/** The verdict of what needs no lane to be judged. */
function cannotRun(item: Submission | BadSubmission): Verdict | undefined {
  if ('faults' in item) return invalid(item)
  if (item.type !== 'math') return undefined
  const why = "type 'math' has no executor here, nor has it in Code Judge: send python or cpp"
  return unrun(item.subId, 'internal_error', why, 0)
}
