/**
 * A queue that is fair between clients: it serves them in turn, each client's own items in their order.
 *
 * in   items, each of a client        out  items, one of each client that waits, round after round
 * Invariant: an item waits for at most one item of every other client for each of its own client's before it; what was
 * put first goes before all. Every operation takes constant time, but `clear`, which looks at what was put first.
 */
export class FairQueue<T> {
  /** In the order in which clients are served; a client that was served goes to the end. None is empty. */
  readonly #clients = new Map<string, Set<T>>()
  /** With the client of each. */
  readonly #first = new Map<T, string>()
  #waiting = 0

  get size(): number {
    return this.#waiting + this.#first.size
  }

  push(client: string, item: T): void {
    const items = this.#clients.get(client)
    if (items === undefined) this.#clients.set(client, new Set([item]))
    else items.add(item)
    this.#waiting++
  }

  /** For what had its turn already and comes back: it goes before all clients, behind what was put first earlier. */
  pushFirst(client: string, item: T): void {
    this.#first.set(item, client)
  }

  /** What `take` would return. */
  peek(): T | undefined {
    for (const item of this.#first.keys()) return item
    for (const items of this.#clients.values()) for (const item of items) return item
    return undefined
  }

  take(): T | undefined {
    for (const item of this.#first.keys()) {
      this.#first.delete(item)
      return item
    }
    for (const [client, items] of this.#clients) {
      this.#clients.delete(client)
      for (const item of items) {
        items.delete(item)
        this.#waiting--
        if (items.size > 0) this.#clients.set(client, items)
        return item
      }
    }
    return undefined
  }

  /** Takes one item away; false where it does not wait. */
  remove(client: string, item: T): boolean {
    if (this.#first.delete(item)) return true
    const items = this.#clients.get(client)
    if (items === undefined || !items.delete(item)) return false
    this.#waiting--
    if (items.size === 0) this.#clients.delete(client)
    return true
  }

  /** Takes all of a client's items away and returns them. */
  clear(client: string): readonly T[] {
    const first = [...this.#first].filter(([, of]) => of === client).map(([item]) => item)
    for (const item of first) this.#first.delete(item)
    const items = [...(this.#clients.get(client) ?? [])]
    this.#clients.delete(client)
    this.#waiting -= items.length
    return [...first, ...items]
  }
}
