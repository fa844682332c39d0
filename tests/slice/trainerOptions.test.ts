/** Every field of a recipe that a trainer uses reaches Python, and Python adds none of its own. */
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { grpoOptionsOf, sftOptionsOf, trainerOptionsOf, trainerTimeoutsOf } from '../../backends/trainer/recipeOptions'
import { startTrainer, type TrainerProcess } from '../../backends/trainer/trainerProcess'
import { type RecipeConfig, recipeSchema } from '../../config'
import { pythonPath } from '../../runtime/python'
import { refused } from '../support/refusal'

type Train = RecipeConfig['train']
type Given = Readonly<Record<string, unknown>>

const folder = mkdtempSync(join(tmpdir(), 'troupe-trainer-options-'))
const python = join(folder, 'python')
writeFileSync(python, `#!/bin/sh\nexec '${pythonPath()}' '${join(__dirname, '../support/echoTrainer.py')}' "$@"\n`)
chmodSync(python, 0o755)

let trainer: TrainerProcess
const resolve = (change: object = {}): RecipeConfig =>
  recipeSchema.parse({
    name: 'test',
    model: { from: 'directory', path: '/model' },
    coldStart: { demonstrations: 8 },
    ...change,
  })
const start = (config: RecipeConfig, env: Readonly<Record<string, string>> = {}) =>
  startTrainer({ modelDirectory: '/model', python, env, ...trainerOptionsOf(config), ...trainerTimeoutsOf(config) })

beforeAll(async () => {
  trainer = await start(resolve())
}, 120_000)
afterAll(async () => {
  await trainer?.close()
  rmSync(folder, { recursive: true })
})

/** What Python makes of a step's options. */
const stepOptions = async (config: RecipeConfig): Promise<Given> => {
  const error = await refused(trainer.step([], grpoOptionsOf(config)))
  expect(error.code).toBe('test.echo')
  return JSON.parse(error.message) as Given
}

const difference = (base: Given, other: Given): Given =>
  Object.fromEntries(Object.entries(other).filter(([name, value]) => base[name] !== value))

/** What Python has otherwise where a recipe says a field otherwise than the schema's default. */
const ofSteps = {
  learningRate: [{ learningRate: 0.25 }, { learning_rate: 0.25 }],
  warmupSteps: [{ warmupSteps: 3 }, { warmup_updates: 3 }],
  loss: [{ loss: 'cispo' }, { objective: 'cispo', clip_low: 1, clip_high: 4 }],
  clipLow: [{ clipLow: 0.125 }, { clip_low: 0.125 }],
  clipHigh: [{ clipHigh: 0.5 }, { clip_high: 0.5 }],
  lossNorm: [{ lossNorm: 'group-tokens' }, { loss_norm: 'group-tokens' }],
  dualClip: [{ dualClip: 3 }, { dual_clip: 3 }],
  klCoef: [{ klCoef: 0.5 }, { kl_coef: 0.5 }],
  klEstimator: [{ klEstimator: 'k3-unbiased' }, { kl_estimator: 'k3-unbiased' }],
  correction: [
    { correction: { kind: 'masked', low: 0.25, high: 8 } },
    { correction: 'masked', correction_low: 0.25, correction_high: 8 },
  ],
  tisCap: [{ tisCap: 2 }, { correction: 'truncated', correction_high: 2 }],
  icepop: [{ icepop: { low: 0.25, high: 8 } }, { correction: 'icepop', correction_low: 0.25, correction_high: 8 }],
  miniBatches: [{ miniBatches: 4 }, { mini_batches: 4 }],
  miniBatchUnit: [{ miniBatchUnit: 'sequences' }, { mini_batch_unit: 'sequences' }],
  innerSteps: [{ innerSteps: 2 }, { inner_steps: 2 }],
  microBatchTokens: [{ microBatchTokens: 100 }, { micro_batch_tokens: 100 }],
  maxGradNorm: [{ maxGradNorm: 0.5 }, { max_grad_norm: 0.5 }],
} as const

