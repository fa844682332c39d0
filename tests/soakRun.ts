/**
 * A run left alone: `npm run test:soak -- [--hours 3] [--out DIR]`. A quickstart whose policy hardly changes, so that its load
 * stays the same, with evaluations, checkpoints and short-lived command topics. Samples it every minute, from outside.
 * Writes DIR/samples.jsonl as it goes, last DIR/verdict.json, and prints the verdict as a table.
 * `-- --judge FILE` judges the samples of an earlier soak again.
 * Exit 1 when something grows (tests/soak/verdict.ts), the run ends early, or its log is not sound.
 */
import { appendFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import { runId } from '../messages/ids'
import { memoryBlobs } from '../runtime/bus/blobs'
import { openLmdbBus } from '../runtime/bus/lmdb/lmdbBus'
import { openJournal } from '../runtime/journal/openJournal'
import { runDirectory } from '../runtime/runDirectory'
import { sampleOf } from './soak/sample'
import { judge, type Row, type TimedSample } from './soak/verdict'
import { messagesOf, type Running, troupe } from './support/cli'
import { exitWith } from './support/exitWith'
import { until } from './support/until'

const run = runId('soak')
const sampleEveryMs = 60_000
const commandRetentionMs = 300_000
/** The memory of caches and allocators is full, and command topics have their length, by then. */
const warmUpMs = 900_000
/** Longest time from the start to the first step: the cold start, beside other work. */
const startWithinMs = 1_800_000
const endWithinMs = 900_000

const settings = [
  ['coldStart.demonstrations', 8000],
  // On a busy machine a second thread of torch costs more than it gives.
  ['train.threads', 1],
  // Small steps, so that there are many of them; deadlines that a busy machine keeps.
  ['rollout.groupSize', 8],
  ['selection.keep', 4],
  ['rollout.groupsPerStep', 4],
  ['rollout.deadlineMs', 600_000],
  ['rollout.turnTimeoutMs', 300_000],
  // The policy stays as the cold start left it, whether its groups are mixed or not.
  ['train.learningRate', 1e-9],
  ['selection.rejectEqual', false],
  ['train.keepCheckpoints', 3],
  ['evaluation.problems', 16],
  ['evaluation.every', 20],
  ['log.commandRetentionMs', commandRetentionMs],
].flatMap(([path, value]) => ['--set', `${path}=${value}`])

async function main(): Promise<number> {
  const { values } = parseArgs({
    options: { hours: { type: 'string' }, out: { type: 'string' }, judge: { type: 'string' } },
  })
  if (values.judge !== undefined) return judged(values.judge)
  const hours = Number(values.hours ?? 3)
  if (!(hours * 3_600_000 > warmUpMs)) {
    console.error(`usage: npm run test:soak -- [--hours N] [--out DIR]; above ${warmUpMs / 3_600_000} hours`)
    return 2
  }
  const directory = mkdtempSync(join(tmpdir(), 'troupe-soak-'))
  const temporary = join(directory, 'tmp')
  const out = values.out ?? 'soak'
  mkdirSync(temporary)
  mkdirSync(out, { recursive: true })
  const bus = `lmdb:${directory}`
  const args = ['train', 'quickstart', '--bus', bus, '--run', run, '--steps', '1000000', '--json', '--metrics', '0']
  const running = troupe([...args, ...settings], { TMPDIR: temporary })
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => running.process.kill('SIGKILL'))
  try {
    const samples = await watch(running, { directory, temporary, out, forMs: hours * 3_600_000 })
    running.process.kill('SIGTERM')
    const { code, stderr } = await Promise.race([running.done, sleep(endWithinMs, tooLate, { ref: false })])
    const faults: string[] = []
    if (code !== 143) faults.push(`the run ended with ${code} after SIGTERM: ${stderr.slice(-2000)}`)
    const verified = await troupe(['replay', 'verify', '--bus', bus, '--run', run]).done
    if (verified.code !== 0) faults.push(`replay verify ended with ${verified.code}: ${verified.stdout.slice(-2000)}`)
    console.log(verified.stdout)
    const { rows, faults: grown } = verdictOn(samples)
    faults.push(...grown)
    writeFileSync(join(out, 'verdict.json'), JSON.stringify({ faults, rows }, null, 2))
    return said(samples, rows, faults)
  } finally {
    running.process.kill('SIGKILL')
    await running.done
    rmSync(directory, { recursive: true, force: true })
  }
}

