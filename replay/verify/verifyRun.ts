/**
 * Verifies a whole run: reads every record of every topic once, and every blob that a record refers to; then compares
 * checkpoints, published weights and blobs on disk with their digests.
 *
 * in   a recorded run        out  counts of accepted and of ignored facts, and each problem with its place
 * Invariant: facts that are late, repeated or of a replaced owner are counted as ignored. They are no problems, unless
 * a decision that counts follows from one, weights differ from those published before under the same version, or two
 * processes acted as the same owner.
 */
import { createHash } from 'node:crypto'
import { topics } from '../../messages/topics'
import { asError } from '../../runtime/errors'
import { HistoryChecker } from '../histories/historyChecker'
import type { RecordedRun } from '../log/recordedRun'
import { filesOnDisk } from './filesOnDisk'
import type { Verification } from './verification'
import { verifier } from './verifier'

export interface VerifyOptions {
  /**
   * Share of the trajectories whose turn contexts are rebuilt, 0 to 1. Default 1. A trajectory's id decides whether it
   * is in the sample.
   */
  readonly sample?: number
  /** False to leave out checkpoints, published weights and blobs, which may be many gigabytes. Default: true. */
  readonly files?: boolean
}

const checkedTopics = ['runs', 'trajectories', 'learner', 'telemetry'] as const
const commandTopics = Object.values(topics).flatMap(({ name, holds }) => (holds === 'commands' ? [name] : []))

/** Verifies the run. Problems are in the result; the promise is rejected only when the log cannot be read. */
export async function verifyRun(
  recorded: RecordedRun,
  { sample = 1, files = true }: VerifyOptions = {},
): Promise<Verification> {
  const began = performance.now()
  const disk = filesOnDisk(recorded.files)
  const check = verifier(recorded.run, id => isSampled(id, sample))
  const history = new HistoryChecker()
  for (const topic of checkedTopics) {
    await recorded.scan(topic, (entry, record) => {
      check.take(entry, record)
      if (topic === 'learner') disk.take(entry)
      if (topic !== 'telemetry') history.take(entry)
    })
  }
  // Commands follow from facts, so each is only decoded, with its blob, to see that it can be read.
  for (const topic of commandTopics) await recorded.scan(topic, () => check.command())
  // A dead letter's headers contain all that is checked, so its value is not decoded.
  const blobs: Parameters<typeof checkBlob>[1][] = []
  await recorded.scan(
    'dead-letters',
    () => {},
    (headers, { partition, offset }) => {
      if (headers.blob !== undefined) blobs.push({ blob: headers.blob, partition, offset })
      return check.deadLetter(headers)
    },
  )
  for (const place of blobs) await checkBlob(recorded, place)
  const seconds = (performance.now() - began) / 1000
  const onDisk = files ? await disk.check() : { files: null, problems: [] }
  const ofHistory = history.violations().map(({ kind, places, message }) => ({ place: places.at(-1)!, kind, message }))
  return check.result(recorded.faults, seconds, { ...onDisk, problems: [...ofHistory, ...onDisk.problems] })
}

/** Notes a fault if the blob of a dead letter cannot be read or has another digest. */
async function checkBlob(
  { blobs, note }: RecordedRun,
  { blob, ...place }: { readonly blob: string; readonly partition: number; readonly offset: number },
): Promise<void> {
  await blobs.get(blob).catch(thrown => {
    note({ kind: 'blob', topic: 'dead-letters', ...place, message: asError(thrown).message })
  })
}

function isSampled(id: string, sample: number): boolean {
  if (sample >= 1) return true
  return createHash('sha256').update(id).digest().readUInt32LE(0) / 2 ** 32 < sample
}
