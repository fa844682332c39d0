/**
 * Chooses the partition of a key as Kafka's default partitioner does: murmur2 of the key's UTF-8 bytes, sign bit
 * dropped, modulo the partition count.
 *
 * Invariant: a key has the same partition on every driver, so a log can be moved to Kafka and keeps its order.
 * Source: the hash is Austin Appleby's MurmurHash2 with Kafka's seed 0x9747b28c.
 */
const seed = 0x9747b28c
const multiplier = 0x5bd1e995

/** Computes murmur2 of `bytes`, as a signed 32-bit integer. */
export function murmur2(bytes: Uint8Array): number {
  const length = bytes.length
  let hash = seed ^ length
  let i = 0
  for (; i + 4 <= length; i += 4) {
    let word = bytes[i]! | (bytes[i + 1]! << 8) | (bytes[i + 2]! << 16) | (bytes[i + 3]! << 24)
    word = Math.imul(word, multiplier)
    word = Math.imul(word ^ (word >>> 24), multiplier)
    hash = Math.imul(hash, multiplier) ^ word
  }
  const left = length - i
  if (left > 0) {
    for (let byte = left - 1; byte >= 0; byte--) hash ^= bytes[i + byte]! << (8 * byte)
    hash = Math.imul(hash, multiplier)
  }
  hash = Math.imul(hash ^ (hash >>> 13), multiplier)
  return hash ^ (hash >>> 15)
}

/** Returns the partition of `key` among `partitions` partitions. */
export function partitionOf(key: string, partitions: number): number {
  if (partitions === 1) return 0
  return (murmur2(Buffer.from(key, 'utf8')) & 0x7fffffff) % partitions
}
