/**
 * Writes and reads a column file: a JSON header, then arrays of numbers and texts by name, each readable without the
 * others.
 *
 * in   a header, columns        out  bytes; and back, as views of the bytes, which are copied only if not aligned to 8
 * Layout: 8 bytes magic, u32 format, u32 crc32 of everything after it, u32 length of the header in bytes, the header,
 * then the columns that it names, each aligned to 8 bytes, little-endian. A list of byte strings takes two columns,
 * `.ends` and `.bytes`; a dictionary takes three: the number of each row's word, and the list of its words.
 * Invariant: bytes with another magic or format, too few bytes, or a wrong checksum, are read as undefined.
 */
import { crc32 } from 'node:zlib'

export type Column = Uint8Array | Uint32Array | Float64Array

export interface ColumnKind {
  /** The file's first 8 characters, which identify its kind. */
  readonly magic: string
  readonly format: number
}

export interface ColumnFile<H> {
  readonly head: H
  readonly u8: (name: string) => Uint8Array
  readonly u32: (name: string) => Uint32Array
  readonly f64: (name: string) => Float64Array
  readonly lists: (name: string) => (index: number) => Uint8Array
  readonly strings: (name: string) => (index: number) => string
  /** Returns a function from row index to word, for the dictionary column `name`. */
  readonly words: (name: string) => (index: number) => string
}

const headAt = 20

export function writeColumns(
  { magic, format }: ColumnKind,
  head: object,
  columns: Readonly<Record<string, Column>>,
): Buffer {
  const directory: Record<string, { at: number; length: number }> = {}
  let end = 0
  for (const [name, column] of Object.entries(columns)) {
    directory[name] = { at: end, length: column.length }
    end += padded(column.byteLength)
  }
  const headBytes = Buffer.from(JSON.stringify({ ...head, directory }))
  const bodyAt = padded(headAt + headBytes.length)
  const bytes = Buffer.alloc(bodyAt + end)
  bytes.write(magic, 0, 'latin1')
  bytes.writeUInt32LE(format, 8)
  bytes.writeUInt32LE(headBytes.length, 16)
  headBytes.copy(bytes, headAt)
  for (const [name, column] of Object.entries(columns)) {
    bytes.set(new Uint8Array(column.buffer, column.byteOffset, column.byteLength), bodyAt + directory[name]!.at)
  }
  bytes.writeUInt32LE(crc32(bytes.subarray(16)), 12)
  return bytes
}

export function readColumns<H>({ magic, format }: ColumnKind, given: Buffer): ColumnFile<H> | undefined {
  if (given.length < headAt || given.toString('latin1', 0, 8) !== magic || given.readUInt32LE(8) !== format) {
    return undefined
  }
  if (crc32(given.subarray(16)) !== given.readUInt32LE(12)) return undefined
  const bytes = given.byteOffset % 8 === 0 ? given : Buffer.from(new Uint8Array(given).buffer)
  const headLength = bytes.readUInt32LE(16)
  const { directory, ...head } = JSON.parse(bytes.toString('utf8', headAt, headAt + headLength)) as {
    readonly directory: Readonly<Record<string, { readonly at: number; readonly length: number }>>
  }
  const bodyAt = bytes.byteOffset + padded(headAt + headLength)
  const placed = <T>(name: string, make: new (buffer: ArrayBuffer, at: number, length: number) => T): T => {
    const { at, length } = directory[name]!
    return new make(bytes.buffer as ArrayBuffer, bodyAt + at, length)
  }
  const u8 = (name: string) => placed(name, Uint8Array)
  const u32 = (name: string) => placed(name, Uint32Array)
  const f64 = (name: string) => placed(name, Float64Array)
  const lists = (name: string) => {
    const [ends, packed] = [u32(`${name}.ends`), u8(`${name}.bytes`)]
    return (i: number): Uint8Array => packed.subarray(i === 0 ? 0 : ends[i - 1]!, ends[i]!)
  }
  const strings = (name: string) => {
    const [ends, packed] = [u32(`${name}.ends`), bytesOf(u8(`${name}.bytes`))]
    return (i: number): string => packed.toString('utf8', i === 0 ? 0 : ends[i - 1]!, ends[i]!)
  }
  const words = (name: string) => {
    const [text, chosen] = [strings(`${name}.words`), u32(name)]
    const known: string[] = []
    return (i: number): string => (known[chosen[i]!] ??= text(chosen[i]!))
  }
  return { head: head as H, u8, u32, f64, lists, strings, words }
}

/** Returns a Buffer over the same memory as the typed array. */
export const bytesOf = ({ buffer, byteOffset, byteLength }: Uint8Array): Buffer =>
  Buffer.from(buffer as ArrayBuffer, byteOffset, byteLength)

export function listColumn(name: string, items: readonly Uint8Array[]): Record<string, Column> {
  let end = 0
  const ends = Uint32Array.from(items, item => {
    end += item.length
    return end
  })
  return { [`${name}.ends`]: ends, [`${name}.bytes`]: Buffer.concat(items) }
}

export const stringColumn = (name: string, texts: readonly string[]) =>
  listColumn(
    name,
    texts.map(text => Buffer.from(text)),
  )

export function dictionary(name: string, texts: readonly string[]): Record<string, Column> {
  const words = new Map<string, number>()
  for (const text of texts) if (!words.has(text)) words.set(text, words.size)
  return { ...stringColumn(`${name}.words`, [...words.keys()]), [name]: Uint32Array.from(texts, t => words.get(t)!) }
}

const padded = (bytes: number): number => Math.ceil(bytes / 8) * 8
