/**
 * The life of one actor (its "cell"), from its first start over any number of restarts to its end.
 *
 * in   messages, failures of handlers and children, requests to stop
 * out  calls of the handler, one at a time; dead letters; an escalation
 * Invariant: until a stop's or a hook's deadline passes, at most one of `start`, a handler and a hook runs at any time,
 * across restarts too. A message that was accepted is handled, or becomes a dead letter, or is dropped because it is an
 * `ask` whose caller has given up. Every promise rejection of this file is handled. The file is longer than 320 lines
 * because the states of one life lose their order when they are spread over files.
 */

import { afterAwake } from '../awakeTimer'
import { asError, TroupeError } from '../errors'
import { within } from '../within'
import { actorError } from './actorError'
import { Family } from './family'
import { type Envelope, Inbox } from './inbox'
import type { ActorMeter, Instruments } from './instruments'
import type { Carrier, NactTree } from './nactTree'
import { defaultRestartPolicy, type Failures, onFailure, type RestartPolicy } from './restartPolicy'
import type {
  ActorContext,
  ActorLife,
  ActorRef,
  ActorSpec,
  AskOptions,
  DeadLetter,
  Handler,
  Reply,
  StopOptions,
  StopReason,
  TellOptions,
} from './spec'

/** Parts of the actor system that its actors use. */
export interface Host extends Pick<NactTree, 'carry'> {
  elapsed(): number
  readonly log: { warn(fields: object, text: string): void; error(fields: object, text: string): void }
  readonly instruments: Instruments | undefined
  onDeadLetter(letter: DeadLetter): void
  readonly onLife: ((life: ActorLife) => void) | undefined
}

/**
 * Parent of an actor: the actor system itself (`carrier` is undefined then), or an incarnation (the life between two
 * restarts) of another actor.
 */
export interface Parent {
  readonly path: string
  readonly carrier: Carrier<never> | undefined
  /** Receives the escalation of a child whose spec has no `onEscalate`. */
  failed(path: string, error: TroupeError): void
}

/**
 * Envelopes that go through nact as one message, in the mailbox's order, at most 64: nact takes a turn of the event
 * loop for each message. Envelopes that arrive before nact has begun the latest bundle are added to it. An empty bundle
 * makes the actor check whether it must start, fail or stop.
 */
type Bundle<M> = Envelope<M>[]

