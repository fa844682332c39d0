/**
 * A run that starts a real vLLM server of its own and trains adapters. The server has no development endpoints: it is
 * given adapters and nothing else. It is killed on the way, and the run starts another.
 */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { TopicName } from '../../messages'
import { endAll, isAlive, messagesOf, type Running, troupe } from '../support/cli'
import { descendantsOf } from '../support/descendants'
import { ofType } from '../support/facts'
import { smallRun } from '../support/smallRun'
import { until } from '../support/until'

jest.setTimeout(600_000)

const directory = mkdtempSync(join(tmpdir(), 'troupe-vllm-adapters-'))
const started: Running[] = []

afterAll(async () => {
  await endAll(started)
  rmSync(directory, { recursive: true, force: true })
}, 60_000)

const factsOf = (topic: TopicName) => messagesOf(join(directory, 'bus'), 'r', topic)

/** Processes of the run's server, which its command line names. */
const servers = (run: Running) =>
  descendantsOf(run.process.pid!).filter(pid => {
    try {
      const words = readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0')
      return words.includes('serve') && !words.includes('troupe_policy.server_group')
    } catch {
      return false // it has ended
    }
  })

test('each step is sampled under the adapters of the one before, which score as the trainer’s do, also by a server that was started again', async () => {
  const launch = { env: { VLLM_SERVER_DEV_MODE: '0' }, flags: { 'disable-log-stats': false } }
  const set = [
    ...['engine.kind=vllm', 'engine.device=cpu', `engine.launch=${JSON.stringify(launch)}`, 'engine.maxSequences=16'],
    // vLLM's attention on CPUs wants heads of at least 32: the quickstart's have 24.
    'model.config.hidden_size=128',
    'model.config.max_position_embeddings=4096',
    'train.lora={"rank":8,"alpha":32,"targets":["all-linear"]}',
    // so large that adapters of another version would show
    'train.learningRate=0.02',
    'coldStart.learningRate=0.02',
    'evaluation.problems=0',
  ]
  const run = troupe([
    ...['train', 'quickstart', '--steps', '2'],
    ...['--bus', `lmdb:${join(directory, 'bus')}`, '--run', 'r', '--json', ...smallRun(200)],
    ...set.flatMap(each => ['--set', each]),
  ])
  started.push(run)
  let killed: readonly number[] = []
  await until(
    async () => {
      if (run.process.exitCode !== null) throw new Error((await run.done).stderr)
      killed = servers(run)
      return ofType(await factsOf('runs'), 'weights.applied').length > 0
    },
    500_000,
    100,
  )
  process.kill(killed[0]!, 'SIGKILL')
  await until(async () => !killed.some(isAlive), 30_000)
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
  for (const { adapter } of published) expect(adapter!.digest).toMatch(/^[0-9a-f]{64}$/)
  // The second server was given the newest adapters when it joined, and nothing of either is left behind.
  const runs = await factsOf('runs')
  expect(ofType(runs, 'engine.joined').map(({ engine }) => engine)).toEqual(['vllm-0', 'vllm-0'])
  expect(ofType(runs, 'engine.left')).toMatchObject([
    { engine: 'vllm-0', reason: expect.stringMatching(/ended with exit code 137|no answer from/) },
  ])
  expect(
    ofType(runs, 'weights.applied')
      .map(({ version }) => version)
      .slice(0, 3),
  ).toEqual([0, 0, 1])
  expect(servers(run)).toEqual([])
})
