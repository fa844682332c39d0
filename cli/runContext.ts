/**
 * What every command that touches a run shares: the bus's address, the run's files, and its journal.
 */
import { join } from 'node:path'
import type { Command } from 'commander'
import { type RunId, runId } from '../messages/ids'
import { type BlobStore, openFileBlobs } from '../runtime/bus/blobs'
import type { Bus } from '../runtime/bus/bus'
import { openBus } from '../runtime/bus/open'
import { TroupeError } from '../runtime/errors'
import { type Journal, openJournal } from '../runtime/journal'
import { type RunDirectory, runDirectory, runsOf } from '../runtime/runDirectory'

const defaultBus = 'lmdb:.troupe'

export interface RunContext {
  readonly run: RunId
  readonly files: RunDirectory
  readonly bus: Bus
  readonly blobs: BlobStore
  readonly journal: Journal
}

/** Adds `--bus`. */
export function withBus(command: Command): Command {
  return command.option('--bus <address>', 'memory: or lmdb:DIR (env TROUPE_BUS)', process.env.TROUPE_BUS ?? defaultBus)
}

/** The directory that an address keeps its runs in. A memory bus keeps its files where the default bus does. */
export function directoryOf(address: string): string {
  return address.startsWith('lmdb:') ? address.slice('lmdb:'.length) : '.troupe'
}

/** Opens a run for writing, or for reading while another process writes it. */
export async function openRun(address: string, name: string, mode: 'write' | 'read'): Promise<RunContext> {
  const run = runId(name)
  const directory = directoryOf(address)
  const files = runDirectory(directory, run)
  if (mode === 'read' && !runsOf(directory).includes(name)) throw noRun(directory, name)
  const bus = await openBus(address.startsWith('lmdb:') ? `lmdb:${files.log}` : address, { mode })
  const blobs = await openFileBlobs(files.blobs)
  return { run, files, bus, blobs, journal: openJournal(bus, blobs, run) }
}

/** The run that a command means when it was given none: the only one, or the newest. */
export function chooseRun(address: string, given: string | undefined): string {
  if (given !== undefined) return given
  const directory = directoryOf(address)
  const newest = runsOf(directory).at(-1)
  if (newest === undefined) throw noRun(directory, undefined)
  return newest
}

/** The error for a run that is not there. */
export function noRun(directory: string, name: string | undefined): TroupeError {
  const runs = runsOf(directory)
  const known = runs.length === 0 ? 'it holds none' : `it holds ${runs.slice(-8).join(', ')}`
  return new TroupeError('cli.no_run', {
    boundary: 'cli',
    retriable: false,
    message: `no run${name === undefined ? '' : ` '${name}'`} in ${join(directory, 'runs')}; ${known}`,
    hint: 'give --run ID and --bus lmdb:DIR, or start one: `troupe train quickstart`',
  })
}
