/** A whole run on a colocated plan: the engine sleeps while the real trainer works, and the trainer while it generates. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { TopicName } from '../../messages'
import type { Fact } from '../../messages/facts'
import { endAll, messagesOf, type Running, troupe } from '../support/cli'
import { smallRun } from '../support/smallRun'

const directory = mkdtempSync(join(tmpdir(), 'troupe-colocated-'))
const started: Running[] = []
afterAll(async () => {
  await endAll(started)
  rmSync(directory, { recursive: true, force: true })
}, 60_000)

test('each step is trained while every engine sleeps, and no turn runs then', async () => {
  const set = ['hardware.plan.kind=colocated', 'evaluation.problems=0', 'engine.count=2', 'engine.threads=1']
  const run = troupe([
    ...['train', 'quickstart', '--steps', '2', '--bus', `lmdb:${directory}`, '--run', 'r', '--json', ...smallRun(200)],
    ...set.flatMap(each => ['--set', each]),
  ])
  started.push(run)
  const { code, stderr } = await run.done
  expect({ code, stderr: stderr.slice(-3000) }).toMatchObject({ code: 0 })

  const factsOf = async (topic: TopicName) => (await messagesOf(directory, 'r', topic)) as Fact[]
  const runs = await factsOf('runs')
  const sequence = (engine: string) =>
    runs.flatMap(fact => ('engine' in fact && fact.engine === engine ? [fact.type] : []))
  // Asleep for the cold start and for both steps; each ends with new weights.
  const whole = ['engine.joined', ...Array(3).fill(['engine.slept', 'weights.applied']).flat()]
  for (const engine of ['local-0', 'local-1']) expect(sequence(engine)).toEqual(whole.slice(0, sequence(engine).length))
  expect(sequence('local-0').length).toBeGreaterThanOrEqual(6)
  // All turns of a step end before the engines sleep for it, and the next begin after they woke.
  const slept = runs.flatMap(fact => (fact.type === 'engine.slept' && fact.engine === 'local-0' ? [fact.at] : []))
  const turns = (await factsOf('trajectories')).flatMap(fact => (fact.type === 'turn.completed' ? [fact] : []))
  const learned = await factsOf('learner')
  const finished = learned.flatMap(fact => (fact.type === 'step.completed' ? [fact] : []))
  expect(finished).toHaveLength(2)
  for (const { trajectory, timing, segments } of turns) {
    const step = Number(trajectory.slice(1, 5))
    // The weights that woke the engine are those that it samples from: step 1 begins with version 0.
    for (const { policyVersion } of segments) expect(policyVersion).toBe(step - 1)
    expect(timing.startedAt).toBeGreaterThan(slept[step - 1]!)
    expect(timing.endedAt).toBeLessThan(slept[step]! + 1)
  }
}, 600_000)
