/** A recipe in YAML says what one in TypeScript says, and config print says where each value came from. */
import { execFileSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parse } from 'yaml'
import { annotated } from '../../../cli/configCommand'
import { estimate } from '../../../config/estimate/estimate'
import { loadRecipe } from '../../../recipes/load/loadRecipe'
import { qwen3At14b } from '../../../recipes/rstar2/architectures'
import { failure } from '../../support/refusal'

const folder = mkdtempSync(join(tmpdir(), 'troupe-yaml-'))
afterAll(() => rmSync(folder, { recursive: true }))

function write(name: string, text: string): string {
  const file = join(folder, name)
  mkdirSync(join(file, '..'), { recursive: true })
  writeFileSync(file, text)
  return file
}

const rows = (n: number) =>
  Array.from({ length: n }, (_, k) => JSON.stringify({ problem: `What is ${k}+1?`, answer: k + 1 })).join('\n')

const whole = `
model: {from: directory, path: models/mine}
data: {file: problems.jsonl, evaluationFile: held-out.jsonl, prefix: "Solve: "}
tools: {inPrompt: false}
limits: {contextTokens: 512, responseTokens: 256}
rollout: {groupSize: 8, groupsPerStep: 2}
selection: {keep: 4}
train: {steps: 3}
evaluation: {problems: 2}
`

test('a YAML file with a model and a file of problems is a recipe, without any code', async () => {
  write('own/problems.jsonl', `${rows(5)}\nnot JSON\n`)
  write('own/held-out.jsonl', rows(3))
  const file = write('own/mine.yaml', whole)
  const { recipe, config } = loadRecipe(file)
  expect(config.value).toMatchObject({ name: 'mine', rollout: { groupSize: 8 }, reward: { name: 'math' } })
  expect(recipe.tools.map(tool => tool.name)).toEqual(['execute_python_code_with_standard_io'])
  const source = await recipe.tasks(config.value)
  expect(source.size).toBe(5)
  expect(source.dropped).toEqual({ 'not JSON': 1 })
  expect(source.train(6)).toEqual(source.train(1))
  expect(source.train(1)).toMatchObject({ messages: [{ role: 'user', content: 'Solve: What is 1+1?' }], truth: '2' })
  expect(source.evaluation(0).id).not.toBe(source.train(0).id)
})

test('files that a YAML file names lie beside it, wherever the command is run', () => {
  write('own/problems.jsonl', rows(5))
  const { value } = loadRecipe(write('own/mine.yaml', whole)).config
  expect(value.data.file).toBe(join(folder, 'own/problems.jsonl'))
  // There is no such directory beside the file: it is looked for from where the command is run.
  expect(value.model).toMatchObject({ path: 'models/mine' })
  write('own/some-tasks/one/task.toml', '')
  const { data } = loadRecipe(write('own/agent.yaml', 'extends: terminal\ntasks: some-tasks\n')).config.value
  expect(data.tasks).toBe(join(folder, 'own/some-tasks'))
})

test('each value says whether it is a default, of the file, of what the file extends, of --set or of a flag', () => {
  write(
    'base.yaml',
    'extends: quickstart\ntrain: {steps: 7, learningRate: 0.5}\naugmentation: {roc_error_ratio: false}\n',
  )
  const file = write('top.yaml', 'extends: base.yaml\ntrain: {steps: 9}\naugmentation.down_sample_to_n: 6\n')
  const { value, origins } = loadRecipe(file, ['train.clipLow=0.1', 'reject_equal_reward=False']).config
  expect(value).toMatchObject({ train: { steps: 9, learningRate: 0.5 }, selection: { keep: 6, rejectEqual: false } })
  const of = (path: string) => origins.get(path)
  expect(of('train.steps')).toBe('recipe')
  expect(of('train.learningRate')).toBe('extends base.yaml')
  expect(of('rollout.groupSize')).toBe('extends quickstart')
  expect(of('train.clipHigh')).toBe('default')
  expect(of('train.clipLow')).toBe('--set')
  expect(of('selection.keep')).toBe('recipe (flag augmentation.down_sample_to_n)')
  expect(of('selection.errorRatio')).toBe('extends base.yaml (flag augmentation.roc_error_ratio)')
  expect(of('selection.rejectEqual')).toBe('--set (flag reject_equal_reward)')
})

