/**
 * The stored form of consecutive records of one partition: those of one group commit, in chunks of up to 32 KiB; a
 * larger record is a chunk of its own.
 *
 * One put for each chunk instead of each record makes the log cheap: fewer B-tree inserts, and full pages.
 * Layout, little-endian: u8 version, u32 crc32 of all bytes after it and then of the chunk's key, f64 timestamp ms, u32
 * count; then for each record u32 bytes that follow, u24 bytes of strings, varint ms since the chunk's timestamp, u8
 * header count, varint lengths of the key and of each header's name and value in UTF-16 units, the strings as one UTF-8
 * text, the value. Version 1, which is still read, leaves the key out of the checksum.
 * Invariant: a chunk that decodes holds what was encoded, at the offsets where it was; any other bytes throw
 * `bus.corrupt`.
 */
import { crc32 } from 'node:zlib'
import { TroupeError } from '../../errors'
import type { BusRecord } from '../bus'
import type { PlacedRecord } from '../partitionedLog'
import { HeaderReader } from './headerReader'
import { offsetOf, recordKeyBytes } from './recordKey'

const version = 2
const versionWithoutKey = 1
const headBytes = 17
/**
 * Upper bound on the bytes of a chunk of several records: eight pages of lmdb less one page header, so that a full
 * chunk leaves no page half empty.
 */
const fullBytes = 8 * 4096 - 24

/** Size of the encoder's memory between commits, in bytes; memory that grew larger is freed. */
const keptBytes = 4 * 1024 * 1024

/** A record with the time of its append, ms since 1970. */
export interface StampedRecord {
  readonly record: PlacedRecord
  readonly timestamp: number
}

/** Upper bound on the bytes of `record` in a chunk. */
function bound(record: PlacedRecord): number {
  let characters = record.key.length
  let strings = 1
  for (const name in record.headers) {
    characters += name.length + record.headers[name]!.length
    strings += 2
  }
  return 20 + 5 * strings + 3 * characters + record.value.length
}

/** Encodes chunks one after the other into its own memory, which is reused after `reset`. */
export class ChunkWriter {
  private arena = Buffer.allocUnsafeSlow(keptBytes)
  private at = 0

  /** Allows the memory of earlier chunks to be overwritten. */
  reset(): void {
    this.at = 0
    if (this.arena.length > keptBytes) this.arena = Buffer.allocUnsafeSlow(keptBytes)
  }

  /**
   * Encodes as many of `records`, from index `from` on, as fit a chunk, at least one.
   * @param keyOf returns the key of a chunk that holds `count` records
   */
  encode(
    records: readonly StampedRecord[],
    from: number,
    keyOf: (count: number) => Buffer,
  ): { readonly bytes: Buffer; readonly key: Buffer; readonly count: number } {
    const start = this.at
    const timestamp = records[from]!.timestamp
    this.at += headBytes
    let count = 0
    for (let i = from; i < records.length; i++) {
      const { record } = records[i]!
      const most = bound(record)
      if (count > 0 && this.at - start + most > fullBytes) break
      if (this.at + most > this.arena.length) {
        if (count > 0) break
        this.grow(start, most)
        return this.encode(records, from, keyOf)
      }
      this.put(record, Math.max(0, Math.round(records[i]!.timestamp - timestamp)))
      count++
    }
    const bytes = this.arena.subarray(start, this.at)
    bytes[0] = version
    bytes.writeDoubleLE(timestamp, 5)
    bytes.writeUInt32LE(count, 13)
    const key = keyOf(count)
    bytes.writeUInt32LE(crc32(key, crc32(bytes.subarray(5))), 1)
    return { bytes, key, count }
  }

  /**
   * Allocates new memory, larger only if the chunk would not fit the present size from its start; earlier chunks keep
   * the old memory alive.
   */
  private grow(start: number, most: number): void {
    this.at = 0
    if (start === 0 || headBytes + most > this.arena.length) {
      this.arena = Buffer.allocUnsafeSlow(Math.max(2 * this.arena.length, headBytes + most))
    } else this.arena = Buffer.allocUnsafeSlow(this.arena.length)
  }

