/** Experiments: a report is written whole, its figures are those that were measured, and what is there is not run again. */
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { stringify } from 'yaml'
import { curve } from '../../cli/experiment/curves'
import { histogram } from '../../cli/experiment/environmentThroughput'
import { recordedArm } from '../../cli/experiment/recordedArm'
import { meanAndError, shown } from '../../cli/experiment/report'
import { trainedRun } from '../../cli/experiment/trainedRun'
import { runId } from '../../messages/ids'
import { demonstration } from '../../recipes/quickstart/demonstrations'
import { withReasons } from '../../recipes/quickstart/reasons'
import type { Fixture } from '../../replay/exchange/fixture'
import type { StepReport } from '../../replay/learning/progress'
import { troupe } from '../support/cli'
import { changed, quickstartHistory, saveHistory } from '../support/histories'

const directory = mkdtempSync(join(tmpdir(), 'troupe-experiment-'))
afterAll(() => rmSync(directory, { recursive: true, force: true }))

test('a report has its text, its figures and its pictures, and no valid call counts as a failed one', async () => {
  const out = join(directory, 'reports')
  const { code, stdout, stderr } = await troupe([
    'experiment',
    'error-classification',
    '--out',
    out,
    '--dir',
    directory,
  ]).done
  expect({ code, stderr }).toMatchObject({ code: 0 })
  expect(stdout.trim()).toBe(join(out, 'error-classification.md'))
  const text = readFileSync(stdout.trim(), 'utf8')
  const [picture] = /error-classification-\w+\.svg/.exec(text)!
  expect(readFileSync(join(out, picture), 'utf8')).toMatch(/^<svg[\s\S]*<\/svg>\s*$/)
  const { data, machine, seconds } = JSON.parse(readFileSync(join(out, 'error-classification.json'), 'utf8'))
  expect(machine).toContain('GiB')
  expect(seconds).toBeGreaterThan(0)
  for (const { fails, recorded } of data.judged) expect(recorded).toBe(fails)
  const byWord = data.judged.filter((one: { fails: boolean; release: boolean }) => one.release !== one.fails)
  expect(byWord.length).toBeGreaterThan(5)
  expect(Math.abs(data.shares.recorded - 0.5)).toBeLessThan(0.03)
  expect(data.shares.release).toBeLessThan(0.1)
}, 120_000)

test('an experiment that there is not is refused, and those that there are are named', async () => {
  const { code, stderr } = await troupe(['experiment', 'roc-ablaton']).done
  expect(code).toBe(2)
  expect(stderr).toMatch(/no experiment is named 'roc-ablaton'[\s\S]*roc-ablation/)
}, 60_000)

test('what cannot come to anything is refused before it is measured: a place that cannot be written, seeds of what has none', async () => {
  const file = join(directory, 'a-file')
  writeFileSync(file, '')
  const ends = (...args: string[]) => troupe(['experiment', 'error-classification', ...args, '--dir', directory]).done
  const nowhere = await ends('--out', join(file, 'reports'))
  expect(nowhere).toMatchObject({
    code: 2,
    stdout: '',
    stderr: expect.stringMatching(/a-file.*cannot be written[\s\S]*cannot_write/),
  })
  const seeded = await ends('--out', directory, '--seeds', '3')
  expect(seeded).toMatchObject({ code: 2, stderr: expect.stringContaining("'error-classification'") })
}, 60_000)

test('an arm that is there is taken from where it is, and another recipe under its name is refused', async () => {
  const arms = join(directory, 'arms')
  const recipe = { extends: 'quickstart', seed: 3 }
  mkdirSync(join(arms, 'runs/a'), { recursive: true })
  writeFileSync(join(arms, 'a.yaml'), stringify(recipe))
  writeFileSync(join(arms, 'a.jsonl'), '{"type":"step","step":1}\n{"type":"summary","run":"a"}\n')
  const found = await trainedRun('a', recipe, arms)
  expect(found).toMatchObject({ steps: [{ step: 1 }], summary: { run: 'a' }, directory: join(arms, 'runs/a') })
  await expect(trainedRun('a', { ...recipe, seed: 4 }, arms)).rejects.toMatchObject({ code: 'cli.arm_failed' })
  expect(existsSync(join(arms, 'a.jsonl'))).toBe(true)
})

