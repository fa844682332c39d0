/**
 * Writes directories in the form of a trainer's checkpoints, with every kind of file and a manifest, without a trainer.
 */
import { createHash } from 'node:crypto'
import { mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

export const sha256 = (content: string | Uint8Array): string => createHash('sha256').update(content).digest('hex')

const kinds = ['model.safetensors', 'config.json', 'tokenizer.json', 'chat_template.jinja']
const ofTrainer = ['training/.metadata', 'training/__0_0.distcp', 'reference/__0_0.distcp']

/**
 * Writes a checkpoint; with `trainer: false`, published weights. Returns the digests of weights and manifest, which
 * `checkpoint.saved` and `weights.published` record.
 */
export function writeCheckpoint(directory: string, { trainer = true }: { readonly trainer?: boolean } = {}) {
  const files: Record<string, { sha256: string; bytes: number }> = {}
  for (const name of [...kinds, ...(trainer ? ofTrainer : [])]) {
    mkdirSync(join(directory, name, '..'), { recursive: true })
    const content = name === 'config.json' ? '{"rope_theta": 10000}' : `${directory} ${name}`
    writeFileSync(join(directory, name), content)
    files[name] = { sha256: sha256(content), bytes: Buffer.byteLength(content) }
  }
  const digest = files['model.safetensors']!.sha256
  const manifest = JSON.stringify({ format: 2, digest, bytes: files['model.safetensors']!.bytes, files })
  writeFileSync(join(directory, 'manifest.json'), manifest)
  return { digest, manifest: sha256(manifest) }
}

/** Paths of all files below a directory, sorted. */
export function filesBelow(directory: string): readonly string[] {
  return readdirSync(directory, { recursive: true, encoding: 'utf8' })
    .map(name => join(directory, name))
    .filter(path => statSync(path).isFile())
    .sort()
}

/** Flips one bit in the middle of a file; returns a function that restores it. */
export function flipBit(path: string): () => void {
  const before = readFileSync(path)
  const after = Buffer.from(before)
  after[before.length >> 1]! ^= 4
  writeFileSync(path, after)
  return () => writeFileSync(path, before)
}
