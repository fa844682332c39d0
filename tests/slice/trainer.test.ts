/**
 * The real trainer process over gRPC, on a model of a few thousand parameters that the test makes.
 */
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type SftData, writeExamples } from '../../backends/trainer/exampleFiles'
import type { SavedPartial, SftExample, SftOptions, TrainSequence } from '../../backends/trainer/trainer'
import { startTrainer, type TrainerProcess } from '../../backends/trainer/trainerProcess'
import type { TroupeError } from '../../runtime/errors'
import { refused } from '../support/refusal'
import { makeTinyModel } from '../support/tinyModel'
import { grpoOptions, trainerOptions } from '../support/trainerOptions'

const folder = mkdtempSync(join(tmpdir(), 'troupe-trainer-test-'))
const modelDirectory = join(folder, 'model')

const grpo = grpoOptions({ learningRate: 1e-3, microBatchTokens: 256, tisCap: 2 })
const sft: SftOptions = {
  learningRate: 5e-3,
  epochs: 8,
  batchSequences: 8,
  warmupShare: 0.1,
  maxGradNorm: 1,
  seed: 1,
}

/** A small corpus: sentences that count, of 20 tokens. */
const corpus: readonly SftExample[] = Array.from({ length: 64 }, (_, n) => ({
  tokens: Int32Array.from({ length: 20 }, (_, at) => 60 + ((n + at) % 10)),
  mask: Uint8Array.from({ length: 20 }, (_, at) => (at < 4 ? 0 : 1)),
}))

function sequences(advantage: (member: number) => number): readonly TrainSequence[] {
  return corpus.slice(0, 8).map(({ tokens, mask }, member) => ({
    trajectory: `g${member >> 2}/${member % 4}`,
    tokens,
    mask,
    engineLogprobs: Float32Array.from(mask, trained => (trained ? -2 : 0)),
    advantage: advantage(member),
    group: member >> 2,
  }))
}

let trainer: TrainerProcess
let data: SftData
let saves = 0
const digest = async () => (await trainer.save(join(folder, `digest-${saves++}`), false)).digest

beforeAll(async () => {
  await makeTinyModel(modelDirectory)
  data = await writeExamples(join(folder, 'demonstrations'), corpus, 200)
  trainer = await startTrainer({ modelDirectory, ...trainerOptions, seed: 1 })
}, 240_000)

afterAll(async () => {
  await trainer?.close()
  rmSync(folder, { recursive: true, force: true })
}, 30_000)

test('the process says which model it trains, where and in what', () => {
  expect(trainer.info).toMatchObject({ model: modelDirectory, device: 'cpu', dtype: 'float32' })
  expect(trainer.info.parameters).toBeGreaterThan(10_000)
  expect(Object.keys(trainer.info.versions).sort()).toEqual(['torch', 'transformers'])
})

test('fine-tuning on a small corpus lowers the loss and ends with its progress at one', async () => {
  const before = await digest()
  const seen: number[] = []
  const metrics = await trainer.sft(data, sft, done => seen.push(done))
  expect(metrics.loss).toBeLessThan(0.5 * metrics.firstLoss!)
  expect(metrics).toMatchObject({ sequences: 64, steps: 64, trainedTokens: 8 * 64 * 16 })
  expect(seen.at(-1)).toBe(1)
  expect(seen).toEqual([...seen].sort((a, b) => a - b))
  expect(await digest()).not.toBe(before)
}, 120_000)

test('a step changes the weights and answers with numbers that are all finite', async () => {
  const before = await digest()
  const metrics = await trainer.step(
    sequences(member => (member % 2 ? 1 : -1)),
    grpo,
  )
  expect(metrics).toMatchObject({ sequences: 8, trainedTokens: 8 * 16, clipFraction: 0, lr: 1e-3 })
  expect(Object.values(metrics).filter(value => !Number.isFinite(value))).toEqual([])
  expect(metrics.gradNorm).toBeGreaterThan(0)
  expect(await digest()).not.toBe(before)
}, 60_000)

