/**
 * Writes demonstrations to files from which the trainer's ranks read what each batch needs.
 *
 * in   examples, one after another
 * out  a directory of safetensors files (`tokens`, `mask`, and `ends`, where each example ends) with a manifest
 * Invariant: at most `tokensPerFile` tokens and one example more are in memory. The directory is named by its content:
 * the same examples give the same directory, complete or absent.
 */
import { createHash } from 'node:crypto'
import { mkdir, open, rename, rm, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { bytesOfTokens } from '../../runtime/tokenBytes'

export interface SftExample {
  readonly tokens: Int32Array
  /** [n], 1 where the token counts in the loss. */
  readonly mask: Uint8Array
}

/** Demonstrations on disk. */
export interface SftData {
  readonly directory: string
  /** sha256 of the manifest, which has the sha256 of every file. */
  readonly digest: string
  readonly examples: number
}

/** Number of tokens at which a file is written: at 5 bytes a token, it takes 20 MiB of memory until then. */
const tokensPerFile = 1 << 22

export async function writeExamples(
  root: string,
  examples: AsyncIterable<SftExample> | Iterable<SftExample>,
  most = tokensPerFile,
): Promise<SftData> {
  const temporary = join(root, `.${process.pid}.tmp`)
  await rm(temporary, { recursive: true, force: true })
  await mkdir(temporary, { recursive: true })
  const files: Record<string, { sha256: string; bytes: number }> = {}
  let part: SftExample[] = []
  let [tokens, count] = [0, 0]
  const flush = async () => {
    if (part.length === 0) return
    const name = `examples-${String(Object.keys(files).length).padStart(5, '0')}.safetensors`
    const content = safetensors(part)
    await writeSynced(join(temporary, name), content)
    files[name] = { sha256: sha256(content), bytes: content.length }
    part = []
    tokens = 0
  }
  for await (const example of examples) {
    part.push(example)
    tokens += example.tokens.length
    count++
    if (tokens >= most) await flush()
  }
  await flush()
  const manifest = Buffer.from(`${JSON.stringify({ format: 1, examples: count, files }, null, 2)}\n`)
  await writeSynced(join(temporary, 'manifest.json'), manifest)
  const digest = sha256(manifest)
  const directory = join(root, digest.slice(0, 16))
  if (await stat(directory).catch(() => undefined)) await rm(temporary, { recursive: true })
  else await rename(temporary, directory)
  return { directory, digest, examples: count }
}

/** A file of the safetensors format: the header's length, the header as JSON, the tensors' bytes. */
function safetensors(examples: readonly SftExample[]): Buffer {
  let end = 0
  const ends = BigInt64Array.from(examples, ({ tokens }) => {
    end += tokens.length
    return BigInt(end)
  })
  const parts = {
    ends: { dtype: 'I64', length: ends.length, bytes: [Buffer.from(ends.buffer)] },
    tokens: { dtype: 'I32', length: end, bytes: examples.map(({ tokens }) => bytesOfTokens(tokens)) },
    mask: { dtype: 'U8', length: end, bytes: examples.map(({ mask }) => Buffer.from(mask)) },
  }
  let at = 0
  const header = Object.fromEntries(
    Object.entries(parts).map(([name, { dtype, length, bytes }]) => {
      const begin = at
      at += bytes.reduce((sum, one) => sum + one.length, 0)
      return [name, { dtype, shape: [length], data_offsets: [begin, at] }]
    }),
  )
  const text = JSON.stringify(header)
  // Spaces after the header align the tensors.
  const padded = Buffer.from(text.padEnd(8 * Math.ceil(text.length / 8)))
  const size = Buffer.alloc(8)
  size.writeBigUInt64LE(BigInt(padded.length))
  return Buffer.concat([size, padded, ...Object.values(parts).flatMap(({ bytes }) => bytes)])
}

const sha256 = (content: Buffer) => createHash('sha256').update(content).digest('hex')

async function writeSynced(path: string, content: Buffer): Promise<void> {
  const file = await open(path, 'w')
  try {
    await file.writeFile(content)
    await file.sync()
  } finally {
    await file.close()
  }
}
