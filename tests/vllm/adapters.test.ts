/** A run that trains adapters over a real vLLM server that has no development endpoints: it is given these and nothing else. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { modelOf } from '../../actors/run/model'
import type { TopicName } from '../../messages'
import { loadRecipe } from '../../recipes/load/loadRecipe'
import { endAll, messagesOf, type Running, troupe } from '../support/cli'
import { ofType } from '../support/facts'
import { smallRun } from '../support/smallRun'
import { startVllm, type VllmServer } from '../support/vllm'

jest.setTimeout(600_000)

const directory = mkdtempSync(join(tmpdir(), 'troupe-vllm-adapters-'))
const model = join(directory, 'model')
let server: VllmServer | undefined
const started: Running[] = []

beforeAll(async () => {
  const wide = ['model.config.hidden_size=128', 'model.config.max_position_embeddings=4096']
  const { recipe, config } = loadRecipe('quickstart', [...wide, 'coldStart.demonstrations=400'])
  await modelOf(config.value, model, async () => (await recipe.demonstrations?.(config.value)) ?? [])
  server = await startVllm({ modelDirectory: model, contextTokens: 320, adapterRank: 8, development: false })
}, 300_000)
afterAll(async () => {
  await endAll(started)
  await server?.stop()
  rmSync(directory, { recursive: true, force: true })
}, 60_000)

const factsOf = (topic: TopicName) => messagesOf(join(directory, 'bus'), 'r', topic)

test('each step is sampled under the adapters of the one before, which score as the trainer’s do', async () => {
  const set = [
    `model=${JSON.stringify({ from: 'directory', path: model })}`,
    'train.lora={"rank":8,"alpha":32,"targets":["all-linear"]}',
    // so large that adapters of another version would show
    'train.learningRate=0.02',
    'coldStart.learningRate=0.02',
    'evaluation.problems=0',
  ]
  const run = troupe([
    ...['train', 'quickstart', '--steps', '2', '--engine', `vllm:${server!.url}`],
    ...['--bus', `lmdb:${join(directory, 'bus')}`, '--run', 'r', '--json', ...smallRun(200)],
    ...set.flatMap(each => ['--set', each]),
  ])
  started.push(run)
  const { code, stderr } = await run.done
  expect({ code, stderr: stderr.slice(-3000) }).toMatchObject({ code: 0 })

  const completed = ofType(await factsOf('trajectories'), 'turn.completed')
  const versions = completed.map(
    ({ trajectory, segments }) => [trajectory, segments.map(s => s.policyVersion)] as const,
  )
  for (const [trajectory, own] of versions) expect([trajectory, own]).toEqual([trajectory, [Number(trajectory.slice(1, 5)) - 1]]) // biome-ignore format: one thing
  expect(new Set(versions.map(([, own]) => own[0]))).toEqual(new Set([0, 1]))

  const learned = await factsOf('learner')
  const steps = ofType(learned, 'step.completed').map(({ metrics }) => metrics.klEngine!)
  expect(steps).toHaveLength(2)
  for (const klEngine of steps) expect(klEngine).toBeLessThan(1e-5)
  const published = ofType(learned, 'weights.published')
  const { data } = (await (await fetch(`${server!.url}/v1/models`)).json()) as {
    data: { id: string; parent: string | null }[]
  }
  const names = published.map(({ adapter }) => `troupe-${adapter!.digest.slice(0, 16)}`)
  expect(data.filter(({ parent }) => parent !== null).map(({ id }) => id)).toEqual(names.slice(-2))
})
