/** A run whose steps make several updates on their mini-batches: each stays one step of the log and is computed again to the bit. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { LearnedStep } from '../../replay/learning/learnedStep'
import { troupe } from '../support/cli'
import { smallRun } from '../support/smallRun'

jest.setTimeout(800_000)

const directory = mkdtempSync(join(tmpdir(), 'troupe-slice-mini-batches-'))
afterAll(() => rmSync(directory, { recursive: true, force: true }))

test('a step of two passes over two mini-batches with masked sequences is replayed to the bit', async () => {
  const bus = ['--run', 'r', '--bus', `lmdb:${join(directory, 'bus')}`]
  const settings = [
    ...['train.miniBatches=2', 'train.miniBatchUnit=sequences', 'train.innerSteps=2', 'train.checkpointEvery=2'],
    ...['train.correction={kind: geometric-mask, low: 0.999, high: 1.001}', 'evaluation.problems=0'],
  ].flatMap(set => ['--set', set])
  const trained = await troupe(['train', 'quickstart', '--json', '--steps', '2', ...bus, ...smallRun(200), ...settings])
    .done
  expect({ code: trained.code, stderr: trained.stderr.slice(-2000) }).toMatchObject({ code: 0 })
  const { code, stdout, stderr } = await troupe(['replay', 'learn', '--all', '--check', '1e-6', '--json', ...bus]).done
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
  const steps = stdout
    .trim()
    .split('\n')
    .map(line => JSON.parse(line) as LearnedStep)
  expect(steps.map(s => s.step)).toEqual([1, 2])
  for (const step of steps) {
    expect(step.recorded).toMatchObject({ updates: 4, maskedSequences: expect.any(Number) })
    expect(step).toMatchObject({ agrees: true, members: [], sameWeights: true })
    expect(Math.max(...Object.values(step.differences))).toBe(0)
  }
})
