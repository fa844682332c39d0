/** Whole runs over two real vLLM servers with a model of 600,000 parameters: new weights every step, and one that is killed. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { modelOf } from '../../actors/run/model'
import { startVllmEngine } from '../../backends/engines/vllm/vllm'
import { startRenderer } from '../../backends/renderer/rendererProcess'
import type { TopicName } from '../../messages'
import { engineId, policyVersion } from '../../messages/ids'
import { loadRecipe } from '../../recipes/load/loadRecipe'
import { requestOn } from '../backends/engines/contract'
import { endAll, messagesOf, type Running, troupe as start } from '../support/cli'
import { ofType } from '../support/facts'
import { smallRun } from '../support/smallRun'
import { until } from '../support/until'
import { startVllm, type VllmServer } from '../support/vllm'

jest.setTimeout(600_000)

const directory = mkdtempSync(join(tmpdir(), 'troupe-vllm-train-'))
const model = join(directory, 'model')
const contextTokens = 320
let servers: readonly VllmServer[] = []
const started: Running[] = []

beforeAll(async () => {
  // vLLM's attention on CPUs wants heads of at least 32: the quickstart's have 24.
  const wide = ['model.config.hidden_size=128', 'model.config.max_position_embeddings=4096']
  const { recipe, config } = loadRecipe('quickstart', [...wide, 'coldStart.demonstrations=400'])
  await modelOf(config.value, model, async () => (await recipe.demonstrations?.(config.value)) ?? [])
  const options = { modelDirectory: model, contextTokens, maxSequences: 16, threads: 1 }
  servers = await Promise.all([startVllm(options), startVllm(options)])
}, 300_000)
afterAll(async () => {
  await endAll(started)
  await Promise.all(servers.map(server => server.stop()))
  rmSync(directory, { recursive: true, force: true })
}, 60_000)

const troupe = (args: readonly string[]): Running => {
  const run = start(args)
  started.push(run)
  return run
}
const factsOf = (run: string, topic: TopicName) => messagesOf(join(directory, 'bus'), run, topic)
const common = (run: string, ...urls: readonly string[]) => [
  ...urls.flatMap(url => ['--engine', `vllm:${url}`]),
  ...['--bus', `lmdb:${join(directory, 'bus')}`, '--run', run, '--json'],
  ...smallRun(200),
  ...['--set', `model=${JSON.stringify({ from: 'directory', path: model })}`],
]

test('each step is sampled under the weights of the one before, on both servers, and one that is killed loses no turn', async () => {
  const [doomed, other] = servers
  const larger = ['rollout.groupsPerStep=6', 'rollout.groupSize=8', 'selection.keep=4', 'evaluation.problems=0']
  const args = ['train', 'quickstart', '--steps', '2', ...common('r', doomed!.url, other!.url)]
  const run = troupe([...args, ...larger.flatMap(each => ['--set', each])])
  await until(
    async () => {
      if (run.process.exitCode !== null) throw new Error((await run.done).stderr)
      const turns = ofType(await factsOf('r', 'trajectories'), 'turn.completed')
      return turns.filter(({ trajectory }) => trajectory.startsWith('s0002')).length >= 10
    },
    500_000,
    100,
  )
  doomed!.kill()
  const { code, stdout, stderr } = await run.done
  expect({ code, stderr: stderr.slice(-3000) }).toMatchObject({ code: 0 })
  const lines = stdout.trim().split('\n').map(line => JSON.parse(line) as { type: string; step?: number }) // biome-ignore format: one thing
  expect(lines.filter(({ type }) => type === 'step').map(({ step }) => step)).toEqual([1, 2])

  const facts = await factsOf('r', 'trajectories')
  const runs = await factsOf('r', 'runs')
  const completed = ofType(facts, 'turn.completed')
  // Under the weights that the step before it published.
  for (const { trajectory, segments } of completed) {
    expect([trajectory, segments.map(({ policyVersion }) => policyVersion)]).toEqual([
      trajectory,
      [Number(trajectory.slice(1, 5)) - 1],
    ])
  }
  const applied = (engine: string) =>
    ofType(runs, 'weights.applied').filter(fact => fact.engine === engine).map(({ version }) => version) // biome-ignore format: one thing
  expect(applied('vllm-0')).toEqual([0, 1])
  expect(applied('vllm-1').slice(0, 3)).toEqual([0, 1, 2])
  expect(ofType(runs, 'engine.left').filter(({ engine }) => engine === 'vllm-0')).toHaveLength(1)

  // Both took part; what the dead one had was asked of the other, and each turn counted once.
  expect(new Set(completed.map(({ engine }) => engine))).toEqual(new Set(['vllm-0', 'vllm-1']))
  const lost = ofType(facts, 'turn.interrupted').filter(({ engine }) => engine === 'vllm-0')
  expect(lost.length).toBeGreaterThan(0)
  const once = completed.map(({ trajectory, turn }) => `${trajectory}#${turn}`)
  expect(new Set(once).size).toBe(once.length)
  for (const { trajectory, turn } of lost) expect(once).toContain(`${trajectory}#${turn}`)
  const finished = ofType(facts, 'rollout.finished').map(({ trajectory }) => trajectory)
  expect(new Set(finished).size).toBe(finished.length)
  expect(finished.sort()).toEqual(ofType(facts, 'rollout.requested').map(({ trajectory }) => trajectory).sort()) // biome-ignore format: one thing
  expect(ofType(facts, 'rollout.finished').filter(({ outcome }) => outcome === 'failed')).toEqual([])
})

test('an engine that does not answer, or does not fit, ends the run at its start with the reason', async () => {
  const [, other] = servers
  const long = ['--set', 'limits.contextTokens=4096']
  const [absent, unfit] = await Promise.all([
    troupe(['train', 'quickstart', ...common('absent', 'http://127.0.0.1:9')]).done,
    troupe(['train', 'quickstart', ...common('unfit', other!.url), ...long]).done,
  ])
  expect(absent.code).toBe(1)
  expect(absent.stderr).toMatch(/no answer from http:\/\/127\.0\.0\.1:9[\s\S]*docs\/engines\.md/)
  expect(unfit.code).toBe(1)
  expect(unfit.stderr).toMatch(/does not fit this run: its contexts have at most 320 tokens[\s\S]*--max-model-len/)
})

test('a server that falls asleep in the middle of a turn goes on with it, under the weights that it woke with', async () => {
  const [, other] = servers
  const renderer = await startRenderer({ modelDirectory: model })
  const decode = (tokens: Int32Array) => renderer.decode(tokens)
  const { vocabulary } = await renderer.describe()
  const expected = { tiedHead: true, vocabulary, contextTokens, trained: true, decode, maxSequences: 16 }
  const engine = await startVllmEngine({ id: engineId('vllm-1'), url: other!.url, expected, sleepLevel: 2 })
  try {
    const update = { directory: model, digest: '', keepKv: false }
    await engine.updateWeights({ ...update, version: policyVersion(0) })
    let sampled = 0
    const turn = engine.stream(requestOn(Int32Array.of(5, 6, 7), { maxTokens: 300 }), tokens => {
      sampled += tokens.length
    })
    await until(async () => sampled > 10, 60_000, 5)
    await engine.sleep!()
    const before = sampled
    expect(await (await fetch(`${other!.url}/is_sleeping`)).json()).toEqual({ is_sleeping: true })
    // On a CPU nothing is freed, so only the pause can be seen here: no token comes.
    await new Promise(resolve => setTimeout(resolve, 500))
    expect(sampled).toBe(before)
    await engine.wake!({ ...update, version: policyVersion(1) })
    const { segments, tokens } = await turn
    expect(tokens).toHaveLength(300)
    expect(segments.map(({ policyVersion: version }) => version)).toEqual([0, 1])
    expect(await (await fetch(`${other!.url}/is_sleeping`)).json()).toEqual({ is_sleeping: false })
  } finally {
    await engine.close()
    await renderer.close()
  }
})