test('an arm that was cut off is known for what it is: not begun, to go on, or over and only to be read', async () => {
  const arms = join(directory, 'cut')
  const bus = `lmdb:${arms}`
  const recipe = { extends: 'quickstart' }
  const history = quickstartHistory()
  const whole = { ...history, run: runId('whole') }
  await saveHistory(arms, whole)
  writeFileSync(join(arms, 'whole.yaml'), stringify(recipe))
  const found = await trainedRun('whole', recipe, arms)
  expect(found.steps.map(({ step }) => step)).toEqual([1, 2, 3])
  expect(found.summary).toMatchObject({ type: 'summary', run: 'whole', steps: 3 })
  expect(await trainedRun('whole', recipe, arms)).toEqual(found) // from what it kept

  const isEnd = ({ type }: { readonly type: string }) => type === 'run.finished'
  const cut = changed({ ...history, run: runId('cut') }, message => (isEnd(message) ? null : message))
  await saveHistory(arms, cut)
  expect(await recordedArm(bus, 'cut')).toEqual({ state: 'begun' })
  await expect(trainedRun('cut', recipe, arms)).rejects.toThrow('a run of another recipe')

  // It went on an hour later, for a minute: the hour was nobody's work.
  const last = Math.max(...cut.records.map(({ message }) => ('at' in message ? (message.at as number) : 0)))
  const [resumedAt, endedAt] = [last + 3_600_000, last + 3_660_000]
  const digests = { recipeDigest: '', codeDigest: '', tokenizerDigest: '' }
  const ended = { outcome: 'done' as const, reason: '', steps: 3, summary: {} }
  const rest: Fixture['records'] = [
    { type: 'run.resumed' as const, at: resumedAt, run: runId('late'), ...digests },
    { type: 'run.finished' as const, at: endedAt, run: runId('late'), ...ended },
  ].map(message => ({ topic: 'runs', partition: 0, timestamp: message.at, message }))
  await saveHistory(arms, { ...cut, run: runId('late'), records: [...cut.records, ...rest] })
  const late = await recordedArm(bus, 'late')
  expect(late).toMatchObject({ state: 'over', summary: { steps: 3, evalAfter: found.summary.evalAfter } })
  const begun = cut.records.find(({ message }) => message.type === 'run.started')!.message as { readonly at: number }
  if (late.state === 'over') expect(late.summary.wallSeconds).toBeCloseTo((last - begun.at + 60_000) / 1000, 3)

  expect(await recordedArm(bus, 'other')).toEqual({ state: 'none' })
  await saveHistory(arms, { ...history, run: runId('empty'), records: [] })
  expect(await recordedArm(bus, 'empty')).toEqual({ state: 'none' })
  mkdirSync(join(arms, 'runs/bare/log'), { recursive: true })
  expect(await recordedArm(bus, 'bare')).toEqual({ state: 'none' })
}, 120_000)

test('a curve is the mean over seeds with its standard error, as far as all seeds reach', () => {
  const steps = (...values: number[]) => values.map((passAt1, at) => ({ step: at + 1, passAt1 }) as StepReport)
  const runs = [
    { arm: 'a', seed: 1, steps: steps(0, 0.5, 1) },
    { arm: 'a', seed: 2, steps: steps(0.5, 0.5) },
  ]
  expect(curve(runs, step => step.passAt1)).toEqual([
    { arm: 'a', step: 1, mean: 0.25, low: 0, high: 0.5 },
    { arm: 'a', step: 2, mean: 0.5, low: 0.5, high: 0.5 },
  ])
  const some = (step: StepReport) => (step.passAt1 === 0 ? null : step.passAt1)
  expect(curve(runs, some).map(({ step }) => step)).toEqual([2])
  expect([shown([null, null]), shown([0.5, null]), shown([0.25])]).toEqual(['–', '0.500 (1 of 2)', '0.250'])
  expect(meanAndError([1, 2, 3, 4])).toEqual({ mean: 2.5, error: Math.sqrt(5 / 3 / 4) })
})

test('a histogram counts every call once, in the bin that holds it', () => {
  const latencies = [0, 0.5, 1, 9.99, 10, 1234]
  const bins = histogram(latencies)
  expect(bins.reduce((sum, { calls }) => sum + calls, 0)).toBe(latencies.length)
  for (const ms of [0.5, 1, 9.99, 10, 1234]) {
    expect(bins.some(({ from, to }) => from <= ms * (1 + 1e-9) && ms < to * (1 + 1e-9))).toBe(true)
  }
})

test('a demonstration that thinks aloud makes the same calls and gives the same answer', () => {
  for (let index = 0; index < 200; index++) {
    const { messages, task } = demonstration(index, 1)
    const aloud = withReasons(messages, task)
    expect(aloud.map(({ role }) => role)).toEqual(messages.map(({ role }) => role))
    for (const [at, { role, content }] of aloud.entries()) {
      if (role === 'assistant') expect(content).toMatch(/^<reason>[^<]+<\/reason>\n/)
      expect(content.replace(/^<reason>[^<]+<\/reason>\n/, '')).toBe(messages[at]!.content)
    }
  }
})
