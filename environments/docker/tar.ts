/**
 * Reads a tar stream (ustar, GNU long names, pax headers): lists its entries, and hashes the contents of files.
 *
 * in   a tar stream
 * out  its entries in order; to `onContent`, if it is given, the content of each file in parts, before the file's entry
 * Invariant: memory holds a chunk or two of the stream, and extended headers of at most 1 MiB each.
 */
import { isUtf8 } from 'node:buffer'
import { createHash } from 'node:crypto'
import type { Readable } from 'node:stream'

export interface TarEntry {
  /** Path in the archive, without a slash at its end. */
  readonly name: string
  readonly kind: 'file' | 'directory' | 'link' | 'hard' | 'other'
  readonly mode: number
  readonly uid: number
  readonly gid: number
  readonly size: number
  readonly link: string
  /** SHA-256 of a file's content. */
  readonly digest: string
  readonly device: string
}

const block = 512
const mostHeader = 1 << 20
const kinds: Readonly<Record<string, TarEntry['kind']>> = {
  '0': 'file',
  '\0': 'file',
  '1': 'hard',
  '2': 'link',
  '5': 'directory',
}

/** Yields a tar stream's entries. @param onContent gets a regular file's content, in parts, before its entry */
export async function* readTar(stream: Readable, onContent?: (part: Buffer) => void): AsyncGenerator<TarEntry> {
  const source = reader(stream)
  let extended: Record<string, string> = {}
  for (;;) {
    const head = await source.exactly(block)
    if (head === undefined || head.every(byte => byte === 0)) return
    const type = String.fromCharCode(head[156] as number)
    const size = Number(extended.size ?? numberIn(head, 124, 12))
    if (type === 'x' || type === 'L' || type === 'K') {
      if (size > mostHeader)
        throw new Error(`an extended header of ${size} bytes in a tar stream, expected at most ${mostHeader}`)
      const body = (await source.exactly(padded(size)))?.subarray(0, size)
      if (body === undefined) throw new Error('a tar stream ended early')
      if (type === 'x') extended = { ...extended, ...records(body) }
      else extended = { ...extended, [type === 'L' ? 'path' : 'linkpath']: textIn(body, 0, size) }
      continue
    }
    const sha = createHash('sha256')
    const kind = kinds[type] ?? 'other'
    let left = size
    while (left > 0) {
      const part = await source.some(left)
      if (part === undefined) throw new Error('a tar stream ended early')
      sha.update(part)
      if (kind === 'file') onContent?.(part)
      left -= part.length
    }
    if (padded(size) > size) await source.exactly(padded(size) - size)
    const prefix = textIn(head, 345, 155)
    const name = extended.path ?? `${prefix === '' ? '' : `${prefix}/`}${textIn(head, 0, 100)}`
    yield {
      ...{ name: name.replace(/\/+$/, ''), kind, mode: numberIn(head, 100, 8) & 0o7777, size },
      uid: Number(extended.uid ?? numberIn(head, 108, 8)),
      gid: Number(extended.gid ?? numberIn(head, 116, 8)),
      link: extended.linkpath ?? textIn(head, 157, 100),
      digest: kind === 'file' ? sha.digest('hex') : '',
      device: kind === 'other' ? `${type} ${numberIn(head, 329, 8)} ${numberIn(head, 337, 8)}` : '',
    }
    extended = {}
  }
}

const padded = (size: number) => Math.ceil(size / block) * block

function textIn(bytes: Buffer, at: number, length: number): string {
  const field = bytes.subarray(at, at + length)
  const end = field.indexOf(0)
  return nameOf(field.subarray(0, end < 0 ? length : end))
}

/**
 * Decodes a name as UTF-8. A name may be any bytes: those that are no UTF-8 become lone surrogates, as in Python's
 * `surrogateescape`, so that different names stay different.
 */
export function nameOf(bytes: Buffer): string {
  if (isUtf8(bytes)) return bytes.toString()
  let name = ''
  for (let at = 0; at < bytes.length; ) {
    let length = Math.min(4, bytes.length - at)
    while (length > 0 && !isUtf8(bytes.subarray(at, at + length))) length--
    name += length === 0 ? String.fromCharCode(0xdc00 + bytes[at]!) : bytes.toString('utf8', at, at + length)
    at += Math.max(length, 1)
  }
  return name
}

/** Reads a number of a header: octal text, or the base-256 form of numbers that do not fit. */
function numberIn(bytes: Buffer, at: number, length: number): number {
  if ((bytes[at] as number) & 0x80) return Number(bytes.subarray(at + 1, at + length).readUIntBE(length - 7, 6))
  return Number.parseInt(textIn(bytes, at, length).trim() || '0', 8)
}

/** Reads the records of a pax header, each `LENGTH NAME=VALUE\n`, as values by name. */
function records(body: Buffer): Record<string, string> {
  const found: Record<string, string> = {}
  for (let at = 0; at < body.length; ) {
    const space = body.indexOf(32, at)
    const length = Number(body.subarray(at, space).toString())
    if (!(length > 0)) break
    const [, name = '', value = ''] = /^([^=]*)=([\s\S]*)\n$/.exec(nameOf(body.subarray(space + 1, at + length))) ?? []
    found[name] = value
    at += length
  }
  return found
}

function reader(stream: Readable) {
  const parts = stream[Symbol.asyncIterator]() as AsyncIterator<Buffer>
  let rest: Buffer = Buffer.alloc(0)
  const fill = async () => {
    const { value, done } = await parts.next()
    if (done) return false
    rest = rest.length === 0 ? value : Buffer.concat([rest, value])
    return true
  }
  return {
    async exactly(size: number): Promise<Buffer | undefined> {
      while (rest.length < size) if (!(await fill())) return undefined
      const taken = rest.subarray(0, size)
      rest = rest.subarray(size)
      return taken
    },
    /** Reads at least one byte and at most `most`; undefined at the end of the stream. */
    async some(most: number): Promise<Buffer | undefined> {
      if (rest.length === 0 && !(await fill())) return undefined
      const taken = rest.subarray(0, most)
      rest = rest.subarray(taken.length)
      return taken
    },
  }
}
