/**
 * Packs positions in a log into few bytes: an index holds one position for each fact of the run.
 *
 * in   partition and offset, in pairs        out  bytes; and back
 * Invariant: unpacking returns the packed pairs in their order. Truncated bytes unpack to some positions and never
 * throw.
 */
import type { Places } from './rows'

/**
 * Packs each pair as one or two variable-length integers of 7 bits a byte. The first holds the difference to the
 * previous offset, its sign, and whether the partition changed; if it did, the second is the partition.
 */
export function packPlaces(places: Places): Uint8Array {
  const bytes: number[] = []
  const put = (value: number): void => {
    let rest = value
    while (rest > 127) {
      bytes.push((rest % 128) + 128)
      rest = Math.floor(rest / 128)
    }
    bytes.push(rest)
  }
  let [partition, offset] = [0, 0]
  for (let i = 0; i < places.length; i += 2) {
    const difference = places[i + 1]! - offset
    const signed = difference < 0 ? -2 * difference - 1 : 2 * difference
    put(signed * 2 + (places[i] === partition ? 0 : 1))
    if (places[i] !== partition) put(places[i]!)
    partition = places[i]!
    offset = places[i + 1]!
  }
  return Uint8Array.from(bytes)
}

export function unpackPlaces(bytes: Uint8Array): Places {
  const places: Places = []
  let at = 0
  const get = (): number => {
    let [value, scale] = [0, 1]
    for (;;) {
      const byte = bytes[at++] ?? 0
      value += (byte & 127) * scale
      if (byte < 128) return value
      scale *= 128
    }
  }
  let [partition, offset] = [0, 0]
  while (at < bytes.length) {
    const head = get()
    const signed = Math.floor(head / 2)
    if (head % 2 === 1) partition = get()
    offset += signed % 2 === 1 ? -(signed + 1) / 2 : signed / 2
    places.push(partition, offset)
  }
  return places
}
