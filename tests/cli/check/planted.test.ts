/** `troupe check` finds each of 30 mistakes that are planted in a sound recipe, and says where it is and what to do. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { stringify } from 'yaml'
import { checkRecipe } from '../../../cli/check/checkRecipe'
import { applyOverrides } from '../../../runtime/settings/resolveConfig'

jest.setTimeout(60_000)

const root = join(__dirname, '../../..')
const folder = mkdtempSync(join(tmpdir(), 'troupe-check-'))
afterAll(() => rmSync(folder, { recursive: true }))
const at = (name: string) => join(folder, name)

function write(name: string, text: string | object): string {
  mkdirSync(join(at(name), '..'), { recursive: true })
  writeFileSync(at(name), typeof text === 'string' ? text : JSON.stringify(text))
  return at(name)
}

const rows = (from: number, to: number) =>
  Array.from({ length: to - from }, (_, k) => JSON.stringify({ problem: `${from + k}+1?`, answer: from + k + 1 })).join(
    '\n',
  )

/** A model directory with everything but weights that could be loaded; its tokenizer takes words apart at blanks. */
function model(name: string, changes: Readonly<Record<string, string | object>> = {}): string {
  const end = {
    id: 0,
    content: '<|im_end|>',
    single_word: false,
    lstrip: false,
    rstrip: false,
    normalized: false,
    special: true,
  }
  const files = {
    'config.json': { model_type: 'llama', hidden_size: 64, num_hidden_layers: 2, max_position_embeddings: 4096 },
    'tokenizer.json': {
      version: '1.0',
      added_tokens: [end],
      pre_tokenizer: { type: 'Whitespace' },
      model: { type: 'WordLevel', vocab: { '<|im_end|>': 0, '[UNK]': 1 }, unk_token: '[UNK]' },
    },
    'tokenizer_config.json': { eos_token: '<|im_end|>' },
    'model.safetensors': 'weights',
    ...changes,
  }
  for (const [file, content] of Object.entries(files)) if (content !== '') write(`${name}/${file}`, content)
  return at(name)
}

const sound = {
  model: { from: 'directory', path: model('model'), template: join(root, 'recipes/templates/hermes.jinja') },
  data: { file: write('train.jsonl', rows(0, 12)), evaluationFile: write('held-out.jsonl', rows(20, 24)) },
  tools: { inPrompt: false },
  limits: { contextTokens: 512, responseTokens: 256, turns: 3 },
  rollout: { groupSize: 8, groupsPerStep: 2 },
  selection: { keep: 4 },
  reward: { name: 'python', file: write('judge.py', 'import math\n\ndef reward(answer, task):\n    return 1.0\n') },
  train: { steps: 10 },
  evaluation: { problems: 4 },
}

const check = (name: string, set: readonly string[] = []) => checkRecipe(name, { set, directory: folder, learns: true })

const planted = (...assignments: string[]) => write('planted.yaml', stringify(applyOverrides(sound, assignments)))

test('a sound recipe has no problem, and its prompts are counted in tokens', async () => {
  const { faults, said } = await check(planted())
  expect(faults).toEqual([])
  expect(said).toEqual(['12 tasks', expect.stringMatching(/^prompts of \d+( to \d+)? tokens in a context of 512$/)])
})

const stage = (name: string, more = '') => `{name: ${name}${more}}`
const typescript = (name: string, body: string) => write(name, body)
const recipe = (more = '') =>
  `const task = n => ({ id: 't/' + n, messages: [{ role: 'user', content: 'q' + n }], truth: '1', reward: '' })
export const recipe = {
  config: { name: 'own', model: ${JSON.stringify(sound.model)}, rollout: { groupSize: 8 }, selection: { keep: 4 }, train: { steps: 5 }, limits: { contextTokens: 512, responseTokens: 256 } },
  tools: [],
  tasks: async () => ({ train: task, evaluation: task, dropped: {}, size: 4 }),
  ${more}
}`