test('a step that is not finite is rejected by that name and leaves weights and optimizer as they were', async () => {
  await trainer.save(join(folder, 'before'), true)
  const error = await refused(
    trainer.step(
      sequences(member => (member === 3 ? Number.NaN : 1)),
      grpo,
    ),
  )
  expect(error).toMatchObject({ code: 'trainer.not_finite', boundary: 'trainer', retriable: false })
  await trainer.save(join(folder, 'after'), true)
  for (const file of ['model.safetensors', 'training/__0_0.distcp']) {
    expect(readFileSync(join(folder, 'after', file)).equals(readFileSync(join(folder, 'before', file)))).toBe(true)
  }
}, 60_000)

test('training goes on from a checkpoint as if nothing had happened, in another process, too', async () => {
  const directory = join(folder, 'checkpoint')
  const batch = sequences(member => (member % 2 ? 1 : -1))
  await trainer.save(directory, true)
  await trainer.step(batch, grpo)
  const want = await digest()
  await trainer.load(directory)
  await trainer.step(batch, grpo)
  expect(await digest()).toBe(want)

  const other = await startTrainer({ modelDirectory, ...trainerOptions, seed: 9 })
  try {
    await other.load(directory)
    await other.step(batch, grpo)
    expect((await other.save(join(folder, 'other'), false)).digest).toBe(want)
  } finally {
    await other.close()
  }
}, 240_000)

test('a checkpoint has what transformers needs, and its digest is that of the weights', async () => {
  const directory = join(folder, 'complete')
  const { digest: saved, bytes } = await trainer.save(directory, true)
  expect(readdirSync(directory)).toEqual(
    expect.arrayContaining(['config.json', 'model.safetensors', 'training', 'tokenizer.json']),
  )
  expect(JSON.parse(readFileSync(join(directory, 'manifest.json'), 'utf8'))).toMatchObject({ digest: saved, bytes })
}, 60_000)

test('a reset forgets the optimizer: the same weights are trained on with other moments', async () => {
  const batch = sequences(member => (member % 2 ? 1 : -1))
  const directory = join(folder, 'before-reset')
  await trainer.step(batch, grpo)
  await trainer.save(directory, true)
  await trainer.reset({ optimizer: true, reference: true })
  expect(existsSync(join(directory, 'training'))).toBe(true)
  await trainer.save(join(folder, 'after-reset'), true)
  const manifest = JSON.parse(readFileSync(join(folder, 'after-reset/manifest.json'), 'utf8'))
  expect(manifest.optimizer.updates).toBe(0)
  expect(manifest.digest).toBe(JSON.parse(readFileSync(join(directory, 'manifest.json'), 'utf8')).digest)
  await trainer.step(batch, grpo)
  const fresh = await digest()
  await trainer.load(directory)
  await trainer.step(batch, grpo)
  expect(await digest()).not.toBe(fresh)
}, 120_000)

test('a checkpoint that is not there is refused with its name', async () => {
  const error = await refused(trainer.load(join(folder, 'nowhere')))
  expect(error).toMatchObject({ code: 'trainer.no_checkpoint', boundary: 'trainer', retriable: false })
  expect(error.message).toContain('nowhere')
})

test('a second call while one works is refused as busy, and the first one goes on', async () => {
  let begun = () => {}
  const working = new Promise<void>(resolve => {
    begun = resolve
  })
  const first = trainer.sft(data, { ...sft, epochs: 40 }, () => begun())
  await working
  const error = await refused(
    trainer.step(
      sequences(() => 1),
      grpo,
    ),
  )
  expect(error).toMatchObject({ code: 'trainer.busy', retriable: true })
  expect((await first).loss).toBeGreaterThan(0)
}, 120_000)

test('a call that is over its deadline ends with the weights as they were, and the trainer is free again', async () => {
  const impatient = await startTrainer({ modelDirectory, ...trainerOptions, sftTimeoutMs: 1_500 })
  try {
    const before = (await impatient.save(join(folder, 'patient'), false)).digest
    const error = await refused(impatient.sft(data, { ...sft, epochs: 100_000 }, () => {}))
    expect(error).toMatchObject({ code: 'trainer.timeout', retriable: true })
    const saveWhenFree = async (): Promise<string> => {
      try {
        return (await impatient.save(join(folder, 'patient'), false)).digest
      } catch (thrown) {
        if ((thrown as TroupeError).code !== 'trainer.busy') throw thrown
        await new Promise(resolve => setTimeout(resolve, 100))
        return saveWhenFree()
      }
    }
    expect(await saveWhenFree()).toBe(before)
  } finally {
    await impatient.close()
  }
}, 120_000)

