/** A whole run over a real SGLang server with a model of 600,000 parameters: cold start, a step, new weights in the run. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { modelOf } from '../../actors/run/model'
import type { TopicName } from '../../messages'
import { loadRecipe } from '../../recipes/load/loadRecipe'
import { endAll, messagesOf, type Running, troupe } from '../support/cli'
import { ofType } from '../support/facts'
import type { ServerProcess } from '../support/serverProcess'
import { startSglang } from '../support/sglang'
import { smallRun } from '../support/smallRun'

jest.setTimeout(900_000)

const directory = mkdtempSync(join(tmpdir(), 'troupe-sglang-train-'))
const model = join(directory, 'model')
const contextTokens = 320
const started: Running[] = []
let server: ServerProcess | undefined

beforeAll(async () => {
  // SGLang refuses a --context-length beyond the model's own, and keeps six tokens of it for itself.
  const longer = 'model.config.max_position_embeddings=4096'
  const { recipe, config } = loadRecipe('quickstart', ['coldStart.demonstrations=50', longer])
  await modelOf(config.value, model, async () => (await recipe.demonstrations?.(config.value)) ?? [])
  const flags = ['--incremental-streaming-output']
  server = await startSglang({ modelDirectory: model, contextTokens: contextTokens + 6, flags })
})
afterAll(async () => {
  await endAll(started)
  await server?.stop()
  rmSync(directory, { recursive: true, force: true })
}, 60_000)

const factsOf = (topic: TopicName) => messagesOf(join(directory, 'bus'), 'r', topic)

test('a server that a dead run left paused goes on; each step is sampled under the weights of the one before, which the server has loaded', async () => {
  const headers = { 'content-type': 'application/json' }
  await fetch(`${server!.url}/pause_generation`, { method: 'POST', headers, body: '{"mode":"retract"}' })
  const run = troupe([
    ...['train', 'quickstart', '--steps', '2', '--engine', `sglang:${server!.url}`, '--run', 'r', '--json'],
    ...['--bus', `lmdb:${join(directory, 'bus')}`, ...smallRun(50), '--set', 'evaluation.problems=0'],
    ...['--set', `model=${JSON.stringify({ from: 'directory', path: model })}`],
  ])
  started.push(run)
  const { code, stdout, stderr } = await run.done
  expect({ code, said: code === 0 ? '' : stderr.slice(-3000) }).toEqual({ code: 0, said: '' })
  const lines = stdout.trim().split('\n').map(line => JSON.parse(line) as { type: string; step?: number }) // biome-ignore format: one thing
  expect(lines.filter(({ type }) => type === 'step').map(({ step }) => step)).toEqual([1, 2])

  const facts = await factsOf('trajectories')
  const completed = ofType(facts, 'turn.completed')
  expect(completed.length).toBeGreaterThanOrEqual(32)
  for (const { trajectory, segments } of completed) {
    const versions = segments.map(({ policyVersion }) => policyVersion)
    expect([trajectory, versions]).toEqual([trajectory, [Number(trajectory.slice(1, 5)) - 1]])
  }
  expect(ofType(facts, 'rollout.finished').filter(({ outcome }) => outcome === 'failed')).toEqual([])
  const applied = ofType(await factsOf('runs'), 'weights.applied').map(({ version }) => version)
  expect(applied.slice(0, 2)).toEqual([0, 1])
})
