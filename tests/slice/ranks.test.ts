/**
 * The trainer as two processes (torchrun, FSDP2 over gloo) behind the same gRPC service.
 */
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type Lifeline, lifeline } from '../../actors/run/lifeline'
import type { TrainSequence } from '../../backends/trainer/trainer'
import { startTrainer, type TrainerProcess } from '../../backends/trainer/trainerProcess'
import { systemEffects } from '../../runtime/effects'
import { descendantsOf } from '../support/descendants'
import { refused } from '../support/refusal'
import { makeTinyModel } from '../support/tinyModel'
import { grpoOptions, trainerOptions } from '../support/trainerOptions'
import { until } from '../support/until'

const folder = mkdtempSync(join(tmpdir(), 'troupe-ranks-test-'))
const modelDirectory = join(folder, 'model')
const start = () => startTrainer({ modelDirectory, ...trainerOptions, seed: 1, ranks: 2 })

const grpo = grpoOptions({ learningRate: 1e-3, microBatchTokens: 64 })

const sequences = (count: number): readonly TrainSequence[] =>
  Array.from({ length: count }, (_, n) => ({
    trajectory: `g0/${n}`,
    tokens: Int32Array.from({ length: 20 }, (_, at) => 60 + ((n + at) % 10)),
    mask: Uint8Array.from({ length: 20 }, (_, at) => (at < 4 ? 0 : 1)),
    engineLogprobs: new Float32Array(20).fill(-2),
    advantage: n % 2 ? 1 : -1,
    group: 0,
  }))

/** The pids of the ranks: torchrun's children, by rank. */
function ranksOf({ pid }: TrainerProcess): readonly number[] {
  const children = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim().split(' ').map(Number)
  const rankOf = (child: number) =>
    Number(/(?:^|\0)RANK=(\d+)\0/.exec(readFileSync(`/proc/${child}/environ`, 'utf8'))?.[1] ?? Number.NaN)
  return children.filter(child => !Number.isNaN(rankOf(child))).sort((a, b) => rankOf(a) - rankOf(b))
}

async function untilGone(pids: readonly number[]): Promise<void> {
  for (let tries = 0; tries < 300; tries++) {
    if (pids.every(pid => !existsSync(`/proc/${pid}`))) return
    await new Promise(resolve => setTimeout(resolve, 100))
  }
  throw new Error(`of ${pids.join(', ')} some live on`)
}

/** A trainer of two ranks, which is started again when it dies. */
let trainers: Lifeline<TrainerProcess>

beforeAll(async () => {
  await makeTinyModel(modelDirectory)
  trainers = lifeline<TrainerProcess>({
    name: 'trainer',
    start,
    onFailed: error => {
      throw error
    },
    fx: systemEffects,
  })
}, 180_000)

afterAll(async () => {
  await trainers?.close()
  rmSync(folder, { recursive: true, force: true })
}, 60_000)

test('two ranks answer as one: the same loss, refusals that leave both in step, a checkpoint that one goes on from', async () => {
  const [two, one] = await Promise.all([
    trainers.current(),
    startTrainer({ modelDirectory, ...trainerOptions, seed: 1 }),
  ])
  try {
    const pids = [two.pid, ...ranksOf(two)]
    expect(two.info).toMatchObject({ ranks: 2, device: 'cpu' })
    expect(pids).toHaveLength(3)
    for (const count of [7, 1]) {
      const [alone, both] = [await one.step(sequences(count), grpo), await two.step(sequences(count), grpo)]
      expect(both.loss).toBeCloseTo(alone.loss!, 5)
      expect(both.gradNorm).toBeCloseTo(alone.gradNorm!, 4)
    }
    const nan = [{ ...sequences(1)[0]!, advantage: Number.NaN }]
    expect(await refused(two.step(nan, grpo))).toMatchObject({ code: 'trainer.not_finite', retriable: false })
    expect(await refused(two.load(join(folder, 'nowhere')))).toMatchObject({ code: 'trainer.no_checkpoint' })
    await two.reset({ optimizer: false, reference: true })
    await two.save(join(folder, 'two'), true)
    await one.load(join(folder, 'two'))
    const [alone, both] = [await one.step(sequences(4), grpo), await two.step(sequences(4), grpo)]
    expect(both.loss).toBeCloseTo(alone.loss!, 5)
  } finally {
    await one.close()
  }
}, 300_000)

test('a rank that is killed while it starts is a failure that a new start may mend', async () => {
  const others = ranksOf(await trainers.current())
  const refusedStart = refused(start())
  const isRank1 = (pid: number) => {
    try {
      return readFileSync(`/proc/${pid}/environ`, 'utf8').includes('\0RANK=1\0')
    } catch {
      return false // it has ended
    }
  }
  const rank = () => descendantsOf(process.pid).find(pid => !others.includes(pid) && isRank1(pid))
  await until(() => rank() !== undefined, 120_000, 20)
  process.kill(rank()!, 'SIGKILL')
  expect(await refusedStart).toMatchObject({ code: 'process.start_failed', retriable: true })
}, 300_000)

test('a rank that dies is said by a code, ends the others, and the step is done by those that come after it, which end with their trainer', async () => {
  const first = await trainers.current()
  const ranks = ranksOf(first)
  await first.step(sequences(4), grpo)
  await first.save(join(folder, 'before'), true)
  process.kill(ranks[1]!, 'SIGKILL')
  const error = await refused(first.step(sequences(4), { ...grpo, innerSteps: 200 }))
  expect(['trainer.rank_lost', 'trainer.lost']).toContain(error.code)
  expect(error).toMatchObject({ boundary: 'trainer', retriable: true })
  expect((await first.lost).message).toMatch(/trainer process/)
  await untilGone([first.pid, ...ranks])
  let second = await trainers.current()
  while (second === first) {
    await new Promise(resolve => setTimeout(resolve, 100))
    second = await trainers.current()
  }
  await second.load(join(folder, 'before'))
  expect(await second.step(sequences(4), grpo)).toMatchObject({ sequences: 4 })
  const pids = [second.pid, ...ranksOf(second)]
  await trainers.close()
  await untilGone(pids)
}, 300_000)

test('more ranks than a machine has GPUs, and adapters on layers that are not there, are refused at the start', async () => {
  const lora = { rank: 4, alpha: 8, targets: ['query'] }
  const hasGpu = existsSync('/dev/nvidia0')
  const [error, none] = await Promise.all([
    refused(startTrainer({ modelDirectory, ...trainerOptions, lora })),
    hasGpu ? undefined : refused(startTrainer({ modelDirectory, ...trainerOptions, device: 'cuda', ranks: 2 })),
  ])
  expect(error.code).toBe('process.start_failed')
  expect(error.message).toMatch(/train\.lora\.targets: query matches no linear layer.*q_proj/)
  if (none !== undefined) {
    expect(none.code).toBe('process.start_failed')
    expect(none.message).toMatch(/train\.ranks: rank \d of this machine has no GPU: 0 are visible/)
  }
}, 300_000)
