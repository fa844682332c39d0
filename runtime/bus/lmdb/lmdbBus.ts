/**
 * The durable embedded bus: a log in a directory, by the npm package lmdb. One process writes, any number read along.
 *
 * in   a directory of this machine      out  a Bus whose acknowledged appends survive a crash of process or machine
 * Invariants: one writer a directory, refused by name (`bus.locked`) or, if it was taken over, fenced inside its commit;
 * a reader holds no transaction longer than one read, so the writer can use freed pages again.
 */
import { realpathSync } from 'node:fs'
import { type Effects, systemEffects } from '../../effects'
import { TroupeError } from '../../errors'
import type { Bus } from '../bus'
import { embeddedBus } from '../embeddedBus'
import { writeError } from './errors'
import { hasHeartbeat } from './lease'
import { LmdbReader } from './reader'
import { openStore } from './store'
import { LmdbWriter } from './writer'

export interface LmdbBusOptions {
  readonly directory: string
  /** A reader cannot append, create topics or commit: `bus.read_only`. */
  readonly mode: 'write' | 'read'
  /** The clock of timestamps and retention. */
  readonly effects?: Pick<Effects, 'now'>
  /** How long a transaction may take before the bus gives up on the disk (`bus.write_stalled`). Default 60,000. */
  readonly writeTimeoutMs?: number
}

const defaultWriteTimeoutMs = 60_000

/** Directories whose lease this process could not give back when it closed them, because the disk was full. */
const abandoned = new Set<string>()

/**
 * Opens the log in `directory`; a writer creates it where there is none. Throws `bus.locked` (another writer, with its
 * pid), `bus.not_a_log`, `bus.torn`, `bus.network_file_system`, `bus.disk_full`, `bus.write_failed`.
 * A reader polls once it has had a subscription, which keeps the process alive until the bus is closed.
 */
export async function openLmdbBus(options: LmdbBusOptions): Promise<Bus> {
  const { directory, mode } = options
  const store = openStore(directory, mode, () => hasHeartbeat(directory))
  if (mode === 'read') return embeddedBus(new LmdbReader(store))
  const path = realpathSync(directory)
  const onClosed = (released: boolean): void => {
    if (!released) abandoned.add(path)
  }
  try {
    const writer = new LmdbWriter(store, {
      effects: options.effects ?? systemEffects,
      writeTimeoutMs: options.writeTimeoutMs ?? defaultWriteTimeoutMs,
      ownsLease: abandoned.has(path),
      onClosed,
    })
    abandoned.delete(path)
    return embeddedBus(writer)
  } catch (thrown) {
    await store.root.close()
    // Whatever went wrong came after the lease was taken, unless it was not to be had.
    if (!(thrown instanceof TroupeError && thrown.code === 'bus.locked')) abandoned.add(path)
    throw thrown instanceof TroupeError ? thrown : writeError(directory, thrown)
  }
}
