/**
 * Admits calls by memory: a call begins only if the memory reserved for all running calls together fits the machine or
 * its cgroup. A call's reserved memory is the memory limit that its request names, or 128 MiB if it names none.
 *
 * in   the reserved memory of a call that is about to begin, or that has ended
 * out  true if the call may begin now; a notice to waiting sandboxes when a call has ended; true if the kernel killed a
 *      process for lack of memory since a call began
 * Invariant: the reserved memory of running calls is at most `mostBytes` in all, except that one call may always run
 * alone. A call begins beside others only if the machine has the call's reserved memory free. The sandboxes of a
 * process that were opened without `machineMemoryMb` and `memory` share one budget.
 */
import { type MachineMemory, machineMemory } from './machineMemory'

/**
 * Upper bound on the memory reserved for all running calls, as a share of the memory; the rest is for this process,
 * zygotes, engines and page cache.
 */
const SHARE = 0.8
/** Age in ms up to which a reading of the machine's memory is used again: a reading takes 0.1 ms, a call about 1 ms. */
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

  /** Takes a call's reserved memory from the budget. Returns false, and takes nothing, if it does not fit now. */
  take(bytes: number): boolean {
    if (this.#taken > 0) {
      if (this.#taken + bytes > this.mostBytes || this.#free() < bytes) return false
    }
    this.#taken += bytes
    return true
  }

  /** Gives a call's reserved memory back to the budget, and calls the functions that were passed to `onGiven`. */
  give(bytes: number): void {
    this.#taken -= bytes
    for (const tell of [...this.#waiting]) tell()
  }

  /** Adds a listener that is called whenever memory returns to the budget. Returns the function that removes it. */
  onGiven(tell: () => void): () => void {
    this.#waiting.add(tell)
    return () => void this.#waiting.delete(tell)
  }

  /** Returns the number of kills for lack of memory, at most FRESH_MS old; read it before a call, for `killedSince`. */
  killsBefore(): number {
    const now = performance.now()
    if (now - this.#kills.at > FRESH_MS) this.#kills = { count: this.memory.kills(), at: now }
    return this.#kills.count
  }

  /**
   * True if the kernel has killed a process for lack of memory since `before` was read, which `killsBefore` returned.
   */
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

/** Returns the budget that all sandboxes of this process share, unless their options name another memory or bound. */
export function processBudget(): MemoryBudget {
  shared ??= new MemoryBudget()
  return shared
}
