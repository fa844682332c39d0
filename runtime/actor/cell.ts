/**
 * A cell: the life of one actor, from its first start over any number of restarts to its end.
 *
 * in   messages, failures of handlers and children, requests to stop
 * out  calls of the handler, one at a time; dead letters; an escalation
 * Invariant: at most one of `start`, a handler and `stop` runs at any time, across restarts too. A message that was
 * accepted is handled, or is a dead letter. Nothing here rejects unheard or throws into the carrier.
 */
import { asError, type TroupeError } from '../errors'
import { actorError } from './actorError'
import { Family } from './family'
import { type Envelope, Inbox } from './inbox'
import type { ActorMeter, Instruments } from './instruments'
import { defaultRestartPolicy, type Failures, onFailure, type RestartPolicy } from './restartPolicy'
import type {
  ActorContext,
  ActorRef,
  ActorSpec,
  AskOptions,
  Carrier,
  DeadLetter,
  Handler,
  Reply,
  StopOptions,
  StopReason,
  TellOptions,
} from './spec'

/** What cells need of the system they live in. */
export interface Host {
  /** A carrier below `parent`'s; `turn` never rejects. */
  carry(parent: Carrier | undefined, name: string, turn: () => Promise<void>): Carrier
  elapsed(): number
  readonly log: { warn(fields: object, text: string): void; error(fields: object, text: string): void }
  readonly instruments: Instruments | undefined
  onDeadLetter(letter: DeadLetter): void
}

/** Where a cell hangs: a system (without a carrier), or an incarnation of another cell. */
export interface Parent {
  readonly path: string
  readonly carrier: Carrier | undefined
  /** A child that used up its restarts, and whose spec did not take it. */
  failed(path: string, error: TroupeError): void
}

const turnMessages = 64
const stopDeadlineMs = 10_000

export class Cell<M> implements ActorRef<M> {
  readonly path: string
  readonly started: Promise<void>
  readonly ended: Promise<TroupeError | undefined>
  readonly #spec: ActorSpec<M>
  readonly #parent: Parent
  readonly #host: Host
  readonly #policy: RestartPolicy
  readonly #meter: ActorMeter | undefined
  readonly #inbox: Inbox<M>
  readonly #family: Family
  #resolveStarted!: () => void
  #rejectStarted!: (error: TroupeError) => void
  #resolveEnded!: (error: TroupeError | undefined) => void
  #carrier: Carrier | undefined
  #abort = new AbortController()
  #handler: Handler<M> | undefined
  #failures: Failures = []
  /** A child's escalation, to be dealt with between two messages. */
  #failure: TroupeError | undefined
  #stopping: { readonly drain: boolean } | undefined
  #over = false
  #awake = false
  #turning = false
  #backoff: NodeJS.Timeout | undefined

  constructor(spec: ActorSpec<M>, parent: Parent, host: Host) {
    this.path = `${parent.path}/${spec.name}`
    this.#spec = spec
    this.#parent = parent
    this.#host = host
    this.#policy = { ...defaultRestartPolicy, ...spec.restart }
    this.#meter = host.instruments?.of(this.path, () => this.depth)
    const owner = {
      path: this.path,
      arrived: () => this.#wake(),
      deadLetter: (message: M, error: TroupeError) => this.#deadLetter(message, 'stopped', error),
      stamp: this.#meter ? () => host.elapsed() : () => 0,
    }
    this.#inbox = new Inbox(owner, spec.mailbox.capacity, spec.mailbox.waiting)
    this.#family = new Family(this.path)
    this.started = new Promise((resolve, reject) => {
      this.#resolveStarted = resolve
      this.#rejectStarted = reject
    })
    this.started.catch(() => {}) // an actor that cannot start escalates; whoever waits for it awaits this
    this.ended = new Promise(resolve => {
      this.#resolveEnded = resolve
    })
    this.#begin()
  }

  get depth(): number {
    return this.#inbox.mailbox.depth
  }

  tryTell(message: M): boolean {
    return this.#inbox.tryTell(message)
  }

  tell(message: M, options?: TellOptions): Promise<void> {
    return this.#inbox.tell(message, options)
  }