const bundleMessages = 64
const defaultStopMs = 10_000

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
  #carrier: Carrier<Bundle<M>> | undefined
  #abort = new AbortController()
  #handler: Handler<M> | undefined
  /** The latest bundle, until nact has begun it; undefined afterwards. */
  #open: Bundle<M> | undefined
  #failures: Failures = []
  #restarts = 0
  #lastError: TroupeError | undefined
  /**
   * First failure of this incarnation from `context.fail` or from a child; the actor acts on it between two messages.
   */
  #failure: TroupeError | undefined
  #stopping: { readonly drain: boolean } | undefined
  #over = false
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
      arrived: (envelope: Envelope<M>) => this.#dispatch(envelope),
      deadLetter: (message: M, error: TroupeError) => this.#deadLetter(message, 'stopped', error),
      stamp: this.#meter ? () => host.elapsed() : () => 0,
    }
    this.#inbox = new Inbox(owner, spec.mailbox.capacity, spec.mailbox.waiting)
    this.#family = new Family(this.path)
    this.started = new Promise((resolve, reject) => {
      this.#resolveStarted = resolve
      this.#rejectStarted = reject
    })
    this.started.catch(() => {}) // nobody may await `started`: its rejection must not count as unhandled
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

  stop({ drain = false, deadlineMs = this.#stopWithinMs }: StopOptions = {}): Promise<void> {
    this.#stopping = { drain: drain && (this.#stopping?.drain ?? true) }
    this.#inbox.close()
    if (!drain) {
      this.#abort.abort()
      if (this.#backoff) this.#begin() // without drain, a stop cuts the wait before a restart short
    }
    this.#dispatch()
    const cancel = afterAwake(deadlineMs, () => {
      const error = actorError(
        'actor.stop_timeout',
        this.path,
        `was still busy ${deadlineMs} ms after it was told to stop`,
      )
      void this.#end('stopped', error)
    })
    return this.ended.then(error => {
      cancel()
      if (error?.code === 'actor.stop_timeout') throw error
    })
  }

  get #stopWithinMs(): number {
    return this.#spec.stopWithinMs ?? defaultStopMs
  }

  /**
   * Begins an incarnation (the life between two restarts): its nact actor first runs `start`, then handles the mailbox.
   */
  #begin(): void {
    clearTimeout(this.#backoff)
    this.#backoff = undefined
    if (this.#over) return
    this.#abort = new AbortController()
    this.#open = undefined
    this.#live('starting')
    const carrier: Carrier<Bundle<M>> = this.#host.carry<Bundle<M>>(this.#parent.carrier, this.#spec.name, {
      receive: bundle => (this.#carrier === carrier ? this.#receive(bundle) : Promise.resolve()),
      crashed: error => this.#crashed(error),
    })
    this.#carrier = carrier
    carrier.dispatch([])
    for (const envelope of this.#inbox.mailbox.contents()) this.#dispatch(envelope)
  }

  /**
   * Sends `envelope` to the nact actor; without an argument, an empty bundle. Between two incarnations it sends
   * nothing, and the envelope stays in the mailbox.
   */
  #dispatch(envelope?: Envelope<M>): void {
    if (envelope === undefined) this.#carrier?.dispatch([])
    else if (this.#carrier === undefined) return
    else if (this.#open !== undefined && this.#open.length < bundleMessages) this.#open.push(envelope)
    else {
      this.#open = [envelope]
      this.#carrier.dispatch(this.#open)
    }
  }

  /** Handles a bundle. Throws the error that the actor fails with; nact passes it to `#crashed`. */
  async #receive(bundle: Bundle<M>): Promise<void> {
    if (this.#open === bundle) this.#open = undefined
    if (this.#over) return
    if (!this.#handler && !this.#leaving()) await this.#start()
    let handled = 0
    for (const envelope of bundle) {
      if (this.#over || this.#leaving() || this.#failure) break
      if (envelope.question?.settled) {
        this.#inbox.mailbox.done()
        continue
      }
      // Only the first handled message of a bundle is timed. Under load this is a sample; without load every message is
      // timed, since each bundle then holds one message.
      const begun = this.#meter && handled === 0 ? this.#host.elapsed() : 0
      try {
        const pending = this.#handler!(envelope.message)
        // Only a promise is awaited. Awaiting every call would wake the senders that wait for room one by one.
        if (pending !== undefined) await pending
      } catch (thrown) {
        this.#meter?.handled(handled)
        if (this.#over) return
        throw this.#failedOn(envelope, thrown)
      }
      if (this.#over) return
      this.#inbox.mailbox.done()
      if (begun) this.#meter!.timed(begun - envelope.at, this.#host.elapsed() - begun)
      handled++
    }
    this.#meter?.handled(handled)
    if (this.#over) return
    if (this.#failure) throw this.#failure
    if (this.#stopping && (this.#leaving() || this.#inbox.mailbox.depth === 0)) await this.#end('stopped')
  }

  async #start(): Promise<void> {
    try {
      const handler = await this.#spec.start(this.#context())
      if (this.#over) return
      this.#handler = handler
    } catch (thrown) {
      const text = `could not start: ${asError(thrown).message}`
      throw actorError('actor.start_failed', this.path, text, { cause: thrown })
    }
    this.#live('up')
    this.#resolveStarted()
  }

  /**
   * Counts the crash against the message. The message becomes a dead letter at its `attemptsPerMessage`-th crash, or
   * when the actor is stopping without drain.
   */
  #failedOn(envelope: Envelope<M>, thrown: unknown): TroupeError {
    const text = `failed on a message: ${asError(thrown).message}`
    const error = actorError('actor.handler_failed', this.path, text, { cause: thrown })
    envelope.attempts++
    envelope.question?.crashed(error)
    if (envelope.attempts >= this.#policy.attemptsPerMessage || this.#leaving()) {
      this.#inbox.mailbox.done()
      envelope.question?.fail(error)
      this.#deadLetter(envelope.message, 'crashed', error)
    }
    return error
  }

  /** Decides about a restart after a crash; nact's `onCrash` hook calls this method. */
  async #crashed(thrown: unknown): Promise<void> {
    if (this.#over) return
    try {
      const known = thrown === this.#failure || isOfActor(thrown)
      await this.#fail(known ? (thrown as TroupeError) : this.#defect(thrown))
    } catch (error) {
      // #fail should not throw; a defect in it ends the actor rather than the process.
      await this.#end('escalated', this.#defect(error)).catch(() => {})
    }
  }

  #defect(cause: unknown): TroupeError {
    const text = `failed outside its handler: ${asError(cause).message}`
    return actorError('actor.defect', this.path, text, { cause })
  }

  #context(): ActorContext {
    const carrier = this.#carrier
    const failed = (error: TroupeError) => {
      if (this.#carrier !== carrier || this.#failure) return // only the first failure of an incarnation counts
      this.#failure = error
      this.#dispatch()
    }
    const parent: Parent = { path: this.path, carrier, failed: (_path, error) => failed(error) }
    return {
      path: this.path,
      signal: this.#abort.signal,
      spawn: spec => {
        if (this.#carrier !== carrier) throw this.#stoppedError()
        return this.#family.add(spec.name, () => new Cell(spec, parent, this.#host))
      },
      fail: thrown => {
        const text = `failed: ${asError(thrown).message}`
        failed(actorError('actor.failed', this.path, text, { cause: thrown }))
      },
    }
  }

  /** True once a stop without drain was requested, so queued messages will not be handled. */
  #leaving(): boolean {
    return this.#stopping !== undefined && !this.#stopping.drain
  }

  async #fail(error: TroupeError): Promise<void> {
    this.#failure = undefined
    this.#lastError = error
    if (this.#leaving()) return this.#end('stopped')
    if (this.#spec.isFatal?.(error.cause ?? error)) return this.#end('escalated', error)
    const verdict = onFailure(this.#policy, this.#failures, this.#host.elapsed())
    this.#failures = verdict.failures
    if (verdict.do === 'escalate') {
      const { maxRestarts, withinMs } = this.#policy
      const text = `failed more than ${maxRestarts} times within ${withinMs} ms: ${error.message}`
      return this.#end('escalated', actorError('actor.escalated', this.path, text, { cause: error }))
    }
    this.#host.log.warn({ actor: this.path, err: error, afterMs: verdict.afterMs }, 'actor failed and restarts')
    this.#meter?.restarted()
    this.#restarts++
    this.#live('restarting')
    await this.#close('restarting', error)
    if (this.#over) return
    this.#failure = undefined // discards what a child or `context.fail` reported while the incarnation was closed
    this.#backoff = setTimeout(() => this.#begin(), this.#leaving() ? 0 : verdict.afterMs)
  }

  /**
   * Ends the incarnation, in this order: aborts its signal, runs the spec's `beforeStop`, stops the children, runs the
   * spec's `stop`, disposes of the nact actor. The two hooks run only if `start` has resolved.
   */
  async #close(reason: StopReason, error: TroupeError | undefined): Promise<void> {
    this.#abort.abort()
    const carrier = this.#carrier
    const wasUp = this.#handler !== undefined
    this.#handler = undefined
    if (wasUp) await this.#hook('beforeStop', () => this.#spec.beforeStop?.(reason, error))
    this.#carrier = undefined
    for (const fault of await this.#family.stop({ drain: this.#stopping?.drain ?? false })) {
      this.#host.log.error({ actor: this.path, err: asError(fault) }, 'a child did not stop in time')
    }
    if (wasUp) await this.#hook('stop', () => this.#spec.stop?.(reason))
    carrier?.dispose()
  }

  async #hook(name: 'beforeStop' | 'stop', run: () => void | Promise<void>): Promise<void> {
    const ms = this.#stopWithinMs
    const late = () => actorError('actor.stop_timeout', this.path, `did not finish its ${name} hook within ${ms} ms`)
    try {
      const pending = run()
      if (pending !== undefined) await within(pending, ms, late)
    } catch (error) {
      this.#host.log.error({ actor: this.path, err: asError(error) }, 'the beforeStop or stop hook of an actor failed')
    }
  }

  async #end(reason: StopReason, error?: TroupeError): Promise<void> {
    if (this.#over) return
    this.#over = true
    this.#lastError = error ?? this.#lastError
    this.#inbox.close()
    clearTimeout(this.#backoff)
    await this.#close(reason, error)
    const stopped = this.#stoppedError(error)
    for (const envelope of this.#inbox.empty(stopped)) {
      envelope.question?.abandon(stopped)
      this.#deadLetter(envelope.message, 'stopped', stopped)
    }
    this.#meter?.ended()
    this.#live(reason === 'escalated' ? 'given-up' : 'stopped')
    this.#rejectStarted(stopped)
    this.#resolveEnded(error)
    if (reason === 'escalated' && error) this.#escalate(error)
  }

  #escalate(error: TroupeError): void {
    // Only used-up restarts are logged here; a fatal failure is reported by the receiver of the escalation.
    if (error.code === 'actor.escalated') {
      this.#host.log.error({ actor: this.path, err: error }, 'actor used up its restarts')
    }
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

  #live(state: ActorLife['state']): void {
    const { onLife } = this.#host
    if (onLife === undefined) return
    try {
      onLife({
        path: this.path,
        kind: this.#spec.kind ?? 'actor',
        state,
        restarts: this.#restarts,
        error: this.#lastError,
      })
    } catch (thrown) {
      this.#host.log.error({ actor: this.path, err: asError(thrown) }, 'the onLife hook failed')
    }
  }

  #stoppedError(cause?: TroupeError): TroupeError {
    return actorError('actor.stopped', this.path, 'is stopping or has stopped', { cause })
  }
}

/**
 * True for a TroupeError of the actor boundary. This file wraps every error that `start` or a handler throws in one, so
 * any other error that reaches nact is a defect.
 */
const isOfActor = (thrown: unknown): boolean => thrown instanceof TroupeError && thrown.boundary === 'actor'
