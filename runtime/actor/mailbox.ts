/**
 * A bounded queue with back-pressure: a message occupies its place until it has been handled, not only until it is
 * taken out.
 *
 * in   offers of messages, each at once or waiting for room      out  the same messages, first come first served
 * Invariant: the queue holds at most `capacity` messages, at most `maxWaiting` senders wait, and no offer overtakes a
 * waiting sender.
 */
import type { TroupeError } from '../errors'

interface Waiter<E> {
  readonly envelope: E
  readonly admitted: () => void
  readonly refused: (error: TroupeError) => void
}

export class Mailbox<E> {
  /**
   * Ring buffer whose length is a power of two, so that an index is computed by masking. It doubles when it is full;
   * its length may exceed the capacity.
   */
  #ring: (E | undefined)[] = new Array(16)
  #head = 0
  #size = 0
  readonly #waiters = new Set<Waiter<E>>()

  constructor(
    readonly capacity: number,
    readonly maxWaiting: number,
  ) {}

  get depth(): number {
    return this.#size
  }

  get waiting(): number {
    return this.#waiters.size
  }

  /** Accepts the envelope; returns false when there is no room or a sender already waits for room. */
  offer(envelope: E): boolean {
    if (this.#size >= this.capacity || this.#waiters.size > 0) return false
    this.#push(envelope)
    return true
  }

  /**
   * Queues the sender of the envelope until there is room: then `admitted` is called; if the mailbox is cleared before,
   * `refused`. Returns a function by which the sender gives up (neither is called then), or false when `maxWaiting`
   * senders wait already.
   */
  wait(envelope: E, admitted: () => void, refused: (error: TroupeError) => void): (() => void) | false {
    if (this.#waiters.size >= this.maxWaiting) return false
    const waiter = { envelope, admitted, refused }
    this.#waiters.add(waiter)
    return () => this.#waiters.delete(waiter)
  }

  /** Returns the oldest message, which still occupies its place until `done`; undefined when the queue is empty. */
  peek(): E | undefined {
    return this.#ring[this.#head]
  }

  /**
   * Removes the oldest message; then accepts the message of the sender that has waited longest, if any sender waits.
   */
  done(): void {
    this.#ring[this.#head] = undefined
    this.#head = (this.#head + 1) & (this.#ring.length - 1)
    this.#size--
    if (this.#waiters.size > 0) this.#admit()
  }

  /** Returns the accepted messages, oldest first. */
  contents(): E[] {
    return Array.from({ length: this.#size }, (_, i) => this.#ring[(this.#head + i) & (this.#ring.length - 1)] as E)
  }

  /**
   * Empties the queue, and refuses all waiting senders with `error`. Returns the accepted and the waiting messages,
   * oldest first.
   */
  clear(error: TroupeError): E[] {
    const left = this.contents()
    const waiters = [...this.#waiters]
    this.#ring = new Array(16)
    this.#head = 0
    this.#size = 0
    this.#waiters.clear()
    for (const waiter of waiters) waiter.refused(error)
    return [...left, ...waiters.map(waiter => waiter.envelope)]
  }

  #admit(): void {
    const [waiter] = this.#waiters
    if (!waiter) return
    this.#waiters.delete(waiter)
    this.#push(waiter.envelope)
    waiter.admitted()
  }

  #push(envelope: E): void {
    if (this.#size === this.#ring.length) this.#grow()
    this.#ring[(this.#head + this.#size) & (this.#ring.length - 1)] = envelope
    this.#size++
  }

  #grow(): void {
    const old = this.#ring
    this.#ring = new Array(old.length * 2)
    for (let i = 0; i < this.#size; i++) this.#ring[i] = old[(this.#head + i) & (old.length - 1)]
    this.#head = 0
  }
}
