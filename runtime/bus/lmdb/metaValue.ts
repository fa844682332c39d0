/**
 * Values of the table `troupe.meta` with a checksum: `{"v": value, "crc": crc32 of key and value}`. A changed bit in a
 * committed offset or a topic's partitions would otherwise be read as another number.
 *
 * in   a key and a value, or the stored form      out  the stored form, or the value
 * Invariant: a stored value is returned as it was put, or `bus.torn` is thrown. Logs of format 1 hold bare values: of
 * those only the form is checked.
 */
import { crc32 } from 'node:zlib'
import { lmdbErrors } from './errors'

export interface MetaValue {
  readonly v: unknown
  readonly crc: number
}

export const metaValue = (key: string, v: unknown): MetaValue => ({ v, crc: checksum(key, v) })

const checksum = (key: string, v: unknown): number => crc32(`${key}\n${JSON.stringify(v)}`)

/** Returns the value that was put under `key`; undefined if there is none. @throws TroupeError bus.torn */
export function fromMeta(directory: string, key: string, stored: unknown): unknown {
  if (stored === undefined) return undefined
  if (isChecked(stored)) {
    if (Object.keys(stored).length === 2 && checksum(key, stored.v) === stored.crc) return stored.v
  } else if (hasForm(key, stored)) return stored
  throw lmdbErrors.torn(
    directory,
    `the value of ${JSON.stringify(key)} does not match its checksum, or has none and a wrong form`,
  )
}

const isChecked = (stored: unknown): stored is MetaValue =>
  typeof stored === 'object' && stored !== null && 'v' in stored && 'crc' in stored

const isCount = (value: unknown): boolean => Number.isSafeInteger(value) && (value as number) >= 0

/** Returns true if a value without a checksum (format 1) has the form that its key requires. */
function hasForm(key: string, value: unknown): boolean {
  if (key.startsWith('oldest:') || key.startsWith('committed:')) return isCount(value)
  if (key === 'writer') return value === null || isCount((value as { pid?: unknown }).pid)
  if (key === 'format') return typeof value === 'object' && value !== null
  if (!key.startsWith('topic:') || typeof value !== 'object' || value === null) return false
  const { id, topic, partitions, retentionMs } = value as Record<string, unknown>
  const isKept = retentionMs === null || isCount(retentionMs)
  return isCount(id) && isCount(partitions) && partitions !== 0 && topic === key.slice('topic:'.length) && isKept
}

/**
 * Reads an entry of `troupe.meta` as lmdb stores it: a key in UTF-8, an f64 version, JSON. Returns undefined when it
 * does not match its checksum.
 */
export function metaEntry(key: Buffer, bytes: Buffer): { readonly key: string; readonly value: unknown } | undefined {
  const name = key.toString('utf8').replace(/\0+$/, '')
  try {
    return { key: name, value: fromMeta('', name, JSON.parse(bytes.toString('utf8', 8))) }
  } catch {
    return undefined
  }
}
