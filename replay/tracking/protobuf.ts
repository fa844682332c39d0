/** Writes fields of protobuf messages: varints, fixed numbers, texts, nested messages. */

export function varint(value: number): Buffer {
  const out: number[] = []
  let rest = BigInt(value)
  do {
    const low = Number(rest & 127n)
    rest >>= 7n
    out.push(rest === 0n ? low : low | 128)
  } while (rest !== 0n)
  return Buffer.from(out)
}

/** A field with its wire type: 0 varint, 1 eight bytes, 2 a length and bytes, 5 four bytes. */
export const field = (number: number, wire: 0 | 1 | 2 | 5, value: Uint8Array): Buffer =>
  Buffer.concat([varint((number << 3) | wire), wire === 2 ? varint(value.length) : Buffer.alloc(0), value])

export const bytes = (number: number, value: Uint8Array): Buffer => field(number, 2, value)
export const text = (number: number, value: string): Buffer => field(number, 2, Buffer.from(value))
export const message = (number: number, ...parts: readonly Buffer[]): Buffer => field(number, 2, Buffer.concat(parts))

export function double(value: number): Buffer {
  const out = Buffer.alloc(8)
  out.writeDoubleLE(value)
  return out
}

export function float(value: number): Buffer {
  const out = Buffer.alloc(4)
  out.writeFloatLE(value)
  return out
}

export function fixed64(value: bigint): Buffer {
  const out = Buffer.alloc(8)
  out.writeBigUInt64LE(value)
  return out
}
