/** `replay steps`: the figures of each step, of one run as text and of several as a picture. */
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { runId } from '../../messages/ids'
import type { StepReport } from '../../replay/learning/progress'
import { troupe } from '../support/cli'
import { quickstartHistory, saveHistory } from '../support/histories'
import { troupeHere } from '../support/troupeHere'

jest.setTimeout(60_000)

const directory = mkdtempSync(join(tmpdir(), 'troupe-steps-'))
const [one, other] = [join(directory, 'one'), join(directory, 'other')]
afterAll(() => rmSync(directory, { recursive: true, force: true }))
beforeAll(async () => {
  const history = quickstartHistory()
  await saveHistory(one, history)
  await saveHistory(other, { ...history, run: runId('twin') })
})

const steps = (...args: string[]) => troupeHere(['replay', 'steps', '--bus', `lmdb:${one}`, ...args])

test('each step has its line, with figures that are those of its trajectories', async () => {
  const lines = (await steps('--json')).stdout.trim().split('\n')
  const reports = lines.map(line => JSON.parse(line) as StepReport)
  const trained = reports.filter(line => line.type === 'step')
  expect(trained.map(({ step }) => step)).toEqual([1, 2, 3])
  const listed = await troupeHere([
    'replay',
    'ls',
    '--bus',
    `lmdb:${one}`,
    '--json',
    '--limit',
    '1000',
    '--purpose',
    'train',
  ])
  const rows = listed.stdout
    .trim()
    .split('\n')
    .map(line => JSON.parse(line) as { step: number; reward: number | null; toolErrors: number; toolCalls: number })
  for (const report of trained) {
    const judged = rows.filter(row => row.step === report.step && row.reward !== null)
    const calls = judged.filter(row => row.reward! > 0)
    const sum = (values: readonly number[]) => values.reduce((a, b) => a + b, 0)
    expect(report.passAt1).toBeCloseTo(sum(judged.map(row => row.reward!)) / judged.length, 10)
    expect(report.toolErrorRateInPositives).toBeCloseTo(
      sum(calls.map(row => row.toolErrors)) / sum(calls.map(row => row.toolCalls)),
      10,
    )
  }
  const table = (await steps()).stdout.trim().split('\n')
  expect(table).toHaveLength(1 + reports.length)
})

test('curves of two runs are one picture, which names both', async () => {
  const picture = join(directory, 'curves.svg')
  const args = ['replay', 'steps', '--bus', `lmdb:${one}`, '--picture', picture, '--beside', `lmdb:${other}#twin`]
  const { code, stderr } = await troupe(args).done
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
  const svg = readFileSync(picture, 'utf8')
  expect(svg).toMatch(/^<svg /)
  for (const word of ['history', 'twin', 'pass@1 of rollouts', 'failed calls in positives']) expect(svg).toContain(word)
})

test('a run beside another needs a picture to stand in', async () => {
  const { code, stderr } = await steps('--beside', 'twin')
  expect({ code, stderr }).toMatchObject({ code: 2, stderr: expect.stringContaining('add --picture FILE.svg') })
  expect(existsSync(join(directory, 'FILE.svg'))).toBe(false)
})