test('what config print writes is YAML that resolves to the same recipe, every value with its origin', () => {
  const { value, origins } = loadRecipe('quickstart', ['train.steps=2']).config
  const text = annotated(value, origins)
  expect(parse(text)).toEqual(JSON.parse(JSON.stringify(value)))
  expect(text).toMatch(/^ {2}steps: 2 # --set$/m)
  expect(text).toMatch(/^ {2}urls: \[\] # default$/m)
  const bare = text.split('\n').filter(line => /: \S|- /.test(line) && !line.includes(' # '))
  expect(bare).toEqual([])
  const again = loadRecipe(write('again.yaml', `extends: quickstart\n${text}`)).config
  expect(again.value).toEqual(value)
})

test.each([
  ['augmentation.do_down_sampling=True', { variant: 'release' }],
  ['augmentation.do_down_sampling=False', { variant: 'all' }],
  ['augmentation.down_sampling_config.down_sample_to_n=4', { keep: 4 }],
  ['down_sample_to_n=-1', { keep: 8 }],
  ['augmentation.reject_equal_reward=False', { rejectEqual: false }],
  ['augmentation.down_sampling_config.roc_error_ratio=False', { errorRatio: false }],
  ['roc_answer_format=False', { answerFormat: false }],
  ['augmentation.min_zero_reward_trace_num=3', { minNegative: 3 }],
  ['augmentation.min_non_zero_reward_trace_num=-1', { minPositive: 0 }],
])('a flag of the release is taken by its own name: %s', (flag, selection) => {
  expect(loadRecipe('quickstart', [flag]).config.value.selection).toMatchObject(selection)
})

test('without the down-sampling of the release a group is trained on whole, whatever keep says', () => {
  const { value } = loadRecipe('rstar2-release', ['do_down_sampling=False', 'rollout.groupSize=8']).config
  expect(value.selection).toMatchObject({ variant: 'all', keep: 16 })
  const trained = (flag: string) => {
    const config = loadRecipe('rstar2-release', [flag]).config.value
    return estimate(config, qwen3At14b, config.hardware!).tokens.find(t => t.what === 'trained tokens a step')!.value
  }
  expect(trained('do_down_sampling=False')).toBe(2 * trained('do_down_sampling=True'))
  expect(
    failure(() => loadRecipe('rstar2-release', ['do_down_sampling=True', 'rollout.groupSize=8'])).message,
  ).toContain('selection.keep: keeps 16 of a group of 8')
})

test.each<[string, string, RegExp]>([
  [
    'a typo',
    'extends: quickstart\nrollout: {grupSize: 4}',
    /rollout\.grupSize: unknown field; did you mean 'rollout\.groupSize'/,
  ],
  [
    'a typo in data',
    'model: {from: directory, path: x}\ndata: {fil: x}',
    /data\.fil: unknown field; did you mean 'data\.file'/,
  ],
  [
    'a typo in a flag',
    'extends: quickstart\naugmentation: {roc_eror_ratio: true}',
    /did you mean 'augmentation\.roc_error_ratio'/,
  ],
  ['a G above 2G', 'extends: quickstart\nselection: {keep: 99}', /selection\.keep: keeps 99 of a group of 16/],
  [
    'a prompt above the context',
    'extends: quickstart\nlimits: {promptTokens: 320}',
    /limits\.promptTokens: a prompt of 320 tokens leaves no room/,
  ],
  ['a context above the model', 'extends: quickstart\nlimits: {contextTokens: 4096}', /longer than the model's 320/],
  ['a base that is not there', 'extends: quikstart', /did you mean 'quickstart'/],
  [
    'a field said twice',
    'extends: quickstart\nselection: {keep: 4}\ndown_sample_to_n: 5',
    /sets selection\.keep, which the same data sets/,
  ],
  ['no map', '- a\n- b', /expected a map of sections, found a list/],
  ['no YAML', 'a: [1, 2\nb: {', /:.*line \d+/],
  ['a file that extends itself', 'extends: bad.yaml', /extends itself/],
])('%s is refused with its place', (_title, text, expected) => {
  const error = failure(() => loadRecipe(write('bad.yaml', `${text}\n`)))
  expect(error.message).toMatch(expected)
  expect(error.message).toContain('bad.yaml')
  expect(error.boundary).toBe('config')
})

test.each([
  ['null', 'exports.recipe = null'],
  ['no object', 'exports.recipe = 5'],
  ['without config', 'exports.recipe = {tasks() {}}'],
  ['without tasks', 'exports.recipe = {config: {}}'],
  ['none', ''],
  ['of nothing at all', 'module.exports = null'],
])('a module whose recipe is %s is refused with what to export', (_title, text) => {
  const name = `bad-${_title.replaceAll(' ', '-')}.cjs`
  const error = failure(() => loadRecipe(write(name, text)))
  expect([error.code, error.message]).toEqual(['config.no_export', expect.stringContaining(name)])
  expect(error.hint).toMatch(/export const recipe = defineRecipe/)
})

test('a model of another kind replaces the one below it, and null takes a section out', () => {
  const file = write('swap.yaml', 'extends: quickstart\nmodel: {from: directory, path: /m}\ncoldStart: null\n')
  const { value } = loadRecipe(file).config
  expect(value.model).toEqual({ from: 'directory', path: '/m' })
  expect(value.coldStart).toBeUndefined()
})

test.each([
  ['all rows broken', 'x\ny\n', /2 of 2 rows cannot be used \(2 not JSON\)/],
  ['too many rows broken', `${rows(3)}\nx\ny\n`, /2 of 5 rows cannot be used/],
  ['an empty file', '', /holds no rows/],
])('a data file with %s is refused when the run begins', async (_title, text, expected) => {
  write('own/problems.jsonl', text)
  write('own/held-out.jsonl', rows(3))
  const { recipe, config } = loadRecipe(write('own/mine.yaml', whole))
  await expect(recipe.tasks(config.value)).rejects.toThrow(expected)
})

test('a YAML recipe trains: problems from its file, Python, the reward by name', () => {
  write('run/problems.jsonl', rows(4))
  write(
    'run/demos.jsonl',
    Array.from({ length: 40 }, (_, k) =>
      JSON.stringify({
        messages: [
          { role: 'user', content: `What is ${k}+1?` },
          { role: 'assistant', content: `<answer>\\boxed{${k + 1}}</answer>` },
        ],
      }),
    ).join('\n'),
  )
  const file = write(
    'run/tiny.yaml',
    `
model:
  from: random
  config: {model_type: llama, hidden_size: 32, intermediate_size: 64, num_hidden_layers: 1, num_attention_heads: 2,
    num_key_value_heads: 2, max_position_embeddings: 256, tie_word_embeddings: true}
  vocabulary: 400
  template: ${join(__dirname, '../../../recipes/templates/hermes.jinja')}
data: {file: problems.jsonl, demonstrationsFile: demos.jsonl}
tools: {inPrompt: false}
limits: {contextTokens: 128, responseTokens: 32, turns: 2}
engine: {kvTokens: 4096, threads: 1}
rollout: {groupSize: 4, groupsPerStep: 2}
selection: {keep: 2, minPositive: 1, minNegative: 1, rejectEqual: false}
coldStart: {demonstrations: 40, epochs: 1, batchSequences: 8, learningRate: 0.003}
train: {steps: 1, learningRate: 0.0001, threads: 1}
`,
  )
  const bin = join(__dirname, '../../../cli/bin.js')
  const out = execFileSync(process.execPath, [bin, 'train', file, '--json', '--bus', `lmdb:${join(folder, 'bus')}`], {
    encoding: 'utf8',
    timeout: 240_000,
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  const lines = out
    .trim()
    .split('\n')
    .map(line => JSON.parse(line) as { type: string; outcome?: string; rollouts?: number })
  expect(lines.find(line => line.type === 'step')).toMatchObject({ rollouts: 8 })
  expect(lines.at(-1)).toMatchObject({ type: 'summary', outcome: 'done' })
}, 300_000)
