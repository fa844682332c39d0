/**
 * The sending side of an actor: tryTell, tell and ask over a bounded mailbox.
 *
 * in   messages from anyone in the process          out  envelopes in the mailbox, or a refusal to the sender
 * Invariant: every sender learns whether its message was accepted; a refused `tell` or `ask` also learns why. After
 * `close` a new message is refused and becomes a dead letter; senders that already wait for room may still be admitted.
 */
import type { TroupeError } from '../errors'
import { actorError } from './actorError'
import { Mailbox } from './mailbox'
import { aborted, Question } from './question'
import type { AskOptions, Reply, TellOptions } from './spec'

export interface Envelope<M> {
  readonly message: M
  /** Time of sending on the host's monotonic clock, ms; 0 when metrics are off. */
  readonly at: number
  readonly question: Question<never> | undefined
  /** Number of times that the actor crashed on this message. */
  attempts: number
}

/** Part of an actor that its inbox calls. */
export interface InboxOwner<M> {
  readonly path: string
  /** Called when the envelope has entered the mailbox. */
  arrived(envelope: Envelope<M>): void
  deadLetter(message: M, error: TroupeError): void
  /** Returns the time for `Envelope.at`, ms. */
  stamp(): number
}

const tellDeadlineMs = 30_000
const accepted = Promise.resolve()

export class Inbox<M> {
  readonly mailbox: Mailbox<Envelope<M>>
  readonly #owner: InboxOwner<M>
  #closed = false

  constructor(owner: InboxOwner<M>, capacity: number, waiting = Math.max(capacity, 64)) {
    if (!Number.isInteger(capacity) || capacity < 1) {
      throw actorError(
        'actor.bad_capacity',
        owner.path,
        `cannot have a mailbox for ${capacity} messages; expected a whole number from 1`,
      )
    }
    this.#owner = owner
    this.mailbox = new Mailbox(capacity, waiting)
  }

  /** Refuses all messages from here on. Accepted messages, and senders that wait for room, stay. */
  close(): void {
    this.#closed = true
  }

  /** Removes and returns all accepted and waiting messages; the waiting senders are refused with `error`. */
  empty(error: TroupeError): Envelope<M>[] {
    return this.mailbox.clear(error)
  }

  tryTell(message: M): boolean {
    if (this.#closed) {
      this.#refuse(message)
      return false
    }
    return this.#offer(this.#envelope(message, undefined))
  }

  tell(message: M, options?: TellOptions): Promise<void> {
    if (this.#closed) return Promise.reject(this.#refuse(message))
    if (options?.signal?.aborted) return Promise.reject(aborted(this.#owner.path, options.signal))
    const envelope = this.#envelope(message, undefined)
    if (this.#offer(envelope)) return accepted
    return this.#waitForRoom(envelope, options?.deadlineMs ?? tellDeadlineMs, options?.signal)
  }

  ask<R>(make: (reply: Reply<R>) => M, options: AskOptions): Promise<R> {
    const question = new Question<R>(this.#owner.path, options)
    if (!question.settled) this.#put(question, make, options)
    return question.promise
  }

  #put<R>(question: Question<R>, make: (reply: Reply<R>) => M, options: AskOptions): void {
    let message: M
    try {
      message = make(question)
    } catch (error) {
      question.fail(error)
      return
    }
    if (this.#closed) {
      question.fail(this.#refuse(message))
      return
    }
    const envelope = this.#envelope(message, question as unknown as Question<never>)
    if (!this.#offer(envelope))
      this.#waitForRoom(envelope, options.deadlineMs, options.signal).catch(error => question.fail(error))
  }

  #offer(envelope: Envelope<M>): boolean {
    if (!this.mailbox.offer(envelope)) return false
    this.#owner.arrived(envelope)
    return true
  }

  #envelope(message: M, question: Question<never> | undefined): Envelope<M> {
    return { message, at: this.#owner.stamp(), question, attempts: 0 }
  }

  #refuse(message: M): TroupeError {
    const error = actorError('actor.stopped', this.#owner.path, 'is stopping or has stopped')
    this.#owner.deadLetter(message, error)
    return error
  }

  #waitForRoom(envelope: Envelope<M>, deadlineMs: number, signal: AbortSignal | undefined): Promise<void> {
    const { path } = this.#owner
    return new Promise((resolve, reject) => {
      const settle = (error?: TroupeError) => {
        clearTimeout(timer)
        signal?.removeEventListener('abort', onAbort)
        if (error) reject(error)
        else resolve()
      }
      const admitted = () => {
        settle()
        this.#owner.arrived(envelope)
      }
      const leave = this.mailbox.wait(envelope, admitted, settle)
      const giveUp = (error: TroupeError) => {
        if (leave) leave()
        settle(error)
      }
      const onAbort = () => giveUp(aborted(path, signal))
      const timer = setTimeout(
        () => giveUp(actorError('actor.tell_timeout', path, `had no room in its mailbox within ${deadlineMs} ms`)),
        deadlineMs,
      )
      signal?.addEventListener('abort', onAbort, { once: true })
      if (leave) return
      const { capacity, maxWaiting } = this.mailbox
      const text = `has ${capacity} messages in its mailbox and ${maxWaiting} senders waiting for room`
      settle(actorError('actor.overloaded', path, text, { hint: 'await each tell or ask before sending more' }))
    })
  }
}
