/**
 * Divides sequences into micro-batches under a token budget, and over ranks so that each has about as many tokens.
 *
 * in   sequence lengths, in the order in which they are to be trained on        out  indices into them
 * Invariant: every index stands in exactly one part; the same lengths give the same parts.
 */
import { Heap } from './scheduling/heap'

export interface MicroBatch {
  /** Indices into the lengths given, ascending. */
  readonly sequences: readonly number[]
  /** What the batch costs, by the measure asked for. */
  readonly tokens: number
}

export interface PackingOptions {
  readonly maxTokens: number
  /** sum: sequences are laid end to end. padded: all as long as the longest of their batch. Default sum. */
  readonly measure?: 'sum' | 'padded'
}

/**
 * Consecutive sequences, as many as fit. A sequence longer than the budget gets a batch of its own, whose `tokens` say
 * so: it can be neither split nor left out. Throws RangeError on a length that is none.
 */
export function packConsecutive(lengths: readonly number[], options: PackingOptions): readonly MicroBatch[] {
  checkCounts(lengths)
  if (!(options.maxTokens > 0)) throw new RangeError(`a budget of ${options.maxTokens} tokens`)
  const batches: MicroBatch[] = []
  let sequences: number[] = []
  let tokens = 0
  let longest = 0
  lengths.forEach((length, i) => {
    const cost = costOf(sequences.length + 1, tokens + length, Math.max(longest, length))
    if (sequences.length > 0 && cost > options.maxTokens) {
      batches.push({ sequences, tokens: costOf(sequences.length, tokens, longest) })
      sequences = []
      tokens = 0
      longest = 0
    }
    sequences.push(i)
    tokens += length
    longest = Math.max(longest, length)
  })
  if (sequences.length > 0) batches.push({ sequences, tokens: costOf(sequences.length, tokens, longest) })
  return batches

  function costOf(count: number, sum: number, max: number): number {
    return options.measure === 'padded' ? count * max : sum
  }
}

interface Partition {
  /** By falling sum: what is merged is the largest with the smallest. */
  readonly parts: readonly { readonly sequences: readonly number[]; readonly tokens: number }[]
  readonly spread: number
  readonly first: number
}

/**
 * Divides sequences over `ranks` parts of nearly equal sums: Karmarkar and Karp's largest differencing method, k-way.
 * Parts are ordered by their smallest index, their indices ascending; with fewer sequences than ranks some are empty.
 */
export function balanceOverRanks(lengths: readonly number[], ranks: number): readonly MicroBatch[] {
  checkCounts(lengths)
  if (!Number.isInteger(ranks) || ranks < 1) throw new RangeError(`cannot divide over ${ranks} ranks`)
  const empty = { sequences: [], tokens: 0 }
  const heap = new Heap<{ heapIndex: number; readonly partition: Partition }>(
    (a, b) => b.partition.spread - a.partition.spread || a.partition.first - b.partition.first,
  )
  lengths.forEach((tokens, i) => {
    const parts = [{ sequences: [i], tokens }, ...Array.from({ length: ranks - 1 }, () => empty)]
    heap.push({ heapIndex: -1, partition: partitionOf(parts, i) })
  })
  for (;;) {
    const a = heap.pop()?.partition
    if (!a) return Array.from({ length: ranks }, () => empty)
    const b = heap.pop()?.partition
    if (!b) return ordered(a)
    const merged = a.parts.map((part, i) => {
      const other = b.parts[ranks - 1 - i]!
      return { sequences: [...part.sequences, ...other.sequences], tokens: part.tokens + other.tokens }
    })
    heap.push({ heapIndex: -1, partition: partitionOf(merged, Math.min(a.first, b.first)) })
  }
}

function partitionOf(parts: Partition['parts'], first: number): Partition {
  const falling = [...parts].sort((a, b) => b.tokens - a.tokens)
  return { parts: falling, spread: falling[0]!.tokens - falling[falling.length - 1]!.tokens, first }
}

function ordered({ parts }: Partition): readonly MicroBatch[] {
  return parts
    .map(({ sequences, tokens }) => ({ sequences: [...sequences].sort((a, b) => a - b), tokens }))
    .sort((a, b) => (a.sequences[0] ?? Infinity) - (b.sequences[0] ?? Infinity) || 0)
}

function checkCounts(lengths: readonly number[]): void {
  lengths.forEach((length, i) => {
    if (!Number.isInteger(length) || length < 0) throw new RangeError(`sequence ${i} has a length of ${length}`)
  })
}
