/**
 * RequestJob: the submissions of one request on their way through the dispatcher.
 *
 * in   submissions, verdicts in any order, the end of the wait
 * out  calls in order; all verdicts, once the last has arrived
 * Invariant: a submission gets one verdict; later ones are ignored. After `drop` nothing is answered.
 */
import { setMaxListeners } from 'node:events'
import type { Source } from './roundRobin'
import type { BadSubmission, Submission } from './submission'
import { invalid, notRun, type Verdict } from './verdict'

/** One submission that can run, named by its job and its index in that job. */
export interface Call {
  readonly job: RequestJob
  readonly index: number
}

interface JobEvents {
  onWaiting(change: number): void
  onAnswered(verdicts: readonly Verdict[]): void
  onClose(): void
}

export class RequestJob implements Source<Call> {
  readonly #controller = new AbortController()
  readonly #began = performance.now()
  readonly #verdicts: Verdict[]
  /** Indices of submissions that can run. `take` has returned the first `#taken` of them. */
  readonly #runnable: number[] = []
  #taken = 0
  #open: number
  #dropped = false
  expiry: NodeJS.Timeout | undefined

  /**
   * Starts with every submission unanswered.
   * @param client name of the request's sender, by which the sandbox lets clients take turns
   * @param math true: submissions of type math can run
   */
  constructor(
    readonly client: string,
    readonly items: readonly (Submission | BadSubmission)[],
    private readonly events: JobEvents,
    private readonly math: boolean,
  ) {
    setMaxListeners(0, this.#controller.signal)
    this.#verdicts = new Array<Verdict>(items.length)
    this.#open = items.length
  }

  /** Answers the submissions that cannot run, and makes the others available to `take`. */
  open(): void {
    for (const [index, item] of this.items.entries()) if (!cannotRun(item, this.math)) this.#runnable.push(index)
    this.events.onWaiting(this.#runnable.length)
    for (const [index, item] of this.items.entries()) {
      const verdict = cannotRun(item, this.math)
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
    const index = this.#runnable[this.#taken]
    if (index === undefined) return undefined
    this.#taken++
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

  /** Answers the waiting calls `queue_timeout`. Returns their number. */
  expire(waitMs: number): number {
    const waiting = this.#takeWaiting()
    for (const index of waiting) this.#fail(index, 'queue_timeout', waited(waitMs))
    return waiting.length
  }

  /** Ends the calls that were taken and have not ended, and answers them `queue_timeout`. Returns their number. */
  giveUp(waitMs: number): number {
    const open = this.#open
    for (const index of this.items.keys()) this.#fail(index, 'queue_timeout', waited(waitMs))
    this.#controller.abort(new Error('the call waited longer than its limit'))
    return open
  }

  /**
   * Ends all waiting and running calls, and answers them `internal_error`. Returns the number of submissions without a
   * verdict until then.
   */
  end(why: string): number {
    const open = this.#open
    this.#takeWaiting()
    for (const index of this.items.keys()) this.#fail(index, 'internal_error', why)
    this.#controller.abort(new Error(why))
    return open
  }

  /** Drops the waiting calls and ends the running ones, without an answer. Returns their number. */
  drop(): number {
    if (this.isDone) return 0
    this.#dropped = true
    clearTimeout(this.expiry)
    this.#takeWaiting()
    this.#controller.abort(new Error('the client disconnected'))
    this.events.onClose()
    return this.#open
  }

  #fail(index: number, reason: 'queue_timeout' | 'internal_error', why: string): void {
    this.settle(index, notRun(this.items[index]!.subId, reason, why, this.ageMs))
  }

  #takeWaiting(): readonly number[] {
    const waiting = this.#runnable.slice(this.#taken)
    this.#taken = this.#runnable.length
    this.events.onWaiting(-waiting.length)
    return waiting
  }
}

const waited = (ms: number) =>
  `no worker slot was free within ${ms} ms: send fewer submissions at once, or use /long-batch`

/** Returns the verdict on a submission that cannot run; undefined for one that can. */
function cannotRun(item: Submission | BadSubmission, math: boolean): Verdict | undefined {
  if ('faults' in item) return invalid(item)
  if (item.type !== 'math') return undefined
  if (math && item.expectedOutput !== undefined) return undefined
  if (math) return notRun(item.subId, 'invalid_input', 'expected_output: Field required: the truth of a math answer', 0)
  const why = "type 'math' has no executor here, nor in Code Judge: start the judge with --math, or send python or cpp"
  return notRun(item.subId, 'internal_error', why, 0)
}
