/**
 * A bounded queue with credits: room is given back when a message is done with, not when it is taken out.
 *
 * in   offers of messages, each at once or waiting for room      out  the same messages, first come first served
 * Invariant: never more than `capacity` messages are in it, never more than `maxWaiting` wait, and no offer overtakes one
 * that waits.
 */
import type { TroupeError } from '../errors'

interface Waiter<E> {
  readonly envelope: E
  readonly admitted: () => void
  readonly refused: (error: TroupeError) => void
}

export class Mailbox<E> {
  /** A ring; its length is a power of two, so that an index is masked. Grows up to the capacity. */
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

  /** Takes the envelope in, unless there is no room or someone waits for it. */
  offer(envelope: E): boolean {
    if (this.#size >= this.capacity || this.#waiters.size > 0) return false
    this.#push(envelope)
    return true
  }

  /**
   * Puts the envelope in line; one of the callbacks runs, unless it leaves the line first. Returns what takes it out, or
   * false where too many wait.
   */
  wait(envelope: E, admitted: () => void, refused: (error: TroupeError) => void): (() => void) | false {
    if (this.#waiters.size >= this.maxWaiting) return false
    const waiter = { envelope, admitted, refused }
    this.#waiters.add(waiter)
    return () => this.#waiters.delete(waiter)
  }

  /** The oldest message. It keeps its place until `done`. */
  peek(): E | undefined {
    return this.#ring[this.#head]
  }

  /** The oldest message is done with: its credit goes to whoever waits longest. */
  done(): void {
    this.#ring[this.#head] = undefined
    this.#head = (this.#head + 1) & (this.#ring.length - 1)
    this.#size--
    if (this.#waiters.size > 0) this.#admit()
  }

  /** Empties it, and refuses all that wait with `error`. Returns both, the oldest first. */
  clear(error: TroupeError): E[] {
    const left: E[] = []
    for (let i = 0; i < this.#size; i++) left.push(this.#ring[(this.#head + i) & (this.#ring.length - 1)] as E)
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