const ofProcesses = {
  device: [{ device: 'cuda:1' }, { device: 'cuda:1' }],
  dtype: [{ dtype: 'bfloat16', publishedDtype: 'auto' }, { dtype: 'bfloat16' }],
  publishedDtype: [{ publishedDtype: 'bfloat16' }, { published_dtype: 'bfloat16' }],
  threads: [{ threads: 5 }, { threads: 5 }],
  checkpointing: [{ checkpointing: true }, { checkpointing: true }],
  gradientReduction: [{ gradientReduction: 'update' }, { gradient_reduction: 'update' }],
  attention: [{ attention: 'sdpa' }, { attention: 'sdpa' }],
  compile: [{ compile: 'layer' }, { compile: 'layer' }],
  ranks: [{ ranks: 4 }, { ranks: 4 }],
  nodes: [
    { ranks: 2, nodes: 2, rendezvous: 'learner:29400' },
    { ranks: 2, nodes: 2, rendezvous: 'learner:29400' },
  ],
  rendezvous: [{ rendezvous: '[fd00::1]:29400' }, { rendezvous: '[fd00::1]:29400' }],
  lora: [{ lora: {} }, { lora_rank: 16, lora_alpha: 32, lora_targets: 'all-linear' }],
} as const

/** Fields that one process is given at once, since a start takes a second; the rest excludes some of them. */
const givenTogether: readonly (readonly (keyof typeof ofProcesses)[])[] = [
  ['device', 'dtype', 'threads', 'checkpointing', 'gradientReduction', 'attention', 'compile', 'lora'],
  ['publishedDtype', 'rendezvous'],
  ['ranks'],
  ['nodes'],
]

/** Fields that Node alone uses: how long a run is, what is kept of it, how rewards become advantages. */
const ofNode = {
  steps: { steps: 7 },
  checkpointEvery: { checkpointEvery: 7 },
  innerCheckpointEvery: { innerCheckpointEvery: 0 },
  keepVersions: { keepVersions: 7 },
  keepCheckpoints: { keepCheckpoints: 7 },
  advantage: { advantage: 'none' },
  uncorrected: { uncorrected: true },
  overlong: { overlong: { bufferTokens: 64 } },
} as const

// A field of the schema that stands in none of the three tables does not compile.
const places: Record<keyof Train, unknown> = { ...ofSteps, ...ofProcesses, ...ofNode }

test('every field of the train section has its place: in the options of a step, of the processes, or with Node', () => {
  const fields = Object.keys(resolve({ train: { icepop: {}, lora: {}, overlong: { bufferTokens: 1 } } }).train)
  // correction: not beside icepop; rendezvous: only with nodes; innerCheckpointEvery: from the estimate
  fields.push('correction', 'rendezvous', 'innerCheckpointEvery')
  expect(Object.keys(places).sort()).toEqual(fields.sort())
})

test('a step of Python has the value of each field that the recipe states, and no default of its own', async () => {
  const base = await stepOptions(resolve())
  const snake = (name: string) => name.replaceAll(/[A-Z]/g, letter => `_${letter.toLowerCase()}`)
  const sent = Object.entries(grpoOptionsOf(resolve())).map(([name, value]) => [snake(name), value] as const)
  expect(base).toEqual(Object.fromEntries(sent))
  for (const [field, [train, python]] of Object.entries(ofSteps)) {
    expect([field, difference(base, await stepOptions(resolve({ train })))]).toEqual([field, python])
  }
  for (const train of Object.values(ofNode)) expect(await stepOptions(resolve({ train }))).toEqual(base)
  expect(difference(base, await stepOptions(resolve({ seed: 5 })))).toEqual({ mini_batch_seed: 5 })
  const warm = { rollout: { sampling: { temperature: 0.5 } } }
  expect(difference(base, await stepOptions(resolve(warm)))).toEqual({ temperature: 0.5 })
  const constant = { train: { loss: 'dr-grpo' }, limits: { responseTokens: 77 } }
  expect(await stepOptions(resolve(constant))).toMatchObject({ loss_norm: 'constant', constant_tokens: 77 })
})

