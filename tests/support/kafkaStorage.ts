/**
 * Formats the storage of a broker. Kafka's tool is a JVM of its own, which takes a second, and what it writes depends on
 * the cluster's id and the broker's number alone: so it is kept, and the next broker of that number gets a copy.
 *
 * in   the tool's command, the broker's data folder     out  the formatted folder; .cache/kafka-storage-NUMBER
 * Invariant: what is kept is newer than Kafka's jars.
 */
import { spawnSync } from 'node:child_process'
import { cpSync, mkdirSync, mkdtempSync, renameSync, rmSync, statSync } from 'node:fs'
import { dirname, join } from 'node:path'

const keptOf = (id: number) => join(__dirname, `../../.cache/kafka-storage-${id}`)

export interface Storage {
  readonly id: number
  /** The broker's log.dirs. */
  readonly data: string
  readonly libs: string
  /** Arguments of `java` that format `data`. */
  readonly command: readonly string[]
}

/** @param special true: the tool gets further arguments, such as --add-scram, so nothing is kept or copied */
export function formatStorage(storage: Storage, special: boolean): void {
  const kept = keptOf(storage.id)
  if (special) format(storage)
  else if (isNewer(kept, storage.libs)) cpSync(kept, storage.data, { recursive: true })
  else {
    format(storage)
    keep(storage.data, kept)
  }
}

function format({ command }: Storage): void {
  const made = spawnSync('java', command, { encoding: 'utf8' })
  if (made.status !== 0) throw new Error(`Kafka's storage could not be formatted: ${made.stdout}${made.stderr}`)
}

const isNewer = (kept: string, libs: string) =>
  (statSync(kept, { throwIfNoEntry: false })?.mtimeMs ?? 0) > statSync(libs).mtimeMs

function keep(data: string, kept: string): void {
  mkdirSync(dirname(kept), { recursive: true })
  const fresh = mkdtempSync(`${kept}.`)
  cpSync(data, fresh, { recursive: true })
  rmSync(kept, { recursive: true, force: true })
  try {
    renameSync(fresh, kept)
  } catch {
    rmSync(fresh, { recursive: true, force: true }) // another process has kept one meanwhile
  }
}
