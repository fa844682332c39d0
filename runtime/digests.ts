/**
 * Digests of what determines a run's facts: of the code, and of any plain data.
 * Two runs with equal digests take equal decisions on equal facts.
 */
import { createHash } from 'node:crypto'
import { readdirSync, readFileSync, statSync } from 'node:fs'
import { join, resolve } from 'node:path'

/** Folders whose code takes decisions: a change elsewhere changes no fact. */
const deciding = ['messages', 'kernels', 'policy', 'runtime', 'config', 'backends', 'actors']

/** Computes sha256 over the sources of the deciding folders (or their build), hex. */
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
