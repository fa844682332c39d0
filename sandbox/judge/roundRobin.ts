/**
 * RoundRobin: takes one item from each of many sources in turn, so that a flood from one does not delay the others.
 *
 * in   sources, added when they have an item      out  the item of the next source in turn
 * Invariant: a round takes one item from every source that has one. Sources added during a round get every second turn
 * while there are any: the first of them comes next or next but one, and the round ends however many are added. A
 * RoundRobin is itself a source, so they nest: addresses, their connections, those connections' requests.
 */
export interface Source<T> {
  /** Returns the source's next item; undefined if it has none now. */
  take(): T | undefined
}

export class RoundRobin<T> implements Source<T> {
  readonly #listed = new Set<Source<T>>()
  /** Sources that were added during the present round. */
  #fresh = new Fifo<Source<T>>()
  /** Sources whose turn is still to come in this round; `#served` holds the sources whose turn is over. */
  #current = new Fifo<Source<T>>()
  #served = new Fifo<Source<T>>()
  #freshIsNext = false

  /** Adds a source that may have an item. Adding a source that is still listed changes nothing. */
  add(source: Source<T>): void {
    if (this.#listed.has(source)) return
    this.#listed.add(source)
    this.#fresh.push(source)
  }

  take(): T | undefined {
    for (let source = this.#next(); source; source = this.#next()) {
      const taken = source.take()
      if (taken !== undefined) {
        this.#served.push(source)
        this.#freshIsNext = !this.#freshIsNext
        return taken
      }
      this.#listed.delete(source)
    }
    return undefined
  }

  #next(): Source<T> | undefined {
    if (this.#current.isEmpty) {
      // A new round begins: sources added during the last round come first.
      const served = this.#served
      this.#served = new Fifo()
      this.#current = this.#fresh
      this.#fresh = new Fifo()
      for (let source = served.shift(); source; source = served.shift()) this.#current.push(source)
    }
    return (this.#freshIsNext ? this.#fresh.shift() : undefined) ?? this.#current.shift()
  }
}

/** Queue that never moves its items. It lives for one round, so the slots of taken items need not be freed. */
class Fifo<T> {
  #items: (T | undefined)[] = []
  #head = 0

  get isEmpty(): boolean {
    return this.#head === this.#items.length
  }

  push(item: T): void {
    this.#items.push(item)
  }

  shift(): T | undefined {
    if (this.isEmpty) return undefined
    const item = this.#items[this.#head]
    this.#items[this.#head++] = undefined
    return item
  }
}