function judged(file: string): number {
  const lines = readFileSync(file, 'utf8').trim().split('\n')
  const samples = lines.map(line => JSON.parse(line) as TimedSample)
  const { rows, faults } = verdictOn(samples)
  return said(samples, rows, faults)
}

const verdictOn = (samples: readonly TimedSample[]) =>
  judge(samples, samples[0]!.hours + warmUpMs / 3_600_000, commandRetentionMs)

/** Prints the verdict; returns the exit code. */
function said(samples: readonly TimedSample[], rows: readonly Row[], faults: readonly string[]): number {
  const [first, last] = [samples[0]!, samples.at(-1)!]
  console.log(tableOf(rows))
  for (const fault of faults) console.log(fault)
  const { steps, cpuSeconds } = last.sample
  const took = ((last.hours - first.hours) * 60).toFixed(0)
  console.log(`${faults.length === 0 ? 'steady' : 'NOT steady:'} ${took} minutes, ${steps} steps, ${cpuSeconds} CPU s`)
  return faults.length === 0 ? 0 : 1
}

const tooLate = { code: null, stderr: `it did not end within ${endWithinMs} ms` }

interface Watched {
  readonly directory: string
  readonly temporary: string
  readonly out: string
  readonly forMs: number
}

/** Samples the run for so long, from its first step on. */
async function watch(running: Running, { directory, temporary, out, forMs }: Watched): Promise<TimedSample[]> {
  const begun = performance.now()
  const { root, log } = runDirectory(directory, run)
  const ended = () => running.process.exitCode !== null || running.process.signalCode !== null
  const refuseEnd = () => {
    if (!ended()) return
    const { exitCode, signalCode } = running.process
    throw new Error(`the run ended by itself (${signalCode ?? exitCode}): ${running.said().slice(-4000)}`)
  }
  const stepped = async () => (await messagesOf(directory, run, 'learner')).some(m => m.type === 'step.completed')
  await until(
    async () => {
      refuseEnd()
      return await stepped()
    },
    startWithinMs,
    5000,
  )
  const metrics = /metrics: (\S+)/.exec(running.said())![1]!
  const reader = await openLmdbBus({ directory: log, mode: 'read' })
  const journal = openJournal(reader, memoryBlobs(), run)
  const samples: TimedSample[] = []
  try {
    for (let next = performance.now(); performance.now() - begun < forMs; next += sampleEveryMs) {
      await sleep(Math.max(0, next - performance.now()))
      refuseEnd()
      const sample = await sampleOf({ pid: running.process.pid!, root, temporary, journal, metrics })
      const timed = { hours: (performance.now() - begun) / 3_600_000, sample }
      samples.push(timed)
      appendFileSync(join(out, 'samples.jsonl'), `${JSON.stringify(timed)}\n`)
    }
  } finally {
    await reader.close()
  }
  return samples
}

function tableOf(rows: readonly Row[]): string {
  const figure = (value: number) => (Math.abs(value) >= 100 ? value.toFixed(0) : value.toPrecision(3))
  const head =
    '| series | median | growth | slope an hour (99.9 %) | tolerance |  |\n| --- | --- | --- | --- | --- | --- |'
  const lines = rows.map(({ series, trend, tolerance, grows }) => {
    const interval = `${figure(trend.perHour)} (${figure(trend.low)} to ${figure(trend.high)})`
    return `| ${series} | ${figure(trend.median)} | ${figure(trend.growth)} | ${interval} | ${figure(tolerance)} | ${grows ? 'GROWS' : ''} |`
  })
  return [head, ...lines].join('\n')
}

exitWith(main)