  private put(record: PlacedRecord, delta: number): void {
    const { arena } = this
    const start = this.at
    this.at += 7
    const { key, headers, value } = record
    let text = key
    this.varint(delta)
    const countAt = this.at++
    let headerCount = 0
    this.varint(key.length)
    for (const name in headers) {
      const header = headers[name]!
      this.varint(name.length)
      this.varint(header.length)
      text += name + header
      headerCount++
    }
    arena[countAt] = headerCount
    const textBytes = arena.write(text, this.at)
    this.at += textBytes
    arena.set(value, this.at)
    this.at += value.length
    arena.writeUInt32LE(this.at - start - 4, start)
    arena.writeUIntLE(textBytes, start + 4, 3)
  }

  private varint(value: number): void {
    let rest = value
    while (rest > 127) {
      this.arena[this.at++] = (rest & 127) | 128
      rest = Math.floor(rest / 128)
    }
    this.arena[this.at++] = rest
  }
}

const headerReader = new HeaderReader()
/** Lengths of the header names and values of the record that is being decoded. */
const lengths: number[] = []

/** Returns the time at which the first record of a chunk was appended, ms since 1970. */
export function chunkTimestamp(chunk: Buffer): number {
  return chunk.readDoubleLE(5)
}

function matches(chunk: Buffer, key: Buffer): boolean {
  if (chunk.length < headBytes || key.length !== recordKeyBytes) return false
  const body = crc32(chunk.subarray(5))
  const stored = chunk.readUInt32LE(1)
  return chunk[0] === version ? stored === crc32(key, body) : chunk[0] === versionWithoutKey && stored === body
}

/**
 * Decodes the records of a chunk from offset `from` on, at most `max`, into `out`. Returns the total bytes of their
 * values. Values are views into `chunk`, which the caller must own.
 * @param key of the chunk, which holds the offset of its last record
 * @throws TroupeError bus.corrupt
 */
export function decodeChunk(
  chunk: Buffer,
  topic: string,
  partition: number,
  key: Buffer,
  from: number,
  max: number,
  out: BusRecord[],
): number {
  const last = key.length === recordKeyBytes ? offsetOf(key) : Number.NaN
  if (!matches(chunk, key)) {
    throw new TroupeError('bus.corrupt', {
      boundary: 'bus',
      retriable: false,
      message: `the records of ${topic}/${partition} up to offset ${last} do not match their checksum`,
      hint: 'the disk or a copy of the directory changed bytes: restore the directory from an intact copy, or save what is before the damage with `troupe replay salvage RUN`',
    })
  }
  const base = chunkTimestamp(chunk)
  const count = chunk.readUInt32LE(13)
  let at = headBytes
  let valueBytes = 0
  const varint = (): number => {
    let byte = chunk[at++]!
    if (byte < 128) return byte
    let result = byte & 127
    for (let scale = 128; ; scale *= 128) {
      byte = chunk[at++]!
      result += (byte & 127) * scale
      if (byte < 128) return result
    }
  }
  for (let offset = last - count + 1; offset <= last && max > 0; offset++) {
    const end = at + 4 + chunk.readUInt32LE(at)
    if (offset >= from) {
      const textBytes = chunk.readUIntLE(at + 4, 3)
      at += 7
      const timestamp = base + varint()
      const headerCount = chunk[at++]!
      const keyLength = varint()
      for (let i = 0; i < 2 * headerCount; i++) lengths[i] = varint()
      const text = chunk.toString('utf8', at, at + textBytes)
      at += textBytes
      const value = new Uint8Array(chunk.buffer, chunk.byteOffset + at, end - at)
      const headers = headerReader.read(text, keyLength, lengths, headerCount)
      out.push({ topic, partition, offset, timestamp, key: text.substring(0, keyLength), headers, value })
      valueBytes += value.length
      max--
    }
    at = end
  }
  return valueBytes
}
