/**
 * Packs the facts of a recorded run, or of some groups of it, into one file that tests and other machines can read:
 * `export --format fixture`.
 *
 * in   a recorded run and which groups
 * out  a header line, then a line for each fact of the topics `runs`, `trajectories` and `learner` that can be read;
 * unpacking gives these records back
 * Invariant: if the records are appended in order to empty partitions, they give the same history. Offsets change where
 * records are left out or cannot be read. A fact's `epoch` in `trajectories` is the offset of the `partition.claimed`
 * that was in force, so it is rewritten to the claim's new offset; to -1 if the claim is missing.
 */
import { gunzipSync, gzipSync } from 'node:zlib'
import { decode, encode } from '../../messages/codec'
import { type Epoch, epoch, groupOf, type RunId, runId } from '../../messages/ids'
import type { Message, TopicName } from '../../messages/topics'
import { topics } from '../../messages/topics'
import { asError, TroupeError } from '../../runtime/errors'
import { withoutBom } from '../../runtime/settings/withoutBom'
import type { RecordedRun } from '../log/recordedRun'

interface FixtureRecord {
  readonly topic: TopicName
  readonly partition: number
  readonly timestamp: number
  readonly message: Message
}

export interface Fixture {
  readonly run: RunId
  readonly partitions: number
  readonly records: readonly FixtureRecord[]
}

const format = 'troupe-fixture'
const factTopics = ['runs', 'trajectories', 'learner'] as const
/** Default upper bound on the size of an import, in bytes: an imported file is held in memory as a whole. */
export const maxImportBytes = 256 * 1024 * 1024
/** Upper bound on the partitions that a fixture may declare; far more than a real run has. */
const mostPartitions = 1024

/**
 * Returns all facts of `runs`, `trajectories` and `learner`; with `wants`, only the facts about the groups for which
 * `wants` returns true, `run.started`, and all claims (facts by which a process takes over a role) in `trajectories`.
 */
export async function fixtureOf(recorded: RecordedRun, wants?: (group: string) => boolean): Promise<Fixture> {
  const records: FixtureRecord[] = []
  /** Offset in the fixture of the next record of `trajectories`, by partition. */
  const next = new Map<number, number>()
  /** Offset in the fixture of each `partition.claimed`, by its partition and its offset in the log. */
  const claims = new Map<string, Epoch>()
  let partitions = 1
  for (const topic of factTopics) {
    await recorded.scan(topic, entry => {
      const { partition, offset, timestamp } = entry
      let { message } = entry
      if (topic === 'trajectories') {
        partitions = Math.max(partitions, partition + 1)
        const at = next.get(partition) ?? 0
        if (message.type === 'partition.claimed') claims.set(`${partition}#${offset}`, epoch(at))
        else if (message.type !== 'scheduler.claimed' && message.type !== 'curriculum.claimed') {
          const group = 'trajectory' in message ? groupOf(message.trajectory) : 'group' in message ? message.group : ''
          if (wants !== undefined && !wants(group)) return
          if ('epoch' in message)
            message = { ...message, epoch: claims.get(`${partition}#${message.epoch}`) ?? epoch(-1) }
        }
        next.set(partition, at + 1)
      } else if (wants !== undefined && message.type !== 'run.started') return
      records.push({ topic, partition, timestamp, message })
    })
  }
  return { run: recorded.run, partitions, records }
}

/** Serialises a fixture as gzipped JSON lines. */
export function packFixture(fixture: Fixture): Buffer {
  const { run, partitions } = fixture
  const lines = [JSON.stringify({ format, version: 1, run, partitions })]
  for (const { topic, partition, timestamp, message } of fixture.records) {
    const { headers, value } = encode(message, { run, maxBytes: Number.POSITIVE_INFINITY })
    lines.push(JSON.stringify({ topic, partition, timestamp, headers, value: Buffer.from(value).toString('base64') }))
  }
  return gzipSync(`${lines.join('\n')}\n`, { level: 9 })
}

/**
 * Parses a fixture, gzipped or not. `maxBytes`: upper bound on the unpacked size of a gzipped one.
 * @throws TroupeError replay.bad_import, with the number of the wrong line, or with the reason why the file does not
 * unpack
 */
export function unpackFixture(bytes: Buffer, maxBytes = maxImportBytes): Fixture {
  let text: string
  try {
    text = (bytes[0] === 0x1f && bytes[1] === 0x8b ? gunzipSync(bytes, { maxOutputLength: maxBytes }) : bytes).toString(
      'utf8',
    )
  } catch (thrown) {
    throw badImport(
      `the file is damaged, or unpacks to over ${maxBytes / 2 ** 20} MiB (--max-mb): ${asError(thrown).message}`,
    )
  }
  const [first = '', ...rest] = withoutBom(text)
    .split('\n')
    .filter(line => line !== '')
  const head = parsed(first, 1) as { format?: unknown; run?: unknown; partitions?: unknown }
  const partitions = Number.isInteger(head.partitions) ? (head.partitions as number) : 0
  if (head.format !== format || typeof head.run !== 'string' || partitions < 1 || partitions > mostPartitions) {
    throw badImport(
      `line 1 is not the header of a ${format} file; expected a run and 1 to ${mostPartitions} partitions`,
    )
  }
  const records = rest.map((line, i): FixtureRecord => {
    const record = parsed(line, i + 2) as {
      topic: TopicName
      partition: number
      timestamp: number
      headers: Record<string, string>
      value: string
    }
    if (!Object.hasOwn(topics, record.topic))
      throw badImport(`line ${i + 2} names an unknown topic; expected one of ${Object.keys(topics).join(', ')}`)
    const most = topics[record.topic].single ? 1 : partitions
    if (!Number.isInteger(record.partition) || record.partition < 0 || record.partition >= most)
      throw badImport(
        `line ${i + 2} names partition ${record.partition} of the topic '${record.topic}', which has ${most} partition(s)`,
      )
    try {
      const value = Buffer.from(record.value, 'base64')
      const { topic, partition, timestamp } = record
      return { topic, partition, timestamp, message: decode({ headers: record.headers, value }) }
    } catch (thrown) {
      throw badImport(`line ${i + 2}: ${asError(thrown).message}`)
    }
  })
  return { run: runId(head.run), partitions, records }
}

export function badImport(message: string): TroupeError {
  return new TroupeError('replay.bad_import', {
    boundary: 'replay',
    retriable: false,
    message,
    hint: '`troupe replay import` reads files that `replay export` wrote (jsonl, fixture) and verl rollout dumps',
  })
}

function parsed(line: string, number: number): unknown {
  try {
    const value: unknown = JSON.parse(line)
    if (typeof value === 'object' && value !== null) return value
  } catch {
    // a line that is not JSON is reported by the throw below
  }
  throw badImport(`line ${number} is not a JSON object`)
}
