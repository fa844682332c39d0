/** Writes saved histories (fixtures of recorded runs) to logs, so that tests read them as a user reads a run. */
import { mkdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { encode } from '../../messages/codec'
import { runId } from '../../messages/ids'
import { type Message, topicOnBus, topics } from '../../messages/topics'
import { type Fixture, unpackFixture } from '../../replay/exchange/fixture'
import type { Bus, NewRecord } from '../../runtime/bus/bus'
import { openLmdbBus } from '../../runtime/bus/lmdb/lmdbBus'
import { runDirectory } from '../../runtime/runDirectory'

/** Three steps of the quickstart: groups of 8, two engines, staleness 1, two checkpoints, refills, tool errors. */
export const quickstartHistory = (): Fixture =>
  unpackFixture(readFileSync(join(__dirname, '../histories/quickstart.v1.jsonl.gz')))

export async function writeHistory(bus: Bus, fixture: Fixture, extra: readonly NewRecord[] = []): Promise<void> {
  const { run, partitions } = fixture
  await bus.createTopics(
    Object.values(topics).map(t => ({
      topic: topicOnBus(run, t.name),
      partitions: t.single ? 1 : partitions,
      retentionMs: t.retentionMs,
    })),
  )
  const records = [...recordsOf(fixture), ...extra]
  for (let at = 0; at < records.length; at += 500) await bus.append(records.slice(at, at + 500))
}

/** Returns the records of a history, for appending to empty topics. */
export function recordsOf({ run, records }: Fixture): readonly NewRecord[] {
  return records.map(({ topic, partition, message }) => {
    const { key, headers, value } = encode(message, { run })
    return { topic: topicOnBus(run, topic), partition, key, headers, value }
  })
}

/** Writes the history as a run on an lmdb bus; `--bus lmdb:${directory} --run ${fixture.run}` reads it. */
export async function saveHistory(directory: string, fixture: Fixture, extra?: readonly NewRecord[]): Promise<void> {
  const { log } = runDirectory(directory, runId(fixture.run))
  mkdirSync(log, { recursive: true })
  const bus = await openLmdbBus({ directory: log, mode: 'write' })
  await writeHistory(bus, fixture, extra)
  await bus.close()
}

/** Returns the history with each message replaced by what `change` returns for it; null leaves the message out. */
export function changed(fixture: Fixture, change: (message: Message, index: number) => Message | null): Fixture {
  const records = fixture.records.flatMap((record, i) => {
    const message = change(record.message, i)
    return message === null ? [] : [{ ...record, message }]
  })
  return { ...fixture, records }
}
