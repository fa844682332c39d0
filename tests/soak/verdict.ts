/**
 * Judges the samples of a soak: what may not grow, what may grow only with the log, what may not happen at all.
 *
 * in   samples with their hours since the start, the end of the warm-up, the retention of commands
 * out  a row a series; faults
 * A series grows if its slope is above 0 for certain (trend.ts) and it rose by more than a tolerance after the warm-up.
 * The warm-up of the run's first process lasts until its caches, the 4,096 latest records of each partition, hold nine tenths
 * of what they hold at the end. Commands may be kept for as long as their retention, however many they are.
 * Invariant: every fault names its series and its figures.
 */
import { type TopicName, topics } from '../../messages'
import type { Sample } from './sample'
import { blocksOf, type Point, type Trend, trendOf } from './trend'

export interface TimedSample {
  readonly hours: number
  readonly sample: Sample
}

export interface Row {
  readonly series: string
  readonly trend: Trend
  /** Growth after the warm-up that is not yet a fault. */
  readonly tolerance: number
  readonly grows: boolean
}

export interface Verdict {
  readonly rows: readonly Row[]
  readonly faults: readonly string[]
}

/** Samples of a block; at one a minute, 4 minutes. */
const blockSamples = 4
const mib = 1024 * 1024

interface Rule {
  readonly pattern: RegExp
  readonly reduce: 'least' | 'median'
  /** The larger of the two: a share of the median, and units of the series. */
  readonly share: number
  readonly floor: number
}

const rules: readonly Rule[] = [
  { pattern: /^memoryBytes:/, reduce: 'least', share: 0.02, floor: 4 * mib },
  { pattern: /^heapBytes$/, reduce: 'least', share: 0.05, floor: 4 * mib },
  { pattern: /^externalBytes$/, reduce: 'least', share: 0.05, floor: 4 * mib },
  { pattern: /^(descriptors|threads|processes):/, reduce: 'least', share: 0, floor: 1 },
  { pattern: /^files:(temporary|blobs)$/, reduce: 'least', share: 0, floor: 1 },
  { pattern: /^bytes:(temporary|blobs)$/, reduce: 'least', share: 0, floor: mib },
  { pattern: /^directories:/, reduce: 'least', share: 0, floor: 1 },
  { pattern: /^bytes:run without log$/, reduce: 'least', share: 0.02, floor: mib },
  { pattern: /^overdue:/, reduce: 'least', share: 0, floor: 1 },
  // The load goes up and down with the machine's, and these with it.
  { pattern: /^decision$/, reduce: 'median', share: 0.25, floor: 0.0001 },
  { pattern: /^lagSeconds:/, reduce: 'median', share: 0.25, floor: 0.002 },
  { pattern: /^log bytes a record$/, reduce: 'median', share: 0.05, floor: 1 },
  { pattern: /^facts a step$/, reduce: 'median', share: 0.1, floor: 1 },
]

const commandTopics = (Object.keys(topics) as TopicName[]).filter(name => topics[name].holds === 'commands')

/** Fewest samples of a series that can be judged: a point each. */
const leastSamples = 8
/** Records of a partition that a journal keeps decoded. */
const cachedRecords = 4096
/** Time from the end of a command's retention to its end: trims begin once a minute, and a busy machine delays them. */
const trimMs = 120_000

