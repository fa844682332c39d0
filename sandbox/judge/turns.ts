/**
 * Turns: takes from many sources in turn, one thing from each, so that a flood from one does not delay the others.
 *
 * in   sources, added when they have something      out  what the next source in turn gives
 * Invariant: a round takes once from every source that has something. One that comes in the middle of a round is next
 * or next but one, but such ones get at most every second turn, so that the round ends however many come. Turns are a
 * source themselves: addresses of connections of requests.
 */
export interface Source<T> {
  /** The next thing, or undefined where there is none now. */
  take(): T | undefined
}

export class Turns<T> implements Source<T> {
  readonly #listed = new Set<Source<T>>()
  /** Came in this round. */
  #fresh = new Line<Source<T>>()
  /** Have their turn in this round, and had it. */
  #current = new Line<Source<T>>()
  #served = new Line<Source<T>>()
  #freshIsNext = false

  /** Says that the source may have something. Adding one that is listed already changes nothing. */
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
      // A new round: those that came during the last one first.
      const served = this.#served
      this.#served = new Line()
      this.#current = this.#fresh
      this.#fresh = new Line()
      for (let source = served.shift(); source; source = served.shift()) this.#current.push(source)
    }
    return (this.#freshIsNext ? this.#fresh.shift() : undefined) ?? this.#current.shift()
  }
}

/** First in, first out, without moving what stands in it. It lives for a round, so what was taken need not be freed. */
class Line<T> {
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