  ask<R>(make: (reply: Reply<R>) => M, options: AskOptions): Promise<R> {
    return this.#inbox.ask(make, options)
  }

  stop({ drain = false, deadlineMs = stopDeadlineMs }: StopOptions = {}): Promise<void> {
    this.#stopping = { drain: drain && (this.#stopping?.drain ?? true) }
    this.#inbox.close()
    if (!drain) {
      this.#abort.abort()
      if (this.#backoff) this.#begin() // nothing is gained by sitting it out
    }
    this.#wake()
    const timer = setTimeout(() => {
      const error = actorError('actor.stop_timeout', this.path, `was still busy ${deadlineMs} ms after it had to stop`)
      void this.#end('stopped', error)
    }, deadlineMs)
    return this.ended.then(error => {
      clearTimeout(timer)
      if (error?.code === 'actor.stop_timeout') throw error
    })
  }

  /** A new incarnation: its carrier, then its first turn, which runs `start`. */
  #begin(): void {
    clearTimeout(this.#backoff)
    this.#backoff = undefined
    if (this.#over) return
    this.#awake = false
    this.#abort = new AbortController()
    this.#carrier = this.#host.carry(this.#parent.carrier, this.#spec.name, () => this.#turn())
    this.#wake()
  }

  #wake(): void {
    // While a turn runs, it looks for more to do itself before it ends.
    if (this.#awake || this.#turning || !this.#carrier) return
    this.#awake = true
    this.#carrier.wake()
  }

  async #turn(): Promise<void> {
    this.#awake = false
    if (this.#turning || this.#over) return
    this.#turning = true
    try {
      await this.#work()
    } catch (error) {
      // Nothing in #work should throw: a defect here ends the actor rather than the process.
      await this.#end(
        'escalated',
        actorError('actor.defect', this.path, 'failed outside its handler', { cause: error }),
      )
    }
    this.#turning = false
    if (!this.#over && (this.#inbox.mailbox.depth > 0 || this.#failure || this.#stopping)) this.#wake()
  }

  async #work(): Promise<void> {
    if (!this.#handler && !this.#leaving()) {
      try {
        const handler = await this.#spec.start(this.#context())
        if (this.#over) return
        this.#handler = handler
      } catch (thrown) {
        return this.#fail(
          actorError('actor.start_failed', this.path, `could not start: ${asError(thrown).message}`, { cause: thrown }),
        )
      }
      this.#resolveStarted()
    }
    let handled = 0
    while (handled < turnMessages && !this.#leaving() && !this.#failure) {
      const envelope = this.#inbox.mailbox.peek()
      if (!envelope) break
      if (envelope.question?.settled) {
        this.#inbox.mailbox.done()
        continue
      }
      // One message a turn is timed: under load a sample, else every one.
      const begun = this.#meter && handled === 0 ? this.#host.elapsed() : 0
      try {
        const pending = this.#handler!(envelope.message)
        if (pending !== undefined) await pending
      } catch (thrown) {
        this.#meter?.handled(handled)
        return this.#over ? undefined : this.#crash(envelope, thrown)
      }
      if (this.#over) return
      this.#inbox.mailbox.done()
      if (begun) this.#meter!.timed(begun - envelope.at, this.#host.elapsed() - begun)
      handled++
    }
    this.#meter?.handled(handled)
    if (this.#failure) return this.#fail(this.#failure)
    if (this.#stopping && (this.#leaving() || this.#inbox.mailbox.depth === 0)) return this.#end('stopped')
  }

  #context(): ActorContext {
    const parent: Parent = {
      path: this.path,
      carrier: this.#carrier,
      failed: (_path, error) => {
        this.#failure = error
        this.#wake()
      },
    }
    return {
      path: this.path,
      signal: this.#abort.signal,
      spawn: spec => this.#family.add(spec.name, () => new Cell(spec, parent, this.#host)),
    }
  }

  /** Asked to stop without handling what is queued. */
  #leaving(): boolean {
    return this.#stopping !== undefined && !this.#stopping.drain
  }

  async #crash(envelope: Envelope<M>, thrown: unknown): Promise<void> {
    const error = actorError('actor.handler_failed', this.path, `failed on a message: ${asError(thrown).message}`, {
      cause: thrown,
    })
    envelope.attempts++
    envelope.question?.crashed(error)
    if (envelope.attempts >= this.#policy.attemptsPerMessage || this.#leaving()) {
      this.#inbox.mailbox.done()
      envelope.question?.fail(error)
      this.#deadLetter(envelope.message, 'crashed', error)
    }
    return this.#fail(error)
  }

  async #fail(error: TroupeError): Promise<void> {
    this.#failure = undefined
    if (this.#leaving()) return this.#end('stopped')
    const verdict = onFailure(this.#policy, this.#failures, this.#host.elapsed())
    this.#failures = verdict.failures
    if (verdict.do === 'escalate') {
      const { maxRestarts, withinMs } = this.#policy
      const text = `failed more than ${maxRestarts} times within ${withinMs} ms: ${error.message}`
      return this.#end('escalated', actorError('actor.escalated', this.path, text, { cause: error }))
    }
    this.#host.log.warn({ actor: this.path, err: error, afterMs: verdict.afterMs }, 'actor failed and restarts')
    this.#meter?.restarted()
    await this.#close('restarting')
    if (this.#over) return
    this.#failure = undefined // a child's, from before it was stopped
    this.#backoff = setTimeout(() => this.#begin(), this.#leaving() ? 0 : verdict.afterMs)
  }

  /** Ends the incarnation: its children, what `start` took, its carrier. */
  async #close(reason: StopReason): Promise<void> {
    this.#abort.abort()
    const carrier = this.#carrier
    const handler = this.#handler
    this.#carrier = undefined
    this.#handler = undefined
    for (const fault of await this.#family.stop({ drain: this.#stopping?.drain ?? false })) {
      this.#host.log.error({ actor: this.path, err: asError(fault) }, 'a child did not stop in time')
    }
    if (handler && this.#spec.stop) {
      try {
        await within(this.#spec.stop(reason), stopDeadlineMs, () =>
          actorError('actor.stop_timeout', this.path, `its stop hook took longer than ${stopDeadlineMs} ms`),
        )
      } catch (error) {
        this.#host.log.error({ actor: this.path, err: asError(error) }, 'the stop hook of an actor failed')
      }
    }
    carrier?.dispose()
  }

  async #end(reason: StopReason, error?: TroupeError): Promise<void> {
    if (this.#over) return
    this.#over = true
    this.#inbox.close()
    clearTimeout(this.#backoff)
    await this.#close(reason)
    const stopped = this.#stoppedError(error)
    for (const envelope of this.#inbox.empty(stopped)) {
      envelope.question?.abandon(stopped)
      this.#deadLetter(envelope.message, 'stopped', stopped)
    }
    this.#meter?.ended()
    this.#rejectStarted(stopped)
    this.#resolveEnded(error)
    if (reason === 'escalated' && error) this.#escalate(error)
  }

  #escalate(error: TroupeError): void {
    this.#host.log.error({ actor: this.path, err: error }, 'actor used up its restarts')
    try {
      if (this.#spec.onEscalate) this.#spec.onEscalate(error)
      else this.#parent.failed(this.path, error)
    } catch (thrown) {
      this.#host.log.error({ actor: this.path, err: asError(thrown) }, 'an onEscalate hook failed')
    }
  }

  #deadLetter(message: M, reason: DeadLetter['reason'], error: TroupeError): void {
    this.#meter?.deadLetter(reason)
    try {
      this.#host.onDeadLetter({ actor: this.path, message, reason, error })
    } catch (thrown) {
      this.#host.log.error({ actor: this.path, err: asError(thrown) }, 'the dead letter hook failed')
    }
  }

  #stoppedError(cause?: TroupeError): TroupeError {
    return actorError('actor.stopped', this.path, 'has stopped', { cause })
  }
}

async function within<T>(work: T | Promise<T>, deadlineMs: number, late: () => TroupeError): Promise<T> {
  let timer: NodeJS.Timeout | undefined
  const deadline = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(late()), deadlineMs)
  })
  try {
    return await Promise.race([work, deadline])
  } finally {
    clearTimeout(timer)
  }
}
