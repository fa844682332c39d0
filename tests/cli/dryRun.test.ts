/** A dry run makes one real step through the whole system, says what it reduced, and estimates the real run. */
import { existsSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { reduce } from '../../cli/dryRun/reduced'
import { recipeSchema } from '../../config'
import { estimate } from '../../config/estimate/estimate'
import { headChunkRows } from '../../config/estimate/headChunk'
import { recipes } from '../../recipes'
import { loadRecipe } from '../../recipes/load/loadRecipe'
import { qwen3At14b } from '../../recipes/rstar2/architectures'
import { parseConfig } from '../../runtime/settings/resolveConfig'
import { endAll, type Running, troupe } from '../support/cli'
import { troupeHere } from '../support/troupeHere'

jest.setTimeout(400_000)

const folder = mkdtempSync(join(tmpdir(), 'troupe-dry-test-'))
const running: Running[] = []
afterAll(async () => {
  await endAll(running)
  rmSync(folder, { recursive: true, force: true })
})
function start(args: readonly string[]): Running {
  const run = troupe(args, { TMPDIR: folder }, folder)
  running.push(run)
  return run
}

test.each([
  ['rstar2', 64, 'qwen3'],
  ['rstar2-8gpu', 8, 'qwen3'],
])(
  '%s: one step on a model of its architecture, without its weights, its data or a GPU; nothing is left behind',
  async (name, gpus, architecture) => {
    const { code, stdout, stderr } = await start(['train', name, '--dry-run', '--json']).done
    expect([code, stderr]).toEqual([0, ''])
    const line = JSON.parse(stdout)
    expect(line).toMatchObject({
      type: 'dry-run',
      recipe: name,
      outcome: 'done',
      hardware: { gpus },
      data: { found: false },
    })
    expect(line.step.rollouts).toBeGreaterThanOrEqual(32)
    expect(line.step.metrics.trainedTokens).toBeGreaterThan(0)
    expect(line.step.metrics.gradNorm).toBeGreaterThan(0)
    expect(line.estimate.faults).toEqual([])
    expect(line.reduced).toContainEqual({ path: 'rollout.groupsPerStep', from: 512, to: 4 })
    expect(line.reduced).toContainEqual({ path: 'model.config.num_hidden_layers', from: 40, to: 2 })
    expect(architecture).toBe('qwen3')
    expect(readdirSync(folder).filter(entry => entry.startsWith('troupe-dry-'))).toEqual([])
  },
)

test.each(['gsm8k-qwen2.5-0.5b', 'math-qwen3-4b-lora'])(
  '%s: a step on a model of its architecture, with answers where its reward reads them',
  async name => {
    const { code, stdout, stderr } = await start(['train', name, '--dry-run', '--json']).done
    expect([code, stderr]).toEqual([0, ''])
    const { outcome, hardware, step, estimate } = JSON.parse(stdout)
    expect({ outcome, gpus: hardware.gpus, faults: estimate.faults }).toEqual({ outcome: 'done', gpus: 1, faults: [] })
    expect(step.metrics.gradNorm).toBeGreaterThan(0)
  },
)

test.each([
  [151_936, 'cuda', 1766],
  [49_152, 'cuda', 5461],
  [151_936, 'cpu', 256],
  [49_152, 'cpu', 256],
  [500, 'cpu', 8388],
] as const)(
  'a chunk of the head of %i words on %s has %i tokens, as the trainer has it',
  (vocabulary, device, rows) => {
    // policy/tests/model/test_logprobs.py holds the trainer against the same figures.
    expect(headChunkRows(vocabulary, device)).toBe(rows)
  },
)

test('the estimate counts the chunk that the trainer makes, and no more than a micro-batch', () => {
  const peak = (...overrides: string[]) => figureOf(of('rstar2', overrides), 'trainer: working set')!.formula
  expect(peak()).toContain('1,766 tokens × 151936 logits a chunk')
  expect(peak('train.microBatchTokens=1000')).toContain('1,000 tokens × 151936 logits a chunk')
  // A frozen head has no gradient of 151,936 × 5,120 numbers, which takes 2 bytes each at least.
  const working = (...overrides: string[]) =>
    memory(of('rstar2', ['train.microBatchTokens=2000', ...overrides]), 'trainer: working set')!
  expect(working() - working('train.lora={}')).toBeGreaterThan((2 * 151_936 * 5120) / 2 ** 30)
})

function of(name: string, overrides: readonly string[] = []) {
  const { value } = loadRecipe(name, overrides).config
  if (value.model.from !== 'directory') throw new Error('not a directory')
  return estimate(value, value.model.architecture!, value.hardware!)
}
const memory = (estimated: ReturnType<typeof of>, what: string) => figureOf(estimated, what)?.value
const figureOf = (estimated: ReturnType<typeof of>, what: string) =>
  estimated.memory.find(figure => figure.what === what)

test('parameters are those of the published models, and memory follows from them by the formulas that are shown', () => {
  const paper = of('rstar2')
  // 14.8e9 and 32.8e9, as their owners say.
  expect(paper.parameters / 1e9).toBeCloseTo(14.77, 2)
  expect(of('rstar2-32b').parameters / 1e9).toBeCloseTo(32.76, 2)
  expect(memory(paper, 'trainer: optimizer')).toBeCloseTo((8 * paper.parameters) / 64 / 2 ** 30, 6)
  expect(memory(of('rstar2-8gpu'), 'trainer: optimizer')).toBeCloseTo(8 * memory(paper, 'trainer: optimizer')!, 6)
  // 40 layers × 8 heads × 128 × 2 (keys, values) × 2 bytes.
  expect(paper.memory.find(figure => figure.what === 'engine: KV cache')!.formula).toContain('163840 bytes a token')
  expect(paper.tokens[0]).toMatchObject({ value: 16_384 })
  expect(of('rstar2', ['train.ranks=1', 'train.nodes=1', 'hardware.gpus=1', 'engine.count=1']).faults).toEqual([
    expect.stringMatching(
      /^a GPU while the trainer works: trainer 258\.\d \+ sleeping engine 2\.0 = 260\.\d GiB, but a GPU has 192/,
    ),
  ])
  expect(of('rstar2-8gpu', ['train.ranks=16']).faults).toContainEqual(
    expect.stringMatching(/^train\.ranks 16 exceeds hardware\.gpus 8: /),
  )
})

test('what lies on one GPU is added up by the plan, and what does not fit is refused with the sum', () => {
  const gpu = (what: string, ...overrides: string[]) => memory(of('rstar2-8gpu', overrides), what)!
  const plan = (text: string) => `hardware.plan=${text}`
  const trainer = gpu('a GPU while the trainer works') - 2
  expect(of('rstar2-8gpu').faults).toEqual([])
  expect(gpu('a GPU while engines generate')).toBeCloseTo(0.8 * 80 + 1, 6)
  const kept = of('rstar2-8gpu', [plan('{kind: colocated, offloadTrainer: false}')])
  const resting = memory(kept, 'trainer: weights')! + memory(kept, 'trainer: optimizer')!
  expect(memory(kept, 'a GPU while engines generate')).toBeCloseTo(64 + resting, 6)
  expect(kept.faults).toEqual([
    expect.stringMatching(
      /^a GPU while engines generate: engine 64\.0 \+ resting trainer 20\.6 = 84\.6 GiB, but a GPU has 80/,
    ),
  ])
  const split = of('rstar2-8gpu', [plan('{kind: split}'), 'engine.count=2', 'train.ranks=4'])
  expect(memory(split, 'a GPU that trains')).toBeGreaterThan(trainer)
  expect(split.faults).toEqual([])
  expect(of('rstar2-8gpu', [plan('{kind: split}')]).faults).toContainEqual(
    expect.stringMatching(/^4 engines × 2 GPUs \+ 8 ranks = 16 GPUs, but this host has 8: lower engine\.count/),
  )
  const level1 = of('rstar2-8gpu', [plan('{kind: colocated, sleepLevel: 1}'), 'hardware.hostMemoryGib=200'])
  expect(level1.faults).toEqual([
    expect.stringMatching(/^a host needs trainer 165\.\d \+ sleeping engines 110\.\d = 275\.\d GiB, but has 200/),
  ])
})

test('engines and trainer that share a GPU at the same time must fit together', () => {
  const local = ['engine.launch=null', 'engine.kind=local', 'engine.kvTokens=262144', 'engine.count=1']
  const { value } = loadRecipe('rstar2-8gpu', local).config
  const { plan: _, ...hardware } = value.hardware!
  const { faults } = estimate(value, value.model.from === 'directory' ? value.model.architecture! : {}, hardware)
  // 27.5 of weights and 40 of 262,144 tokens × 163,840 bytes.
  expect(faults).toEqual([
    expect.stringMatching(
      /^a GPU that generates and trains at once: engine 67\.5 \+ trainer 43\.4 = 110\.9 GiB, but a GPU has 80/,
    ),
  ])
})

test('a step costs what the trainer computes: each product, attention by the square of lengths, what ranks send', () => {
  const { gpus, tflops, trainUtilization } = loadRecipe('rstar2').config.value.hardware!
  const { hidden_size: h, num_hidden_layers: layers, num_attention_heads: heads } = qwen3At14b
  const { intermediate_size: inner, vocab_size: words, num_key_value_heads: kv } = qwen3At14b
  const down = layers * h * inner
  const matrices = layers * (2 * h * (heads + kv) * 128 + 3 * h * inner)
  // A token attends to itself and to those before it.
  const pairs = (tokens: number) => (4 * layers * heads * 128 * (tokens + 1)) / 2
  const flops = (...overrides: string[]) => {
    const { time, tokens } = of('rstar2', overrides)
    const seconds = time.find(figure => figure.what === 'training: products')!.value
    const trained = tokens.find(figure => figure.what === 'trained tokens a step')!.value
    return (seconds * gpus * tflops * 1e12 * trainUtilization) / trained
  }
  const forward = 2 * matrices + 2 * words * h + pairs(6144)
  const once = 2 * 3 * matrices + 4 * 2 * words * h + 3.5 * pairs(6144)
  const again = 2 * (matrices - down) + pairs(6144)
  expect(flops() / (once + again)).toBeCloseTo(1, 6)
  expect(flops('train.checkpointing=false') / once).toBeCloseTo(1, 6)
  expect(flops('train.innerSteps=2') / (2 * (once + again))).toBeCloseTo(1, 6)
  expect(flops('train.innerSteps=2', 'train.klCoef=0.001') / (2 * (once + again) + forward)).toBeCloseTo(1, 6)
  // π_old is scored for three of four mini-batches, unless it is the engine's.
  expect(flops('train.miniBatches=4') / (once + again + 0.75 * forward)).toBeCloseTo(1, 6)
  const byEngine = 'train.correction={kind: engine-logprobs}'
  expect(flops('train.miniBatches=4', byEngine) / (once + again)).toBeCloseTo(1, 6)
})

test('ranks of one host send over NVLink, those of several over the network, and one reduction an update sends less', () => {
  const sent = (name: string, ...overrides: string[]) =>
    of(name, overrides).time.find(figure => figure.what === 'training: between ranks')!.value
  expect(sent('gsm8k-qwen2.5-0.5b')).toBe(0)
  expect(sent('rstar2-8gpu') / sent('rstar2-8gpu', 'hardware.interconnectGBps=45')).toBeCloseTo(0.1, 6)
  expect(sent('rstar2', 'train.gradientReduction=update')).toBeLessThan(
    0.6 * sent('rstar2', 'train.gradientReduction=micro-batch'),
  )
})

test('a base of adapters is float32; what a rank keeps on the host for inner steps and a reference is counted apart', () => {
  const lora = of('rstar2', ['train.lora={rank: 16}'])
  const shard = (bytes: number) => bytes / 64 / 2 ** 30
  const adapters = memory(lora, 'trainer: optimizer')! / shard(8)
  expect(memory(lora, 'trainer: weights')).toBeCloseTo(shard(4 * (lora.parameters + adapters)), 6)
  const plain = of('rstar2')
  const kept = of('rstar2', ['train.innerSteps=2', 'train.klCoef=0.001'])
  expect(plain.memory.filter(figure => figure.unit.includes('host'))).toEqual([])
  expect(memory(kept, 'trainer: snapshot')).toBeCloseTo(shard(12 * plain.parameters), 6)
  expect(memory(kept, 'trainer: reference')).toBeCloseTo(shard(8 * plain.parameters), 6)
})

test('every recipe can be made small: what comes out is a recipe that is checked like any other', () => {
  for (const name of recipes.keys()) {
    const { value } = loadRecipe(name).config
    const architecture =
      value.model.from === 'random' ? value.model.config : (value.model.architecture ?? { model_type: 'llama' })
    const { config, changes } = reduce(value, architecture, '/template')
    expect(() => parseConfig(recipeSchema, config, name)).not.toThrow()
    expect(changes.map(({ path }) => path)).toContain('model.config.hidden_size')
  }
})

test.each([
  ['a dry run', ['--dry-run']],
  ['a run', []],
])('stale tokens without a correction are refused before %s starts anything', async (_title, dry) => {
  const args = ['train', 'rstar2', '--set', 'rollout.maxStaleness=2', ...dry]
  const { code, stdout, stderr } = await troupeHere(args)
  expect({ code, stdout }).toEqual({ code: 2, stdout: '' })
  expect(stderr).toMatch(/train\.correction: rollout\.maxStaleness 2 .* up to 2 policy versions/)
})

test('--estimate-only prints the estimate without a step; a deadline below it is a fault with the sum, and exit code 1', async () => {
  const estimateOf = (...set: string[]) =>
    troupeHere(['train', 'rstar2-8gpu', '--dry-run', '--estimate-only', '--json', ...set])
  const [fits, short] = await Promise.all([estimateOf(), estimateOf('--set', 'rollout.deadlineMs=300000')])
  expect([fits.code, fits.stderr, short.code]).toEqual([0, '', 1])
  expect(JSON.parse(fits.stdout)).toMatchObject({ type: 'estimate', recipe: 'rstar2-8gpu', estimate: { faults: [] } })
  expect(JSON.parse(short.stdout).estimate.faults).toEqual([
    expect.stringMatching(/^rollout\.deadlineMs is 300 s, but the longest rollout takes \d+ s by the estimate \(/),
  ])
  const { code, stderr } = await troupeHere(['train', 'rstar2-8gpu', '--estimate-only'])
  expect([code, stderr]).toEqual([2, expect.stringContaining('--estimate-only belongs to --dry-run')])
})

test('a run whose step has less time than the estimate is refused before anything of it exists', async () => {
  const bus = `lmdb:${join(folder, 'bus')}`
  const { code, stderr } = await troupeHere(['train', 'rstar2-8gpu', '--set', 'timeouts.stepMs=360000', '--bus', bus])
  expect([code, existsSync(join(folder, 'bus'))]).toEqual([2, false])
  expect(stderr).toMatch(/timeouts\.stepMs is 360 s, but the optimizer step takes \d{4} s[\s\S]*code: config\.problems/)
})

test('a model whose architecture nobody has said is refused, with what to write', async () => {
  const file = join(folder, 'mine.yaml')
  writeFileSync(file, 'model: {from: directory, path: /nowhere}\ndata: {file: x.jsonl}\n')
  const { code, stderr } = await troupeHere(['train', file, '--dry-run'])
  expect(code).toBe(2)
  expect(stderr).toMatch(
    /mine\.yaml:1: model\.path: '\/nowhere' holds no config\.json[\s\S]*model\.architecture[\s\S]*x\.jsonl: cannot be read/,
  )
})