/** Each: what is planted, the recipe, place, what is said, cure. */
const mistakes: readonly (readonly [string, () => string, RegExp, RegExp, RegExp])[] = [
  // the recipe's fields
  [
    'an unknown field',
    () => planted('rollout.grupSize=8'),
    /planted\.yaml:\d+: rollout\.grupSize/,
    /did you mean 'rollout\.groupSize'/,
    /config print/,
  ],
  [
    'a value of another type',
    () => planted('train.steps=many'),
    /planted\.yaml:\d+: train\.steps/,
    /expected number/,
    /config print/,
  ],
  [
    'fields that contradict each other',
    () => planted('selection.keep=9'),
    /planted\.yaml:\d+: selection\.keep/,
    /keeps 9 of a group of 8; lower it/,
    /./,
  ],
  [
    'YAML that cannot be read',
    () => write('planted.yaml', 'model: {from: directory\ntrain: {steps: 3}\n'),
    /planted\.yaml/,
    /line \d/,
    /map of sections/,
  ],
  [
    'a base that does not exist',
    () => write('planted.yaml', 'extends: quikstart\n'),
    /planted\.yaml/,
    /did you mean 'quickstart'/,
    /known recipes/,
  ],
  [
    'a module that throws',
    () => typescript('throws.ts', 'const a = 1\nthrow new Error("no key")\n'),
    /throws\.ts/,
    /no key/,
    /export the recipe/,
  ],
  [
    'a module without a recipe',
    () => typescript('empty.ts', 'export const other = 1\n'),
    /empty\.ts/,
    /exports no 'recipe'/,
    /export const recipe/,
  ],
  // the model
  [
    'a model that is not there',
    () => planted('model.path=/nowhere'),
    /:\d+: model\.path/,
    /'\/nowhere' holds no config\.json/,
    /--set model\.path=DIR/,
  ],
  [
    'a model without a tokenizer',
    () => planted(`model.path=${model('untold', { 'tokenizer.json': '' })}`),
    /:\d+: model\.path/,
    /no tokenizer/,
    /copy the tokenizer/,
  ],
  [
    'a model with a missing shard',
    () =>
      planted(
        `model.path=${model('sharded', { 'model.safetensors.index.json': { weight_map: { a: 'b.safetensors' } } })}`,
      ),
    /:\d+: model\.path/,
    /names b\.safetensors, which is not there/,
    /copy the weights/,
  ],
  [
    'a context longer than the model',
    () => planted('limits.contextTokens=8192'),
    /:\d+: limits\.contextTokens/,
    /8192 is longer than the model's 4096/,
    /lower limits\.contextTokens/,
  ],
  [
    'a template that is not there',
    () => planted('model.template=chat.jinja'),
    /:\d+: model\.template/,
    /chat\.jinja does not exist/,
    /leave model\.template out/,
  ],
  [
    'a template that does not compile',
    () => planted(`model.template=${write('bad.jinja', '{% for m in messages %}')}`),
    /:\d+: model\.template/,
    /does not compile/,
    /correct the chat template/,
  ],
  [
    'prompts longer than the context',
    () => planted(`data.system=${'word '.repeat(600)}`, 'evaluation.problems=0'),
    /:\d+: limits\.contextTokens/,
    /no prompt fits: the shortest has 6\d\d tokens, at most 511/,
    /shorten/,
  ],
  [
    'a cold start whose conversations are longer than the context',
    () => {
      const long = {
        messages: [
          { role: 'user', content: 'word '.repeat(600) },
          { role: 'assistant', content: 'so' },
        ],
      }
      return planted(
        `data.demonstrationsFile=${write('long.jsonl', JSON.stringify(long))}`,
        'coldStart={demonstrations: 1, learningRate: 0.001, epochs: 1, batchSequences: 1, warmupShare: 0}',
      )
    },
    /:\d+: limits\.contextTokens/,
    /no conversation of the cold start fits: the shortest has 6\d\d tokens/,
    /raise limits\.contextTokens/,
  ],
  // the data
  [
    'problems that are not there',
    () => planted('data.file=missing.jsonl'),
    /missing\.jsonl/,
    /cannot be read: .*ENOENT/,
    /give a readable file/,
  ],
  [
    'a file with bad lines',
    () => planted(`data.file=${write('bad.jsonl', `${rows(0, 3)}\nnot JSON\n`)}`),
    /bad\.jsonl:4/,
    /not JSON; 1 of 4 rows/,
    /"problem"/,
  ],
  [
    'fewer problems than the evaluation takes',
    () => planted('evaluation.problems=50'),
    /data|held-out/,
    /asks for 50 problems.* holds 4/,
    /evaluation\.problems=4/,
  ],
  [
    'a cold start without conversations',
    () => planted('coldStart={demonstrations: 4}'),
    /data/,
    /names no demonstrations/,
    /data\.demonstrationsFile/,
  ],
  // rewards
  [
    'an unknown reward',
    () => planted('reward.name=mathh'),
    /:\d+: reward\.name/,
    /did you mean 'math'/,
    /known rewards/,
  ],
  [
    'an unknown reward among weights',
    () => planted('reward.name=weighted', 'reward.weights={math: 0.5, formt: 0.5}'),
    /:\d+: reward\.weights\.formt/,
    /did you mean 'format'/,
    /known rewards/,
  ],
  [
    'a reward that a task names',
    () => typescript('task.ts', recipe().replace("reward: ''", "reward: 'lenght'")),
    /task t\/0/,
    /unknown reward 'lenght'/,
    /known rewards/,
  ],
  [
    'a reward file that is not there',
    () => planted('reward.file=gone.py'),
    /:\d+: reward\.file/,
    /gone\.py does not exist/,
    /give the file/,
  ],
  [
    'Python that does not parse',
    () => planted(`reward.file=${write('syntax.py', 'x = 1\ndef reward(answer, task)\n    return 1\n')}`),
    /syntax\.py:2/,
    /SyntaxError: expected ':'/,
    /def reward\(answer, task\)/,
  ],
  [
    'a reward function of another name',
    () => planted(`reward.file=${write('named.py', 'def score(answer, task):\n    return 1\n')}`),
    /named\.py/,
    /no function 'reward'; its functions: score/,
    /def reward/,
  ],
  [
    'a reward that imports what is not installed',
    () =>
      planted(
        `reward.file=${write('imports.py', 'import os\nimport not_installed\ndef reward(answer, task):\n    return 1\n')}`,
      ),
    /imports\.py:2/,
    /imports 'not_installed'/,
    /correct the file/,
  ],
  // tools
  [
    'an unknown tool',
    () => planted('tools.names=[pythn_notebook]'),
    /:\d+: tools\.names\.0/,
    /did you mean 'python_notebook'/,
    /built-in tools/,
  ],
  [
    'a tool without a function',
    () =>
      typescript(
        'tool.ts',
        recipe().replace(
          'tools: []',
          "tools: [{ name: 'look', description: '', parameters: { type: 'object', properties: {} } }]",
        ),
      ),
    /tool look/,
    /has no function/,
    /toolFunctions: \{ look/,
  ],
  [
    'an MCP server that is not installed',
    () => planted('tools.mcp={files: {command: no-such-server}}'),
    /:\d+: tools\.mcp\.files\.command/,
    /no program 'no-such-server'/,
    /install/,
  ],
  // time and place
  [
    'stale tokens without a correction',
    () => planted('rollout.maxStaleness=2'),
    /train\.correction/,
    /up to 2 policy versions/,
    /docs\/training\.md/,
  ],
  [
    'a deadline below the estimate',
    () =>
      planted(
        'hardware={gpus: 1}',
        'rollout.deadlineMs=3000',
        'rollout.turnTimeoutMs=2500',
        'limits.toolTimeoutMs=1000',
        'reward.timeoutMs=2500',
      ),
    /rollout\.deadlineMs/,
    /longest rollout takes/,
    /estimate-only/,
  ],
  [
    'checkpoints that the disk cannot hold',
    () => planted('train.keepCheckpoints=all', 'train.steps=100000000', 'train.publishedDtype=float32'),
    /troupe-check/,
    /file system has room for/,
    /keepCheckpoints/,
  ],
  [
    'a stage that never begins',
    () => planted(`stages=[${stage('one', ', until: {steps: 10}')}, ${stage('two')}]`),
    /:\d+: stages\.1/,
    /'two' never begins/,
    /raise train\.steps/,
  ],
  [
    'an evaluation on the problems of the training',
    () => planted(`data.evaluationFile=${at('train.jsonl')}`),
    /:\d+: data\.evaluationFile/,
    /also the training file/,
    /not in data\.file/,
  ],
  [
    'a secret that is not set',
    () => planted('engine={kind: vllm, urls: ["http://127.0.0.1:1"], apiKey: {env: TROUPE_NO_SUCH_KEY}}'),
    /:\d+: engine\.apiKey/,
    /TROUPE_NO_SUCH_KEY is not set/,
    /set the variable/,
  ],
]

test('there are at least 30 mistakes', () => expect(mistakes.length).toBeGreaterThanOrEqual(30))

test.each(mistakes)('%s is found, with its place and what to do', async (_title, plant, place, what, cure) => {
  const { faults } = await check(plant())
  expect(faults).toContainEqual(
    expect.objectContaining({
      place: expect.stringMatching(place),
      what: expect.stringMatching(what),
      cure: expect.stringMatching(cure),
    }),
  )
  expect(faults).toHaveLength(1)
})

test('mistakes of every kind in one recipe are all found at once, within three seconds', async () => {
  const file = planted(
    ...[
      'rollout.grupSize=8',
      'train.steps=many',
      'model.path=/nowhere',
      'data.file=missing.jsonl',
      'reward.file=gone.py',
    ],
    ...['tools.names=[pythn]', 'rollout.maxStaleness=2'],
  )
  const begun = performance.now()
  const { faults } = await check(file)
  expect(performance.now() - begun).toBeLessThan(3000)
  const places = faults.map(({ place }) => place).join('\n')
  for (const field of [
    'rollout.grupSize',
    'train.steps',
    'model.path',
    'missing.jsonl',
    'reward.file',
    'tools.names.0',
    'train.correction',
  ])
    expect(places).toContain(field)
  expect(faults).toHaveLength(7)
})
