/**
 * Admission by memory: calls begin only while the sum of their limits fits what the machine, or its cgroup, has.
 *
 * in   calls that want to begin, by the limit on their memory; calls that have ended
 * out  whether one may begin now; a word to those who wait when one has ended
 * Invariant: the limits of running calls are together at most `mostBytes`, unless one call alone is over it; and a call
 * begins beside others only while the machine has its limit free. All sandboxes of a process share one budget.
 */
import { type MachineMemory, machineMemory } from './machineMemory'

/** Share of the memory that calls may have together; the rest is for this process, zygotes, engines and page cache. */
const SHARE = 0.8
/** Age in ms up to which a reading of the machine's state is used again: reading takes 0.1 ms, a call 1 ms. */
const FRESH_MS = 100

export class MemoryBudget {
  readonly #waiting = new Set<() => void>()
  #taken = 0
  #available = { bytes: 0, at: Number.NEGATIVE_INFINITY }
  #kills = { count: 0, at: Number.NEGATIVE_INFINITY }

  constructor(
    private readonly memory: MachineMemory = machineMemory(),
    readonly mostBytes: number = SHARE * memory.totalBytes,
  ) {}

  /** Takes a call's limit from the budget. Returns false, and takes nothing, if it does not fit now. */
  take(bytes: number): boolean {
    if (this.#taken > 0) {
      if (this.#taken + bytes > this.mostBytes || this.#free() < bytes) return false
    }
    this.#taken += bytes
    return true
  }

  /** Gives a call's limit back, and tells those who wait. */
  give(bytes: number): void {
    this.#taken -= bytes
    for (const tell of [...this.#waiting]) tell()
  }

  /** Calls `tell` whenever a call gives its limit back, until the returned function is called. */
  onGiven(tell: () => void): () => void {
    this.#waiting.add(tell)
    return () => void this.#waiting.delete(tell)
  }

  /** Number of kills for lack of memory, at most FRESH_MS old: never later than now, as the mark of a call's beginning. */
  killsBefore(): number {
    const now = performance.now()
    if (now - this.#kills.at > FRESH_MS) this.#kills = { count: this.memory.kills(), at: now }
    return this.#kills.count
  }

  /** True if the kernel has killed for lack of memory since `killsBefore` said `before`. */
  killedSince(before: number): boolean {
    return this.memory.kills() > before
  }

  #free(): number {
    const now = performance.now()
    if (now - this.#available.at > FRESH_MS) this.#available = { bytes: this.memory.availableBytes(), at: now }
    return this.#available.bytes
  }
}

let shared: MemoryBudget | undefined

/** Returns the budget of this process. */
export function processBudget(): MemoryBudget {
  shared ??= new MemoryBudget()
  return shared
}
