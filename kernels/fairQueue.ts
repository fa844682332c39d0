/**
 * Round-robin queue that is fair between clients: it serves clients in turn, and each client's items in order.
 *
 * in   items with their client        out  items, one per waiting client in each round
 * Invariant: items of `pushFirst` are returned before all others. Of the others, while a client waits for its turn, the
 * queue returns at most one item of every other client. Every operation is O(1), except `clear`: O(all items of
 * `pushFirst` + items of the client).
 */
export class FairQueue<T> {
  /**
   * Waiting items by client, in the order in which clients are served; a served client moves to the end. No set is
   * empty.
   */
  readonly #clients = new Map<string, Set<T>>()
  /** Items put back by `pushFirst`, each with its client. */
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

  /**
   * Puts back an item that was taken before. The queue returns it before all clients' items, after items put back
   * earlier.
   */
  pushFirst(client: string, item: T): void {
    this.#first.set(item, client)
  }

  /** Returns the item that `take` would return, without removing it; undefined if the queue is empty. */
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

  /** Removes a client's item from the queue. Returns false if the item is not waiting. */
  remove(client: string, item: T): boolean {
    if (this.#first.delete(item)) return true
    const items = this.#clients.get(client)
    if (items === undefined || !items.delete(item)) return false
    this.#waiting--
    if (items.size === 0) this.#clients.delete(client)
    return true
  }

  /** Removes and returns all of a client's items. */
  clear(client: string): readonly T[] {
    const first = [...this.#first].filter(([, of]) => of === client).map(([item]) => item)
    for (const item of first) this.#first.delete(item)
    const items = [...(this.#clients.get(client) ?? [])]
    this.#clients.delete(client)
    this.#waiting -= items.length
    return [...first, ...items]
  }
}
