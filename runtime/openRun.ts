/**
 * Finds and opens a run for a command: its bus, its files and its journal.
 *
 * in   a bus address, a run's name        out  the bus, the blobs, the journal, the directory; the names of the runs
 *      there
 * Invariant: `openNewRun` refuses a run that exists; through a run that is opened for reading, nothing is appended.
 */
import { join } from 'node:path'
import { type RunId, runId } from '../messages/ids'
import { type BlobStore, openFileBlobs } from './bus/blobs'
import type { Bus } from './bus/bus'
import { parseKafkaAddress } from './bus/kafka/address'
import { openBus } from './bus/open'
import { asError, TroupeError } from './errors'
import type { Journal } from './journal/journal'
import { openJournal } from './journal/openJournal'
import { directoryOf, type RunDirectory, runDirectory, runsByLastWrite, runsOf } from './runDirectory'

export { directoryOf }

export interface RunContext {
  readonly run: RunId
  readonly files: RunDirectory
  readonly bus: Bus
  readonly blobs: BlobStore
  readonly journal: Journal
}

/** Opens a run for writing, or for reading while another process writes it. */
export async function openRun(
  address: string,
  name: string,
  mode: 'write' | 'read',
  given?: string,
): Promise<RunContext> {
  const opened =
    mode === 'read' ? await openForReading(address, name, { given }) : await openFiles(address, name, mode, given)
  return {
    ...opened,
    journal: mode === 'read' ? readingJournal(opened) : openJournal(opened.bus, opened.blobs, opened.run),
  }
}

/**
 * Opens a run that does not exist yet, for writing.
 * @throws TroupeError run.bad_name; run.exists, since an existing run's facts are never changed
 */
export async function openNewRun(address: string, name: string, given?: string): Promise<RunContext> {
  checkNewRun(address, name)
  const context = await openRun(address, name, 'write', given)
  if (!(await runsOn(context.bus)).includes(name)) return context
  await context.bus.close()
  throw runExists(name)
}

/**
 * Checks a new run's name before the bus is opened. It finds existing runs only for an lmdb address.
 * @throws TroupeError run.bad_name, run.exists
 */
export function checkNewRun(address: string, name: string): void {
  runNamed(name)
  if (address.startsWith('lmdb:') && runsOf(directoryOf(address)).includes(name)) throw runExists(name)
}

/** Converts a run's name to its id. @throws TroupeError run.bad_name */
export function runNamed(name: string): RunId {
  try {
    return runId(name)
  } catch (thrown) {
    const { message } = asError(thrown)
    throw new TroupeError('run.bad_name', {
      boundary: 'config',
      retriable: false,
      message,
      hint: 'give another name: as --run, --as, or the argument RUN',
    })
  }
}

export const runExists = (run: string): TroupeError =>
  new TroupeError('run.exists', {
    boundary: 'config',
    retriable: false,
    message: `run '${run}' exists already`,
    hint: 'give another name with --as; for `replay salvage`, another directory with --to',
  })

/** Makes the journal of a run that is only read: unreadable records are left out, with a line each on stderr. */
export function readingJournal({ bus, blobs, run }: Pick<RunContext, 'bus' | 'blobs' | 'run'>): Journal {
  return openJournal(bus, blobs, run, {}, async ({ topic, partition, offset }, error) => {
    process.stderr.write(`skipped the unreadable record ${topic}:${partition}:${offset}: ${error.message}\n`)
  })
}

/**
 * Opens a run's bus and files for reading. Without a name, `choose` picks a run of a Kafka bus; on an lmdb bus the name
 * is required. `given`: directory of the run's files, as in directoryOf. `checkAll`: as in `LmdbBusOptions`. @throws
 * TroupeError bus.bad_address; run.not_found; the errors of `openBus`
 */