test('a trainer that dies in a call rejects it as lost, and no process stays', async () => {
  const doomed = await startTrainer({ modelDirectory, ...trainerOptions })
  const working = refused(doomed.sft(data, { ...sft, epochs: 100_000 }, () => {}))
  await new Promise(resolve => setTimeout(resolve, 300))
  process.kill(doomed.pid, 'SIGKILL')
  expect(await working).toMatchObject({ code: 'trainer.lost', retriable: true })
  expect((await doomed.lost).message).toContain('SIGKILL')
  expect(existsSync(`/proc/${doomed.pid}`)).toBe(false)
  await doomed.close()
}, 120_000)

test('a trainer that is killed in the middle of fine-tuning is followed by one that ends with the same weights', async () => {
  // 320 updates, so that the kill comes long before the last of them, however late the report of the second checkpoint arrives.
  const options = { ...sft, epochs: 20, batchSequences: 4 }
  const start = () => startTrainer({ modelDirectory, ...trainerOptions, seed: 1 })
  const digestOf = async (of: TrainerProcess, name: string) => (await of.save(join(folder, name), false)).digest
  const doomed = await start()
  const saved: SavedPartial[] = []
  const dead = refused(
    doomed.sft(data, options, () => {}, {
      ...{ prefix: join(folder, 'sft-'), every: 20 },
      onSaved: one => {
        if (saved.push(one) === 2) process.kill(doomed.pid, 'SIGKILL')
      },
    }),
  )
  expect(await dead).toMatchObject({ code: 'trainer.lost' })
  await doomed.close()
  expect(saved.slice(0, 2).map(({ updates }) => updates)).toEqual([20, 40])
  const [whole, second] = [await start(), await start()]
  try {
    const want = await whole.sft(data, options, () => {})
    const resume = { prefix: '', every: 0, resume: saved[1]!.directory, onSaved: () => {} }
    const got = await second.sft(data, options, () => {}, resume)
    expect(got).toMatchObject({ loss: want.loss, firstLoss: want.firstLoss, steps: 320, lr: want.lr })
    expect(await digestOf(second, 'went-on')).toBe(await digestOf(whole, 'never-stopped'))
  } finally {
    await Promise.all([whole.close(), second.close()])
  }
}, 240_000)

test('a directory without a model is refused at the start, and says why', async () => {
  const error = await refused(startTrainer({ modelDirectory: join(folder, 'empty'), ...trainerOptions }))
  expect(error).toMatchObject({ code: 'process.start_failed' })
  expect(error.message).toContain('empty')
}, 120_000)

test('a trainer that is killed in the middle of a step is followed by one that ends the step with the same weights', async () => {
  const options = { ...grpo, miniBatches: 2, innerSteps: 2, learningRate: 1e-2 }
  const start = () => startTrainer({ modelDirectory, ...trainerOptions, seed: 1 })
  const doomed = await start()
  const saved: SavedPartial[] = []
  const onSaved = (one: SavedPartial) => {
    if (saved.push(one) === 1) process.kill(doomed.pid, 'SIGKILL')
  }
  const eight = sequences(member => (member % 2) - 0.5)
  const many = Array.from({ length: 256 }, (_, at) => ({ ...eight[at % 8]!, trajectory: `g/${at}`, group: at >> 2 }))
  const on = { prefix: join(folder, 'step-u'), every: 1, owner: '1/0', onSaved }
  expect(await refused(doomed.step(many, options, on))).toMatchObject({ code: 'trainer.lost' })
  await doomed.close()
  expect(saved[0]).toMatchObject({ directory: `${on.prefix}000001`, updates: 1 })
  const second = await start()
  try {
    const digestOf = async (name: string) => (await second.save(join(folder, name), false)).digest
    const other = { ...on, every: 0, owner: '2/0', resume: saved[0]!.directory }
    expect(await refused(second.step(many, options, other))).toMatchObject({ code: 'trainer.other_call' })
    const got = await second.step(many, options, { ...other, owner: '1/0' })
    const digest = await digestOf('step-went-on')
    await second.load(modelDirectory)
    expect(await second.step(many, options)).toMatchObject({ loss: got.loss, updates: 4, klEngine: got.klEngine })
    expect(await digestOf('step-whole')).toBe(digest)
  } finally {
    await second.close()
  }
}, 240_000)
