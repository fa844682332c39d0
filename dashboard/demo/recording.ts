/**
 * Packs a run into one file that any machine can read: the records of its log, and the tokenizer, which gives the text
 * of its tokens. Unpacks such a file.
 *
 * in   a bus, a run, the directory of its model        out  gzipped msgpack; and back, a run on an lmdb bus
 * Invariant: keys, headers, values and times are those of the run. Commands are left out, except the executors' offers
 * of slots. Offsets in the topics of facts and telemetry are those of the run too, if these topics begin at offset 0.
 */
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { gunzipSync, gzipSync } from 'node:zlib'
import { pack, unpack } from 'msgpackr'
import { runId } from '../../messages/ids'
import { type TopicName, topicOnBus, topics } from '../../messages/topics'
import type { Bus, NewRecord } from '../../runtime/bus/bus'
import { openLmdbBus } from '../../runtime/bus/lmdb/lmdbBus'
import { runDirectory } from '../../runtime/runDirectory'

type PackedRecord = readonly [timestamp: number, key: string, headers: Record<string, string>, value: Uint8Array]

interface Recording {
  readonly run: string
  readonly partitions: Readonly<Record<string, number>>
  /** Records by `topic:partition`, from the oldest that the log still has. */
  readonly records: Readonly<Record<string, readonly PackedRecord[]>>
  readonly tokenizer: string | null
}

const kept = Object.values(topics).filter(({ holds, name }) => holds !== 'commands' || name === 'tool-calls')
const batch = 1000
/**
 * Upper bound on appends in flight. The bus writes all that wait in one transaction, which takes long on a busy disk.
 */
const inFlight = 256

export async function packRecording(bus: Bus, run: string, modelDirectory: string): Promise<Buffer> {
  const there = new Map((await bus.listTopics()).map(({ topic, partitions }) => [topic, partitions]))
  const partitions: Record<string, number> = {}
  const records: Record<string, PackedRecord[]> = {}
  for (const { name } of Object.values(topics)) partitions[name] = there.get(topicOnBus(runId(run), name)) ?? 1
  for (const { name } of kept) {
    const topic = topicOnBus(runId(run), name)
    for (let partition = 0; partition < partitions[name]!; partition++) {
      const list: PackedRecord[] = []
      records[`${name}:${partition}`] = list
      const { oldest, next } = await bus.offsets(topic, partition)
      for (let at = oldest; at < next; ) {
        const read = await bus.read(topic, partition, at, batch)
        if (read.length === 0) break
        for (const { timestamp, key, headers, value } of read) {
          if (name !== 'tool-calls' || headers.type === 'executor.slots')
            list.push([timestamp, key, { ...headers }, value])
        }
        at = read.at(-1)!.offset + 1
      }
    }
  }
  const file = join(modelDirectory, 'tokenizer.json')
  const tokenizer = existsSync(file) ? readFileSync(file, 'utf8') : null
  return gzipSync(pack({ run, partitions, records, tokenizer } satisfies Recording), { level: 9 })
}

/** Writes the recorded run to `lmdb:directory`, and returns its name. */
export async function unpackRecording(bytes: Uint8Array, directory: string): Promise<string> {
  const { run, partitions, records, tokenizer } = unpack(gunzipSync(bytes)) as Recording
  const { log, model } = runDirectory(directory, runId(run))
  mkdirSync(log, { recursive: true })
  mkdirSync(model, { recursive: true })
  if (tokenizer !== null) writeFileSync(join(model, 'tokenizer.json'), tokenizer)
  let now = 0
  const bus = await openLmdbBus({ directory: log, mode: 'write', effects: { now: () => now } })
  try {
    await bus.createTopics(
      Object.values(topics).map(({ name }) => ({
        topic: topicOnBus(runId(run), name),
        partitions: partitions[name] ?? 1,
        retentionMs: null,
      })),
    )
    const appended: Promise<unknown>[] = []
    for (const [place, list] of Object.entries(records)) {
      const [name, partition] = place.split(':')
      const topic = topicOnBus(runId(run), name as TopicName)
      for (let at = 0; at < list.length; ) {
        // The bus gives every append the time of its clock, so records of one time are appended together.
        const [time] = list[at]!
        const same: NewRecord[] = []
        for (; at < list.length && list[at]![0] === time && same.length < batch; at++) {
          const [, key, headers, value] = list[at]!
          same.push({ topic, partition: Number(partition), key, headers, value })
        }
        now = time
        appended.push(bus.append(same)) // `append` reads the clock when it is called, and appends keep their order
        if (appended.length >= inFlight) await Promise.all(appended.splice(0))
      }
    }
    await Promise.all(appended)
  } finally {
    await bus.close()
  }
  return run
}
