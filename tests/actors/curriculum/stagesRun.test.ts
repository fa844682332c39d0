/** Stages in a whole run: measured, switched, trained on under their own limits; and the same after a crash. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Message } from '../../../messages'
import type { Fact } from '../../../messages/facts'
import { endAll, messagesOf, type Running, troupe as start } from '../../support/cli'
import { ofType } from '../../support/facts'
import { until } from '../../support/until'

jest.setTimeout(400_000)

const folder = mkdtempSync(join(tmpdir(), 'troupe-stages-'))
const running: Running[] = []
afterAll(async () => {
  await endAll(running)
  rmSync(folder, { recursive: true, force: true })
})

const rows = Array.from({ length: 6 }, (_, k) => ({ problem: `Which digit? ${k}`, answer: k % 2 }))
const demonstrations = Array.from({ length: 400 }, (_, k) => ({
  messages: [
    { role: 'user', content: `Which digit? ${k % 6}` },
    { role: 'assistant', content: `<answer>\\boxed{${k % 7 === 0 ? 1 : 0}}</answer>` },
  ],
}))
const lines = (values: readonly unknown[]) => values.map(value => JSON.stringify(value)).join('\n')
writeFileSync(join(folder, 'problems.jsonl'), lines(rows))
writeFileSync(join(folder, 'demonstrations.jsonl'), lines(demonstrations))
const recipe = join(folder, 'staged.yaml')
writeFileSync(
  recipe,
  `
model:
  from: random
  config: {model_type: llama, hidden_size: 32, intermediate_size: 64, num_hidden_layers: 1, num_attention_heads: 2,
    num_key_value_heads: 2, max_position_embeddings: 128, tie_word_embeddings: true}
  vocabulary: 300
  addedTokens: [<answer>, </answer>, '\\boxed{']
  template: ${join(__dirname, '../../../recipes/templates/hermes.jinja')}
data: {file: problems.jsonl, demonstrationsFile: demonstrations.jsonl}
tools: {inPrompt: false}
limits: {contextTokens: 96, responseTokens: 24, turns: 2}
engine: {kvTokens: 4096}
rollout: {groupSize: 4, groupsPerStep: 2}
selection: {keep: 2, minPositive: 1, minNegative: 1, rejectEqual: false}
coldStart: {demonstrations: 400, epochs: 1, batchSequences: 8, learningRate: 0.01}
train: {steps: 3, learningRate: 0.0001}
stages:
  - {name: short, limits: {responseTokens: 12}, until: {steps: 1}}
  - {name: unsolved, problems: {samples: 3}, resetOptimizer: true}
alarms: [{name: always, metric: rollouts, above: 0, for: 2}]
`,
)

const troupe = (args: readonly string[]): Running => {
  const run = start(args)
  running.push(run)
  return run
}
const facts = async (bus: string, run: string): Promise<Fact[]> =>
  (
    await Promise.all((['runs', 'learner', 'trajectories'] as const).map(topic => messagesOf(bus, run, topic)))
  ).flat() as Message[] as Fact[]

/** What stages came to: all of it follows from the seed. */
function outcome(all: readonly Fact[]) {
  const measured = ofType(all, 'tasks.measured').map(({ index, from, samples, solved }) => [
    index,
    from,
    samples,
    [...solved],
  ])
  const changed = ofType(all, 'stage.changed').map(({ stage, step, index, reason }) => [stage, step, index, reason])
  const trained = ofType(all, 'rollout.requested')
    .filter(({ purpose }) => purpose === 'train')
    .map(({ trajectory, task, limits }) => [trajectory, task.id, limits.responseTokens])
  return { measured, changed, trained }
}

test('a stage measures its problems and trains on those alone; a run that is killed while it measures comes out the same', async () => {
  const bus = join(folder, 'bus')
  const args = ['train', recipe, '--json', '--bus', `lmdb:${bus}`, '--set', 'engine.deterministic=true']
  const whole = await troupe([...args, '--run', 'whole']).done
  expect([whole.code, whole.stderr]).toEqual([
    0,
    expect.stringContaining('alarm: always: rollouts is 8, above 0 for 2 steps'),
  ])
  const all = await facts(bus, 'whole')
  const { measured, changed, trained } = outcome(all)
  expect(measured.flatMap(([, , , solved]) => solved)).toHaveLength(6)
  expect(changed.filter(([, , index]) => index !== undefined).map(([stage, step]) => [stage, step])).toEqual([
    ['short', 0],
    ['unsolved', 1],
  ])
  const solved = measured.flatMap(([, , , counts]) => counts as number[])
  const kept = rows.flatMap((_, task) => (solved[task]! < 3 ? [`staged/train/${task + 1}`] : []))
  const of2 = trained.filter(([trajectory]) => String(trajectory) > 's0002')
  expect(of2.length).toBe(16)
  for (const [, task] of of2) expect(kept).toContain(task)
  expect(trained.map(([, , responseTokens]) => responseTokens)).toEqual([...Array(8).fill(12), ...Array(16).fill(24)])
  expect(ofType(all, 'step.tallied').map(({ step }) => step)).toEqual([1, 2, 3])

  const killed = troupe([...args, '--run', 'killed'])
  await until(
    async () => ofType(await facts(bus, 'killed'), 'curriculum.advanced').some(f => f.purpose === 'measure'),
    120_000,
  )
  killed.process.kill('SIGKILL')
  await killed.done
  const resumed = await troupe([...args.slice(0, 5), '--resume', 'killed']).done
  expect([resumed.code, resumed.stderr]).toEqual([0, expect.any(String)])
  const after = outcome(await facts(bus, 'killed'))
  const unique = (values: readonly unknown[]) => [...new Set(values.map(value => JSON.stringify(value)))].sort()
  expect(unique(after.measured)).toEqual(unique(measured))
  expect(unique(after.changed)).toEqual(unique(changed))
  expect(unique(after.trained)).toEqual(unique(trained))

  const stopped = await troupe([
    'train',
    recipe,
    '--json',
    '--bus',
    `lmdb:${bus}`,
    '--run',
    'stopped',
    '--stop-on',
    'always',
  ]).done
  expect(stopped.code).toBe(1)
  const [end] = ofType(await facts(bus, 'stopped'), 'run.finished')
  expect(end).toMatchObject({
    outcome: 'stopped',
    steps: 2,
    reason: expect.stringMatching(/^alarm always: rollouts is 8/),
  })
})
