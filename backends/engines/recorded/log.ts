/**
 * Opens the log of a recorded run for reading.
 *
 * in   RUN or RUN@BUS, and the location of the current run's own log        out  the recorded run's journal
 * Invariant: nothing is written to the recorded log. RUN without @BUS means a log on the current run's bus: on Kafka it
 * is read over the current run's connection; an lmdb log has a directory of its own and is opened separately.
 */
import { dirname } from 'node:path'
import { recordingAddress } from '../../../config/fileAddress'
import { type RunId, runId } from '../../../messages/ids'
import { type BlobStore, openFileBlobs } from '../../../runtime/bus/blobs'
import type { Bus } from '../../../runtime/bus/bus'
import { parseKafkaAddress } from '../../../runtime/bus/kafka/address'
import { openBus } from '../../../runtime/bus/open'
import { TroupeError } from '../../../runtime/errors'
import type { Journal } from '../../../runtime/journal/journal'
import { openJournal } from '../../../runtime/journal/openJournal'
import type { Log } from '../../../runtime/log'
import { runDirectory, runsOf } from '../../../runtime/runDirectory'

/** Log of the current run, whose engine answers from the recording: the run's name, bus, blobs and directory. */
export interface OwnLog {
  readonly run: RunId
  readonly bus: Bus
  readonly blobs: BlobStore
  /** Directory of the current run's files: <base>/runs/<run>. */
  readonly directory: string
}

export interface Recording {
  readonly journal: Journal
  close(): Promise<void>
}

const runsTopicOf = (run: string) => `troupe.${run}.runs`

/**
 * Opens the recording. @throws TroupeError config.bad_engine if `text` is not RUN or RUN@BUS; engine.no_recording if
 * the bus holds no such run; without @BUS also if this process has no bus, its bus is in memory, or RUN is the current
 * run; the errors of `openBus`
 */
export async function openRecording(text: string, own: OwnLog | undefined, log: Log): Promise<Recording> {
  const address = recordingAddress(text)
  const run = runId(address.run)
  if (address.bus === undefined) {
    if (own === undefined)
      throw none(
        run,
        'this process, which has no bus of its own to search',
        'name the bus of the recording: RUN@lmdb:DIR',
      )
    if (own.run === run)
      throw none(
        run,
        'the run itself, which cannot answer from the log that it is still writing',
        'name another run, one that was recorded',
      )
    return beside(run, own, log)
  }
  if (address.bus.startsWith('kafka:')) {
    const bus = await openBus(address.bus, { mode: 'read' })
    const shared = parseKafkaAddress(address.bus).settings.blobs
    const base = own?.bus.kind === 'kafka' ? dirname(dirname(own.directory)) : '.troupe'
    return whole(run, bus, await openFileBlobs(shared ?? runDirectory(base, run).blobs, 'read'), log, address.bus)
  }
  return ofDirectory(run, address.bus.slice('lmdb:'.length), log)
}

async function beside(run: RunId, own: OwnLog, log: Log): Promise<Recording> {
  const base = dirname(dirname(own.directory))
  if (own.bus.kind === 'lmdb') return ofDirectory(run, base, log)
  if (own.bus.kind === 'memory') {
    throw none(run, 'a memory bus, which holds no other run', 'name the bus of the recording: recorded:RUN@lmdb:DIR')
  }
  const files = await openFileBlobs(runDirectory(base, run).blobs, 'read')
  const both: BlobStore = { ...files, get: async id => ((await own.blobs.has(id)) ? own.blobs.get(id) : files.get(id)) }
  // The bus is not closed with the recording, because it belongs to the current run.
  return whole(run, { ...own.bus, close: async () => {} }, both, log, 'this bus')
}

async function ofDirectory(run: RunId, directory: string, log: Log): Promise<Recording> {
  if (!runsOf(directory).includes(run)) throw noRun(run, directory, runsOf(directory))
  const files = runDirectory(directory, run)
  const bus = await openBus(`lmdb:${files.log}`, { mode: 'read' })
  return whole(run, bus, await openFileBlobs(files.blobs, 'read'), log, directory)
}

async function whole(run: RunId, bus: Bus, blobs: BlobStore, log: Log, place: string): Promise<Recording> {
  try {
    const names = (await bus.listTopics()).map(({ topic }) => topic)
    if (!names.includes(runsTopicOf(run))) {
      throw noRun(
        run,
        place,
        names.flatMap(name => /^troupe\.(.+)\.runs$/.exec(name)?.[1] ?? []),
      )
    }
    const journal = openJournal(bus, blobs, run, {}, async ({ topic, partition, offset }, error) => {
      log.warn({ topic, partition, offset, err: error }, 'a record of the recording cannot be read and is skipped')
    })
    return { journal, close: () => bus.close() }
  } catch (thrown) {
    await bus.close()
    throw thrown
  }
}

const noRun = (run: string, place: string, runs: readonly string[]): TroupeError =>
  none(
    run,
    `${place}, which holds ${runs.length === 0 ? 'no run' : runs.slice(-8).join(', ')}`,
    'name a run of this bus, or the bus of the recording: recorded:RUN@lmdb:DIR; `troupe replay runs` lists the runs of a bus',
  )

const none = (run: string, place: string, hint: string): TroupeError =>
  new TroupeError('engine.no_recording', {
    ...{ boundary: 'engine', retriable: false, hint },
    message: `there is no recorded run '${run}' in ${place}`,
  })