export function judge(all: readonly TimedSample[], warmUpHours: number, commandRetentionMs: number): Verdict {
  const full = cachesFullAt(all)
  const series = seriesOf(all, warmUpHours, commandRetentionMs)
  const rows = [...series].flatMap(([name, points]) => {
    const rule = rules.find(({ pattern }) => pattern.test(name))
    if (rule === undefined) return []
    const from = ofFirstProcess.test(name) ? Math.max(full, warmUpHours) : warmUpHours
    const judged = points.filter(({ hours }) => hours >= from)
    // A short-lived process, such as a command of the set-up, is in a few samples only.
    if (judged.length < leastSamples) return []
    const trend = trendOf(blocksOf(judged, Math.min(blockSamples, Math.max(1, judged.length >> 3)), rule.reduce))
    const tolerance = Math.max(rule.floor, rule.share * trend.median)
    return [{ series: name, trend, tolerance, grows: trend.low > 0 && trend.growth > tolerance }]
  })
  const faults = rows.filter(({ grows }) => grows).map(({ series, trend }) => `${series} grows by ${trend.growth}`)
  for (const { series: name, trend } of rows)
    if (name.startsWith('overdue:') && trend.median > 0)
      faults.push(`${name}: ${trend.median} commands are older than their retention`)
  const last = all.at(-1)!.sample
  for (const name of Object.keys(last).filter(known => ofFirstProcess.test(known)))
    if (!rows.some(({ series: judged }) => judged === name))
      faults.push(
        `${name} cannot be judged: fewer than ${leastSamples} samples since its caches are full; run for longer`,
      )
  if ((last['kept:dead-letters'] ?? 0) > 0) faults.push(`${last['kept:dead-letters']} dead letters`)
  const first = all.find(({ hours }) => hours >= warmUpHours)!.sample
  if (!((last.steps ?? 0) > (first.steps ?? 0))) faults.push('no step was made after the warm-up')
  return { rows, faults }
}

const ofFirstProcess = /^(memoryBytes:train|heapBytes|externalBytes)$/

/** Hours at which the first process's caches held nine tenths of the records that they hold at the end. */
function cachesFullAt(samples: readonly TimedSample[]): number {
  const cached = ({ sample }: TimedSample) =>
    Object.keys(topics).reduce((sum, topic) => sum + Math.min(cachedRecords, appended(sample, topic)), 0)
  const most = cached(samples.at(-1)!)
  return samples.find(one => cached(one) >= 0.9 * most)?.hours ?? 0
}

function seriesOf(
  all: readonly TimedSample[],
  warmUpHours: number,
  commandRetentionMs: number,
): ReadonlyMap<string, readonly Point[]> {
  const samples = all.filter(({ hours }) => hours >= warmUpHours)
  const series = new Map<string, Point[]>()
  const add = (name: string, hours: number, value: number) => {
    const points = series.get(name) ?? []
    series.set(name, points)
    points.push({ hours, value })
  }
  let before: Sample | undefined
  for (const { hours, sample } of samples) {
    for (const [name, value] of Object.entries(sample)) if (!name.startsWith('kept:')) add(name, hours, value)
    const due = all.findLast(earlier => earlier.hours <= hours - (commandRetentionMs + trimMs) / 3_600_000)
    for (const topic of commandTopics) {
      const keptSince = sample[`kept:${topic}`] ?? 0
      if (due !== undefined)
        add(`overdue:${topic}`, hours, Math.max(0, keptSince - (appended(sample, topic) - appended(due.sample, topic))))
    }
    add('bytes:run without log', hours, sample['bytes:run']! - sample['bytes:log']!)
    if (before !== undefined) {
      const grown = (name: string) => (sample[name] ?? 0) - (before![name] ?? 0)
      if (grown('decisions') > 0) add('decision', hours, grown('decisionSeconds') / grown('decisions'))
    }
    before = sample
  }
  for (const [at, { hours, sample }] of samples.entries()) {
    // Commands that were dropped leave room in the file, which new records take.
    const records = Object.keys(topics).reduce((sum, topic) => sum + (sample[`kept:${topic}`] ?? 0), 0)
    add('log bytes a record', hours, sample['bytes:log']! / records)
    const earlier = samples[at - 15]?.sample
    const steps = (sample.steps ?? 0) - (earlier?.steps ?? 0)
    if (earlier === undefined || steps === 0) continue
    add('facts a step', hours, (appended(sample, 'trajectories') - appended(earlier, 'trajectories')) / steps)
  }
  return series
}

const appended = (sample: Sample, topic: string) => sample[`appended:${topic}`] ?? 0
