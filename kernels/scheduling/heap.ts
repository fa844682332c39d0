/**
 * Binary heap that can remove items from its middle, since each item knows its index.
 *
 * in   items and their order        out  the least item by `compare`, first
 * `compare` must never return 0 for two different items, so that the order of insertion has no effect on the result.
 * Invariant: push, pop and remove are O(log n).
 */
export interface HeapItem {
  /** Index of the item in the heap that holds it; −1 outside a heap. Only the heap writes it. */
  heapIndex: number
}

export class Heap<T extends HeapItem> {
  private readonly items: T[] = []

  constructor(private readonly compare: (a: T, b: T) => number) {}

  get size(): number {
    return this.items.length
  }

  peek(): T | undefined {
    return this.items[0]
  }

  push(item: T): void {
    this.items.push(item)
    this.up(item, this.items.length - 1)
  }

  pop(): T | undefined {
    const first = this.items[0]
    if (first !== undefined) this.remove(first)
    return first
  }

  /** Removes an item. @throws RangeError on an item that is not in this heap */
  remove(item: T): void {
    const at = item.heapIndex
    if (this.items[at] !== item) throw new RangeError('the item is not in this heap')
    item.heapIndex = -1
    const last = this.items.pop()!
    if (last === item) return
    this.up(last, at)
    if (last.heapIndex === at) this.down(last, at)
  }

  /** All items of the heap, in no particular order. */
  values(): IterableIterator<T> {
    return this.items.values()
  }

  private up(item: T, at: number): void {
    while (at > 0) {
      const parent = (at - 1) >> 1
      const other = this.items[parent]!
      if (this.compare(item, other) >= 0) break
      this.place(other, at)
      at = parent
    }
    this.place(item, at)
  }

  private down(item: T, at: number): void {
    const half = this.items.length >> 1
    while (at < half) {
      let child = 2 * at + 1
      const right = child + 1
      if (right < this.items.length && this.compare(this.items[right]!, this.items[child]!) < 0) child = right
      const other = this.items[child]!
      if (this.compare(item, other) <= 0) break
      this.place(other, at)
      at = child
    }
    this.place(item, at)
  }

  private place(item: T, at: number): void {
    this.items[at] = item
    item.heapIndex = at
  }
}
