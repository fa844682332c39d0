/**
 * Generates random numbers by a published specification, so that a recorded seed gives the same draws anywhere.
 *
 * in   a uint32 seed            out  uniform numbers, draws by share, samples without replacement
 * The generator is PCG32 (XSH-RR 64/32; M. E. O'Neill, "PCG: A Family of Simple Fast Space-Efficient Statistically Good
 * Algorithms for Random Number Generation", 2014), seeded by its `srandom(seed, 54)`. Facts name it by `generatorName`.
 */

/**
 * Name of the generator in facts' `generator` field. It stands for this file's stream (54), conversion to floats, and
 * order of draws.
 */
export const generatorName = 'pcg32'

export interface Random {
  /** Returns the generator's next output, an integer in [0, 2^32). */
  uint32(): number
  /** Returns a uniform number in [0, 1) with 53 random bits, from two outputs: ((a >>> 5)·2^26 + (b >>> 6)) / 2^53. */
  uniform(): number
  /**
   * Returns a uniform integer in [0, n) without bias: outputs below 2^32 mod n are discarded. @throws RangeError unless
   * n is an integer from 1 to 2^32
   */
  below(n: number): number
}

const mask64 = (1n << 64n) - 1n
const multiplier = 6364136223846793005n

/** Creates a generator seeded with `seed` in [0, 2^32) on `stream`. @throws RangeError on any other seed */
export function pcg32(seed: number, stream = 54): Random {
  if (!Number.isInteger(seed) || seed < 0 || seed > 0xffffffff) {
    throw new RangeError(`cannot seed the generator with ${seed}; expected an integer in [0, 2^32)`)
  }
  const increment = ((BigInt(stream) << 1n) | 1n) & mask64
  let state = 0n
  const uint32 = (): number => {
    const old = state
    state = (old * multiplier + increment) & mask64
    const shifted = Number((((old >> 18n) ^ old) >> 27n) & 0xffffffffn)
    const rotation = Number(old >> 59n)
    return ((shifted >>> rotation) | (shifted << (-rotation & 31))) >>> 0
  }
  uint32()
  state = (state + BigInt(seed)) & mask64
  uint32()
  return {
    uint32,
    uniform: () => ((uint32() >>> 5) * 0x4000000 + (uint32() >>> 6)) / 0x20000000000000,
    below(n) {
      if (!Number.isInteger(n) || n < 1 || n > 0x100000000)
        throw new RangeError(`cannot draw an integer below ${n}; expected n to be an integer from 1 to 2^32`)
      const threshold = 0x100000000 % n
      for (;;) {
        const drawn = uint32()
        if (drawn >= threshold) return drawn % n
      }
    },
  }
}

/**
 * Draws `count` of `items` without replacement. Each draw takes one `uniform` and picks an item with probability weight
 * / (sum of the remaining weights), over the items in the given order.
 * @returns the items in the order in which they were drawn
 * @throws RangeError on a weight that is not positive and finite, or if there are fewer than `count` items
 */
export function sampleWeighted<T>(
  random: Random,
  items: readonly T[],
  weightOf: (item: T) => number,
  count: number,
): readonly T[] {
  checkCount(items, count)
  const left = items.map(item => ({ item, weight: weightOf(item) }))
  for (const { weight } of left) {
    if (!(weight > 0 && Number.isFinite(weight)))
      throw new RangeError(`cannot sample: a weight is ${weight}; expected a positive finite number`)
  }
  const drawn: T[] = []
  while (drawn.length < count) {
    // Sums the remaining weights anew for each draw: a running difference would lose small weights beside large ones.
    const total = left.reduce((sum, entry) => sum + entry.weight, 0)
    let remaining = random.uniform() * total
    let chosen = left.length - 1
    for (let i = 0; i < left.length; i++) {
      remaining -= left[i]!.weight
      if (remaining < 0) {
        chosen = i
        break
      }
    }
    drawn.push(left.splice(chosen, 1)[0]!.item)
  }
  return drawn
}

/**
 * Draws `count` of `items` without replacement, all subsets equally likely: a partial Fisher-Yates shuffle, one `below`
 * per draw.
 */
export function sampleUniform<T>(random: Random, items: readonly T[], count: number): readonly T[] {
  checkCount(items, count)
  const left = [...items]
  for (let i = 0; i < count; i++) {
    const j = i + random.below(left.length - i)
    const chosen = left[j]!
    left[j] = left[i]!
    left[i] = chosen
  }
  return left.slice(0, count)
}

/** Draws a key with a probability in proportion to its share, by one `uniform`; shares need not add up to 1. */
export function drawByShare<K extends string>(random: Random, shares: Readonly<Record<K, number>>): K {
  const keys = Object.keys(shares) as K[]
  let remaining = random.uniform() * keys.reduce((sum, key) => sum + shares[key], 0)
  for (const key of keys) {
    remaining -= shares[key]
    if (remaining < 0) return key
  }
  return keys[keys.length - 1]!
}

function checkCount(items: readonly unknown[], count: number): void {
  if (!Number.isInteger(count) || count < 0 || count > items.length) {
    throw new RangeError(`cannot draw ${count} items without replacement from ${items.length}`)
  }
}
