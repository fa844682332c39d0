/**
 * A whole run with everything of the learner that real sizes need: adapters, two ranks, computed activations, a KL to a
 * reference, a loss of whole sequences; stopped, resumed, and computed again from its log.
 */
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { TopicName } from '../../messages'
import type { Fact } from '../../messages/facts'
import { messagesOf, troupe } from '../support/cli'
import { ofType } from '../support/facts'
import { smallRun } from '../support/smallRun'

const directory = mkdtempSync(join(tmpdir(), 'troupe-sizes-'))
afterAll(() => rmSync(directory, { recursive: true, force: true }))

const facts = async <T extends Fact['type']>(topic: TopicName, type: T) =>
  ofType(await messagesOf(directory, 'r', topic), type)

test('adapters on two ranks with a KL are published merged, go on after a stop, and are computed again from the log', async () => {
  const settings = [
    'train.lora={rank: 8, alpha: 16}',
    'train.ranks=2',
    'train.threads=1',
    'train.checkpointing=true',
    'train.loss=gspo',
    'train.klCoef=0.01',
    'train.steps=2',
    'train.innerSteps=2',
    'train.learningRate=0.001',
    'evaluation.problems=0',
  ].flatMap(text => ['--set', text])
  const bus = ['--bus', `lmdb:${directory}`]
  const run = (...which: string[]) =>
    troupe(['train', 'quickstart', ...which, ...bus, ...smallRun(50), ...settings]).done
  const first = await run('--run', 'r', '--steps', '1')
  expect(first).toMatchObject({ code: 0 })
  const second = await run('--resume', 'r', '--steps', '2')
  expect(second).toMatchObject({ code: 0 })
  const steps = await facts('learner', 'step.completed')
  expect(steps.map(s => s.step)).toEqual([1, 2])
  // so little cold start may answer nothing right: then no advantage moves the policy away from its reference
  for (const { metrics } of steps) expect(metrics.klReference).toBeGreaterThanOrEqual(0)
  const published = await facts('learner', 'weights.published')
  expect(published.map(p => p.step)).toEqual([0, 1, 2])
  for (const { url } of published) {
    const folder = join(directory, 'runs/r', url)
    const manifest = JSON.parse(readFileSync(join(folder, 'manifest.json'), 'utf8'))
    expect(manifest.adapter).toMatchObject({ rank: 8, targets: ['all-linear'] })
    expect(existsSync(join(folder, 'adapter/adapter_model.safetensors'))).toBe(true)
    expect(
      readdirSync(folder)
        .filter(name => name.endsWith('.safetensors'))
        .sort(),
    ).toEqual(['model.safetensors'])
  }
  for (const { name, step } of await facts('learner', 'checkpoint.saved')) {
    expect(existsSync(join(directory, 'runs/r/checkpoints', name, 'reference/.metadata'))).toBe(step > 0)
  }
  const again = await troupe(['replay', 'learn', '--all', '--run', 'r', '--check', '1e-4', '--json', ...bus]).done
  expect(again).toMatchObject({ code: 0 })
  const lines = again.stdout
    .trim()
    .split('\n')
    .map(line => JSON.parse(line) as { step: number; agrees: boolean })
  expect(lines.map(({ step, agrees }) => ({ step, agrees }))).toEqual([
    { step: 1, agrees: true },
    { step: 2, agrees: true },
  ])
}, 600_000)