test("the trainer's processes have the value of each field that the recipe states", async () => {
  const base = JSON.parse(trainer.info.model) as Given
  const { device, dtype, threads, checkpointing, ranks, lora } = resolve().train
  expect(base).toMatchObject({ device, dtype, threads, checkpointing, ranks, seed: resolve().seed, lora_rank: null })
  expect(lora).toBeUndefined()
  expect(givenTogether.flat().sort()).toEqual(Object.keys(ofProcesses).sort())
  const changes = givenTogether.map(names => ({
    train: Object.assign({}, ...names.map(name => ofProcesses[name][0])) as object,
    python: Object.assign({ seed: 9 }, ...names.map(name => ofProcesses[name][1])) as Given,
  }))
  const seen = await Promise.all(
    changes.map(async ({ train }) => {
      const other = await start(resolve({ train, seed: 9 }))
      await other.close()
      const { socket: _, ...given } = difference(base, JSON.parse(other.info.model) as Given)
      return given
    }),
  )
  expect(seen).toEqual(changes.map(({ python }) => python))
}, 120_000)

test('the processes have the time that the recipe gives their start and the wait for another rank', async () => {
  const other = await start(resolve({ timeouts: { rankWaitMs: 1_500_500 } }))
  await other.close()
  const base = JSON.parse(trainer.info.model) as Given
  expect(base).toMatchObject({ rank_timeout: 600 })
  expect(JSON.parse(other.info.model)).toMatchObject({ rank_timeout: 1500.5 })
  const error = await refused(start(resolve({ timeouts: { trainerStartMs: 1 } })))
  expect([error.code, error.message]).toEqual(['process.start_timeout', expect.stringContaining('within 1 ms')])
}, 120_000)

test('each call of the trainer ends after the time that the recipe gives it', async () => {
  const config = resolve({ timeouts: { sftMs: 101, stepMs: 102, saveMs: 103, loadMs: 104 } })
  const silent = await start(config, { ECHO_SILENT: '1' })
  const calls = [
    () => silent.sft({ directory: '', digest: '', examples: 0 }, sftOptionsOf(config.coldStart!, 11), () => {}),
    () => silent.step([], grpoOptionsOf(config)),
    () => silent.save('/nowhere', false),
    () => silent.load('/nowhere'),
  ]
  for (const [k, call] of calls.entries()) {
    const { code, message } = await refused(call())
    expect([code, message]).toEqual(['trainer.timeout', expect.stringContaining(`${101 + k} ms`)])
  }
  await silent.close()
}, 120_000)

test('fine-tuning in Python has the value of each field of coldStart', async () => {
  const coldStart = { learningRate: 0.5, epochs: 7, batchSequences: 5, warmupShare: 0.25, maxGradNorm: 0.125 }
  const config = resolve({ coldStart: { demonstrations: 8, ...coldStart } })
  const error = await refused(
    trainer.sft({ directory: '', digest: '', examples: 0 }, sftOptionsOf(config.coldStart!, 11), () => {}),
  )
  expect(JSON.parse(error.message)).toEqual({
    learning_rate: 0.5,
    epochs: 7,
    batch_sequences: 5,
    warmup_share: 0.25,
    max_grad_norm: 0.125,
    seed: 11,
  })
})

test('a step whose caller leaves an option out is refused by its name', async () => {
  const { correction: _, ...rest } = grpoOptionsOf(resolve())
  const error = await refused(trainer.step([], rest as never))
  expect(error).toMatchObject({
    code: 'trainer.bad_option',
    message: expect.stringContaining('StepOptions lacks correction:'),
  })
})
