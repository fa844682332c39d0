/**
 * TFRecord frames, and TensorBoard's events in them.
 *
 * in   events: a time, a step, values by tag        out  bytes of an event file; and back, as far as a file is whole
 * Layout of a frame: u64 length, u32 masked CRC-32C of the length, the bytes, u32 masked CRC-32C of the bytes;
 * little-endian.
 * An event is the protobuf message `tensorflow.Event` with wall_time (1), step (2), file_version (3) or summary (5).
 * Invariant: what `framesOf` returns was written whole: it stops at the first frame that is cut off or damaged.
 */
import { double, field, float, message, text, varint } from './protobuf'

const table = Uint32Array.from({ length: 256 }, (_, n) => {
  let c = n
  for (let k = 0; k < 8; k++) c = c & 1 ? 0x82f63b78 ^ (c >>> 1) : c >>> 1
  return c >>> 0
})

/** CRC-32C (Castagnoli) of bytes. */
export function crc32c(bytes: Uint8Array): number {
  let c = 0xffffffff
  for (const byte of bytes) c = table[(c ^ byte) & 255]! ^ (c >>> 8)
  return (c ^ 0xffffffff) >>> 0
}

const masked = (bytes: Uint8Array): number => {
  const crc = crc32c(bytes)
  return (((crc >>> 15) | (crc << 17)) + 0xa282ead8) >>> 0
}

export function frame(data: Uint8Array): Buffer {
  const out = Buffer.alloc(data.length + 16)
  out.writeBigUInt64LE(BigInt(data.length), 0)
  out.writeUInt32LE(masked(out.subarray(0, 8)), 8)
  out.set(data, 12)
  out.writeUInt32LE(masked(data), 12 + data.length)
  return out
}

/**
 * Returns a file's frames up to the first one that is cut off or damaged. `end`: number of bytes that these frames
 * take.
 */
export function framesOf(file: Buffer): { readonly frames: readonly Buffer[]; readonly end: number } {
  const frames: Buffer[] = []
  let end = 0
  while (file.length - end >= 16) {
    const head = file.subarray(end, end + 8)
    if (file.readUInt32LE(end + 8) !== masked(head)) break
    const length = Number(head.readBigUInt64LE(0))
    if (file.length - end - 16 < length) break
    const data = file.subarray(end + 12, end + 12 + length)
    if (file.readUInt32LE(end + 12 + length) !== masked(data)) break
    frames.push(data)
    end += 16 + length
  }
  return { frames, end }
}

/** Encodes the first event of every file, which names the version of the event format. */
export const versionEvent = (at: number): Buffer =>
  Buffer.concat([field(1, 1, double(at / 1000)), text(3, 'brain.Event:2')])

/** An event with scalars and texts by tag. `at`: ms since 1970. */
export function event(
  at: number,
  step: number,
  values: Readonly<Record<string, number>>,
  texts: Readonly<Record<string, string>> = {},
): Buffer {
  const scalars = Object.entries(values).map(([tag, value]) => message(1, text(1, tag), field(2, 5, float(value))))
  // A text is a tensor of type DT_STRING (7) with one element, for the plugin `text`.
  const shape = message(2, message(2, field(1, 0, varint(1))))
  const written = Object.entries(texts).map(([tag, value]) =>
    message(
      1,
      text(1, tag),
      message(8, field(1, 0, varint(7)), shape, text(8, value)),
      message(9, message(1, text(1, 'text'))),
    ),
  )
  return Buffer.concat([field(1, 1, double(at / 1000)), field(2, 0, varint(step)), message(5, ...scalars, ...written)])
}
