/**
 * The durable embedded bus: a log in a directory, stored with the npm package lmdb. One process writes, any number
 * read.
 *
 * in   a directory on this machine      out  a Bus whose acknowledged appends survive a crash of the process or machine
 * Invariants: a directory has one writer. A second one is refused (`bus.locked` names the first); when another process
 * has taken over a writer's lease, that writer's next commit writes nothing and fails. A reader's transaction lasts for
 * one read only, so that the writer can reuse pages.
 */
import { realpathSync } from 'node:fs'
import { type Effects, systemEffects } from '../../effects'
import { TroupeError } from '../../errors'
import type { Bus } from '../bus'
import { embeddedBus } from '../embeddedBus'
import { writeError } from './errors'
import { hasHeartbeat } from './holder'
import { LmdbReader } from './reader'
import { openStore } from './store'
import { LmdbWriter } from './writer'

export interface LmdbBusOptions {
  readonly directory: string
  /** Access mode. A reader cannot append, create topics or commit: those calls throw `bus.read_only`. */
  readonly mode: 'write' | 'read'
  /** Clock for timestamps and retention. Default: the system's. */
  readonly effects?: Pick<Effects, 'now'>
  /**
   * Upper bound on the time of a transaction, ms, after which the bus fails with `bus.write_stalled`. Default 60,000.
   */
  readonly writeTimeoutMs?: number
  /**
   * True to check every page of the data file, also when the log is known to be sound or a living process writes it.
   */
  readonly checkAll?: boolean
}

const defaultWriteTimeoutMs = 60_000

/**
 * Directories whose lease may still name this process although it has no open writer there: a closed writer could not
 * release the lease (the disk was full, or the writer had failed), or an opening failed. This process may take such a
 * lease again.
 */
const abandoned = new Set<string>()

/**
 * Opens the log in `directory`; mode 'write' creates a missing log. From its first subscription on a reader polls,
 * which keeps the process alive until the bus is closed.
 * @throws TroupeError bus.locked (with the other writer's pid); bus.not_a_log when the directory holds no log of
 * Troupe; bus.torn when its file is damaged; bus.no_access, bus.bad_lock when this user cannot open its files;
 * bus.newer_format, bus.network_file_system, bus.disk_full, bus.file_too_large, bus.write_failed
 */
export async function openLmdbBus(options: LmdbBusOptions): Promise<Bus> {
  const { directory, mode } = options
  const store = openStore(directory, mode, () => hasHeartbeat(directory), options.checkAll ? 'whole' : 'unless known')
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
    // After every error except `bus.locked`, this process may already have taken the lease.
    if (!(thrown instanceof TroupeError && thrown.code === 'bus.locked')) abandoned.add(path)
    throw thrown instanceof TroupeError ? thrown : writeError(directory, thrown)
  }
}
