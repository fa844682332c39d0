/**
 * Digests that a run records to show later whether something has changed: of the folders of Troupe's code that take a
 * run's decisions, and of plain data such as the configuration.
 */
import { createHash } from 'node:crypto'
import { readdirSync, readFileSync, statSync } from 'node:fs'
import { join, resolve } from 'node:path'

/** Folders that `codeDigest` covers: their code takes the decisions of a run. */
const deciding = ['messages', 'kernels', 'policy', 'runtime', 'config', 'environments', 'backends', 'actors']

/**
 * Computes sha256 over the .ts, .js, .py and .proto files of the deciding folders (or of their build), without
 * generated code and tests, hex.
 */
export function codeDigest(): string {
  const hash = createHash('sha256')
  for (const folder of deciding) hashFolder(resolve(__dirname, '..', folder), hash)
  return hash.digest('hex')
}

function hashFolder(folder: string, hash: ReturnType<typeof createHash>): void {
  for (const name of readdirSync(folder).sort()) {
    if (name === 'generated' || name === '__pycache__' || name === 'tests') continue
    const path = join(folder, name)
    if (statSync(path).isDirectory()) hashFolder(path, hash)
    else if (/\.(ts|js|py|proto)$/.test(name) && !name.endsWith('.d.ts')) hash.update(name).update(readFileSync(path))
  }
}

/** Computes sha256 of plain data, independent of the order of its keys, hex. */
export function dataDigest(data: unknown): string {
  return createHash('sha256').update(JSON.stringify(data, sortedKeys)).digest('hex')
}

function sortedKeys(_key: string, value: unknown): unknown {
  if (value === null || typeof value !== 'object' || Array.isArray(value)) return value
  return Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)))
}
