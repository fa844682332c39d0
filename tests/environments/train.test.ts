/** Training on environments, by a YAML file and the command line: real packages, engine and trainer. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { stringify } from 'yaml'
import type { Message } from '../../messages'
import { messagesOf, troupe } from '../support/cli'

jest.setTimeout(300_000)

const directory = mkdtempSync(join(tmpdir(), 'troupe-environments-'))
afterAll(() => rmSync(directory, { recursive: true, force: true }))

const recipe = (data: object) => ({
  extends: 'environment',
  data,
  model: {
    from: 'random',
    vocabulary: 400,
    config: {
      ...{ model_type: 'llama', hidden_size: 32, intermediate_size: 64, num_hidden_layers: 2 },
      ...{ num_attention_heads: 2, num_key_value_heads: 2, max_position_embeddings: 512, tie_word_embeddings: true },
    },
    addedTokens: ['<answer>', '</answer>', '\\boxed{'],
    template: join(__dirname, '../../recipes/templates/hermes.jinja'),
  },
  coldStart: { demonstrations: 60, batchSequences: 8, learningRate: 0.003 },
  // A second torch thread gains nothing at this size, and waits at every barrier.
  engine: { threads: 1 },
  train: { threads: 1 },
  limits: { contextTokens: 512, responseTokens: 24, turns: 2 },
  tools: { inPrompt: false },
  rollout: { groupSize: 4, groupsPerStep: 2 },
  selection: { keep: 2, minPositive: 1, minNegative: 1, rejectEqual: false },
  evaluation: { problems: 4 },
})

async function train(name: string, data: object): Promise<{ readonly facts: Message[]; readonly stdout: string }> {
  const file = join(directory, `${name}.yaml`)
  writeFileSync(file, stringify(recipe(data)))
  const bus = join(directory, name)
  const args = ['train', file, '--json', '--steps', '1', '--run', 'r', '--bus', `lmdb:${bus}`]
  const { code, stdout, stderr } = await troupe(args, { PYTHONPATH: join(__dirname, '../support/environments') }).done
  expect({ code, stderr: stderr.slice(-2000) }).toMatchObject({ code: 0 })
  const topics = ['trajectories', 'learner'] as const
  return { stdout, facts: (await Promise.all(topics.map(topic => messagesOf(bus, 'r', topic)))).flat() }
}

test.each([
  ['reasoning-gym', { package: 'reasoning-gym', families: [{ name: 'chain_sum' }, { name: 'gcd' }], instances: 30 }],
  ['verifiers', { package: 'verifiers', families: [{ name: 'toy-sums', options: { count: 60 } }], instances: 40 }],
])('%s trains for a step, every rollout with a reward of its package', async (name, data) => {
  const { facts, stdout } = await train(name, data)
  expect(facts.filter(fact => fact.type === 'step.completed')).toHaveLength(1)
  const rewards = facts.flatMap(fact => (fact.type === 'reward.assigned' ? [fact] : []))
  const finished = facts.filter(fact => fact.type === 'rollout.finished')
  expect(rewards.length).toBeGreaterThanOrEqual(2 * 4 + 2 * 4)
  expect(rewards).toHaveLength(finished.length)
  expect(facts.filter(fact => fact.type === 'reward.failed')).toEqual([])
  // A brief answer is worth a quarter to the rubric of toy-sums, whatever it says: the reward is the package's.
  if (name === 'verifiers') expect(rewards.map(fact => fact.reward)).toContain(0.25)
  expect(JSON.parse(stdout.trim().split('\n').at(-1)!)).toMatchObject({ type: 'summary' })
})
