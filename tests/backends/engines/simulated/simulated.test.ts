/** The simulated engine: what every engine promises, the times and memory of its model, and lengths as they are documented. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { readEngineModel } from '../../../../backends/engines/simulated/engineModelFile'
import { type SimulatedEngineOptions, simulatedEngine } from '../../../../backends/engines/simulated/simulated'
import { type EngineModel, turnDrawer } from '../../../../kernels'
import { engineId, groupId, policyVersion, trajectoryId } from '../../../../messages/ids'
import { failure, refused } from '../../../support/refusal'
import { until } from '../../../support/until'
import { engineContract, requestOn } from '../contract'

const vocabulary = 320
const folder = mkdtempSync(join(tmpdir(), 'troupe-simulated-'))
afterAll(() => rmSync(folder, { recursive: true, force: true }))
const context = Int32Array.from({ length: 150 }, (_, i) => (i * 37 + 11) % vocabulary)
const decode = async (tokens: Int32Array) => Array.from(tokens, token => `<${token}>`).join('')

const flat = { overhead: 2, denseFloor: 0, densePerToken: 0, decodeBase: 0, decodePerSequence: 0, decodePerKvToken: 0 }
const quick: EngineModel = {
  ...{ name: 'quick', family: 'vllm', kvTokens: 16_384, blockTokens: 16, maxSequences: 8, maxBatchTokens: 2048 },
  ...{ prefixSharing: true, stepMs: { ...flat, prefillBase: 0, prefillPerToken: 0, prefillPerPair: 0 } },
}
const engineOf = (change: Partial<SimulatedEngineOptions> = {}) =>
  simulatedEngine({
    ...{ id: engineId('simulated-0'), model: quick, vocabulary, contextTokens: 1024, decode, updateMs: 5 },
    ...change,
  })

for (const family of ['vllm', 'sglang'] as const) {
  engineContract({
    name: `simulated (${family})`,
    weightsChange: 'names',
    tolerance: 1e-5,
    timeoutMs: 60_000,
    // Without stop tokens every token is as likely as any other.
    forward: (_, continued) =>
      continued.map(({ tokens }) => new Float32Array(tokens.length).fill(-Math.log(vocabulary))),
    async start() {
      const engine = engineOf({ model: { ...quick, family } })
      return { engine, weights: 'one', otherWeights: 'two', context, decode, stop: () => engine.close() }
    },
  })
}

describe('what is drawn', () => {
  const drawer = turnDrawer(vocabulary * 1000, 100)
  const draw = (seed: number, change: object = {}) =>
    drawer({ seed, context, resumedTokens: 0, maxTokens: 4000, stopTokens: [7, 9], temperature: 1, ...change })

  test('has lengths about the documented median and spread, and their probability is what logprobs say', () => {
    const lengths = Array.from({ length: 2000 }, (_, seed) => draw(seed).tokens.length).sort((a, b) => a - b)
    const at = (share: number) => lengths[Math.floor(share * lengths.length)]!
    expect(at(0.5) / 100).toBeGreaterThan(0.9)
    expect(at(0.5) / 100).toBeLessThan(1.1)
    // A lognormal's quantiles lie at exp(±0.8 z) of its median.
    expect(at(0.8413) / at(0.5) / Math.exp(0.8)).toBeCloseTo(1, 0)
    expect(at(0.1587) / at(0.5) / Math.exp(-0.8)).toBeCloseTo(1, 0)
    // Whether a turn ends, summed over its tokens, is as likely as the logprobs of those that ended say: −log survival is Exp(1).
    const survived = Array.from({ length: 2000 }, (_, seed) => {
      const { logprobs } = draw(seed)
      const ends = Math.exp(logprobs.at(-1)!) * 2
      const others = logprobs.slice(0, -1).reduce((sum, logprob) => sum + logprob + Math.log(vocabulary * 1000), 0)
      return -others + ends / 2
    })
    const mean = survived.reduce((sum, each) => sum + each, 0) / survived.length
    expect(mean).toBeGreaterThan(0.9)
    expect(mean).toBeLessThan(1.1)
  })

  test('follows from seed and context; a turn that is resumed says what it would have said', () => {
    const whole = draw(5)
    expect(draw(5)).toEqual(whole)
    expect(draw(6)).not.toEqual(whole)
    const begun = Int32Array.from([...context, ...whole.tokens.slice(0, 9)])
    const rest = draw(5, { context: begun, resumedTokens: 9 })
    expect(rest.tokens).toEqual(whole.tokens.slice(9))
    expect(rest.logprobs).toEqual(whole.logprobs.slice(9))
  })
})

test('time is the model’s: a turn takes its steps, and two at once take no longer where steps do not grow', async () => {
  const engine = engineOf({ model: { ...quick, stepMs: { ...quick.stepMs, overhead: 5 } } })
  const turn = () => engine.generate(requestOn(context, { maxTokens: 40 }))
  const both = await Promise.all([turn(), turn()])
  for (const { timing } of both) {
    // A prompt's step gives the first token; one or two more for whoever came a moment later.
    expect(timing.endedAt - timing.queuedAt).toBeGreaterThanOrEqual(40 * 5 - 1)
    expect(timing.endedAt - timing.firstTokenAt).toBeCloseTo(39 * 5, 3)
  }
  const spread = Math.abs(both[0]!.timing.endedAt - both[1]!.timing.endedAt)
  expect(spread).toBeLessThanOrEqual(10.001)
  await engine.close()
})

test('KV that runs out preempts, and all turns end all the same; members of a group hold their prompt once', async () => {
  const model = { ...quick, kvTokens: 640, stepMs: { ...quick.stepMs, overhead: 16 } }
  const engine = engineOf({ model, contextTokens: 512, speed: 4 })
  const answers = Promise.all(
    [0, 1, 2, 3].map(member =>
      engine.generate({
        ...requestOn(context.slice(0, 96), { maxTokens: 240, priority: member }),
        ...{ trajectory: trajectoryId(groupId('g'), member), promptTokens: 96 },
      }),
    ),
  )
  await until(async () => (await engine.status()).preemptions > 0)
  const { referencedTokens, running, waiting, kvTokens } = await engine.status()
  expect(running + waiting).toBeLessThanOrEqual(4)
  expect(waiting).toBeGreaterThan(0)
  expect(referencedTokens).toBeLessThanOrEqual(kvTokens)
  const all = await answers
  expect(all.map(({ tokens }) => tokens.length)).toEqual([240, 240, 240, 240])
  expect(all[0]!.preemptions).toBe(0)
  expect(all.reduce((sum, { preemptions }) => sum + preemptions, 0)).toBeGreaterThan(0)
  // The prompt's first five blocks were there for those that came after its first step.
  expect(Math.max(...all.map(({ cachedTokens }) => cachedTokens))).toBeGreaterThanOrEqual(80)
  expect(await engine.status()).toMatchObject({ running: 0, waiting: 0, referencedTokens: 0 })
})

test('new weights stop everything for as long as is said', async () => {
  const engine = engineOf({ updateMs: 300 })
  const turn = engine.generate(requestOn(context, { maxTokens: 20 }))
  const began = performance.now()
  await engine.updateWeights({ version: policyVersion(3), directory: '', digest: '', keepKv: false })
  expect(performance.now() - began).toBeGreaterThan(295)
  const { timing, tokens } = await turn
  expect(tokens).toHaveLength(20)
  expect(timing.endedAt - timing.queuedAt).toBeGreaterThanOrEqual(300)
})

test('a file with a wrong field, and a cache that a context of the run does not fit, are refused at the start', async () => {
  const file = join(folder, 'engine.json')
  writeFileSync(file, JSON.stringify({ ...quick, kvToken: 5 }))
  expect(failure(() => readEngineModel(file))).toMatchObject({
    code: 'config.invalid',
    message: expect.stringMatching(/kvToken/),
  })
  expect(failure(() => readEngineModel(join(folder, 'none.json'))).message).toMatch(/cannot be read/)
  expect(failure(() => engineOf({ model: { ...quick, kvTokens: 512 } }))).toMatchObject({
    ...{ code: 'engine.unfit', message: expect.stringMatching(/holds 512 tokens .* has 1024/), retriable: false },
  })
  const engine = engineOf()
  await engine.close()
  expect((await refused(engine.generate(requestOn(context)))).code).toBe('engine.lost')
})
