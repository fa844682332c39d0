/**
 * Refuses a run that a newer version of Troupe has written to, before this version writes anything.
 *
 * in   a run, opened for reading        out  nothing, or an error with the record or the file of the newer version
 * The check covers every record of `runs` and `learner`, those records of `trajectories` that a resume folds (only
 * their headers are checked), and the manifests of the run's checkpoints and published weights. The format of the log
 * itself is checked elsewhere, when the log is opened.
 */
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { manifestFormat, manifestName } from '../../backends/weights/manifest'
import { decode, newerThanKnown, type TopicName, topicOnBus } from '../../messages'
import type { Fact } from '../../messages/facts'
import type { BusRecord } from '../../runtime/bus/bus'
import { TroupeError } from '../../runtime/errors'
import type { RunContext } from '../../runtime/openRun'
import { refoldFrom } from '../ownership/refoldFrom'

/**
 * Checks the run's records and manifests. @throws TroupeError run.newer_format for the first record or manifest of a
 * newer version
 */
export async function refuseNewerFormats(context: Pick<RunContext, 'bus' | 'run' | 'files'>): Promise<void> {
  const facts: Fact[] = []
  for (const topic of ['runs', 'learner'] as const) {
    await eachRecord(context, topic, 0, 0, record => {
      const fact = factOf(record)
      if (fact !== undefined) facts.push(fact)
    })
  }
  const begin = refoldFrom(
    facts,
    facts.some(({ type }) => type === 'step.tallied'),
  )
  for (let partition = 0; partition < (await partitionsOf(context)); partition++)
    await eachRecord(context, 'trajectories', partition, begin(partition), () => {})
  for (const directory of ['checkpoints', 'weights']) checkManifests(join(context.files.root, directory))
}

async function eachRecord(
  { bus, run }: Pick<RunContext, 'bus' | 'run'>,
  topic: TopicName,
  partition: number,
  from: number,
  take: (record: BusRecord) => void,
): Promise<void> {
  const name = topicOnBus(run, topic)
  if (!(await bus.listTopics()).some(config => config.topic === name)) return
  const { oldest, next } = await bus.offsets(name, partition)
  for (let at = Math.max(oldest, from); at < next; ) {
    const records = await bus.read(name, partition, at)
    if (records.length === 0) return // no record is left, only offsets without one
    for (const record of records) {
      const why = newerThanKnown(record.headers)
      if (why !== undefined) throw newer(`the record ${topic}:${partition}:${record.offset} is newer: ${why}`)
      take(record)
    }
    at = records.at(-1)!.offset + 1
  }
}

/**
 * Decodes a fact of `runs` or `learner`; such facts are small, so none lies in the blob store. Returns undefined for
 * one that cannot be decoded: actors that fold the topic report it.
 */
function factOf({ headers, value }: BusRecord): Fact | undefined {
  try {
    return decode({ headers, value }) as Fact
  } catch {
    return undefined
  }
}

async function partitionsOf({ bus, run }: Pick<RunContext, 'bus' | 'run'>): Promise<number> {
  const name = topicOnBus(run, 'trajectories')
  return (await bus.listTopics()).find(({ topic }) => topic === name)?.partitions ?? 0
}

function checkManifests(directory: string): void {
  for (const name of namesIn(directory)) {
    const path = join(directory, name, manifestName)
    const format = formatOf(path)
    if (format > manifestFormat)
      throw newer(`${path} has the format ${format}; this version of Troupe reads formats up to ${manifestFormat}`)
  }
}

/**
 * Returns the field `format` of a manifest; 0 if the file or the field is missing, or the file is damaged, which the
 * check of its digest reports.
 */
function formatOf(path: string): number {
  try {
    return Number((JSON.parse(readFileSync(path, 'utf8')) as { format?: unknown }).format ?? 0)
  } catch {
    return 0
  }
}

function namesIn(directory: string): readonly string[] {
  try {
    return readdirSync(directory)
  } catch {
    return []
  }
}

const newer = (what: string) =>
  new TroupeError('run.newer_format', {
    boundary: 'config',
    retriable: false,
    message: `a newer version of Troupe wrote to this run: ${what}; nothing was changed`,
    hint: 'resume the run with that version or a newer one; `troupe replay` reads what this version knows',
  })