export async function openForReading(
  address: string,
  name: string | undefined,
  options: {
    readonly choose?: (bus: Bus) => Promise<string | undefined>
    readonly given?: string | undefined
    readonly checkAll?: boolean | undefined
  } = {},
): Promise<Omit<RunContext, 'journal'>> {
  checkReadable(address)
  if (!address.startsWith('kafka:')) {
    const directory = directoryOf(address)
    if (name === undefined || !runsOf(directory).includes(name)) throw noRun(directory, name)
    return openFiles(address, name, 'read', undefined, options.checkAll)
  }
  const bus = await openBus(address, { mode: 'read' })
  try {
    const runs = await runsOn(bus)
    const chosen = name ?? (await options.choose?.(bus))
    if (chosen === undefined || !runs.includes(chosen)) throw noRunOn(address, runs, chosen)
    return await withFiles(address, chosen, bus, 'read', options.given)
  } catch (thrown) {
    await bus.close()
    throw thrown
  }
}

async function openFiles(
  address: string,
  name: string,
  mode: 'write' | 'read',
  given?: string,
  checkAll = false,
): Promise<Omit<RunContext, 'journal'>> {
  const { log } = runDirectory(directoryOf(address, given), runId(name))
  const bus = await openBus(address.startsWith('lmdb:') ? `lmdb:${log}` : address, { mode, checkAll })
  try {
    return await withFiles(address, name, bus, mode, given)
  } catch (thrown) {
    await bus.close()
    throw thrown
  }
}

async function withFiles(
  address: string,
  name: string,
  bus: Bus,
  mode: 'write' | 'read',
  given?: string,
): Promise<Omit<RunContext, 'journal'>> {
  const run = runId(name)
  const files = runDirectory(directoryOf(address, given), run)
  const shared = address.startsWith('kafka:') ? parseKafkaAddress(address).settings.blobs : undefined
  return { run, files, bus, blobs: await openFileBlobs(shared ?? files.blobs, mode) }
}

/** Returns the names of the runs whose topics a bus holds; on Kafka no other list of runs exists. */
export async function runsOn(bus: Bus): Promise<readonly string[]> {
  const names = (await bus.listTopics()).map(({ topic }) => /^troupe\.(.+)\.runs$/.exec(topic)?.[1])
  return names.filter(name => name !== undefined).sort()
}

/** Returns `given`, the run that --run names; without it, the run of the address's directory that was written last. */
export function chooseRun(address: string, given: string | undefined): string {
  if (given !== undefined) return given
  checkReadable(address)
  const directory = directoryOf(address)
  const newest = runsByLastWrite(directory).at(-1)
  if (newest === undefined) throw noRun(directory, undefined)
  return newest
}

/**
 * Checks that runs can be read from this address: `kafka:…` or `lmdb:DIRECTORY`. @throws TroupeError bus.bad_address
 * for any other address, `memory:` among them
 */
function checkReadable(address: string): void {
  if (address.startsWith('kafka:') || (address.startsWith('lmdb:') && address !== 'lmdb:')) return
  const isGone = address === 'memory:'
  throw new TroupeError('bus.bad_address', {
    boundary: 'config',
    retriable: false,
    message: isGone
      ? 'a memory bus ends with its process, so no run can be read from it'
      : `${JSON.stringify(address)} is not a valid bus address`,
    hint: 'use lmdb:DIRECTORY or kafka://HOST:PORT',
  })
}

/** Creates the error for a run that is not in `directory`. */
export function noRun(directory: string, name: string | undefined): TroupeError {
  return noRunOn(join(directory, 'runs'), runsOf(directory), name)
}

/** Creates the error for a run that is not among the `runs` of `place`, a directory or a bus. */
export function noRunOn(place: string, runs: readonly string[], name: string | undefined): TroupeError {
  const known = runs.length === 0 ? 'no runs are there' : `runs there: ${runs.slice(-8).join(', ')}`
  return new TroupeError('run.not_found', {
    boundary: 'config',
    retriable: false,
    message: `no run${name === undefined ? '' : ` '${name}'`} in ${place}; ${known}`,
    hint: 'name a run that is there, and its bus: --bus lmdb:DIR or kafka://HOST:PORT; or start one: `troupe train quickstart`',
  })
}
