/** The fold behind the learning curve: a process that runs for long keeps the two ends, and its summary is the same. */
import type { Fact } from '../../messages/facts'
import { epoch, policyVersion, runId } from '../../messages/ids'
import { progress, summaryOf } from '../../replay/learning/progress'
import { quickstartHistory } from '../support/histories'

const run = runId('r')
const facts = (steps: number): Fact[] => {
  const scored = quickstartHistory().records.flatMap(({ message }) =>
    message.type === 'evaluation.completed' ? [message] : [],
  )
  return Array.from({ length: steps }, (_, n): Fact[] => [
    { ...scored[0]!, step: n },
    {
      type: 'step.started',
      at: n,
      step: n + 1,
      epoch: epoch(0),
      baseVersion: policyVersion(n),
      baseCheckpoint: '',
      trajectories: [],
    },
    {
      type: 'step.completed',
      at: n,
      step: n + 1,
      epoch: epoch(0),
      version: policyVersion(n + 1),
      metrics: { loss: n },
    },
  ]).flat()
}

test('only the first and the latest step and evaluation are kept, and the summary is as if all were', () => {
  const [whole, ends] = [progress(), progress({ onlyEnds: true })]
  for (const fact of facts(300)) expect(ends.take(fact)).toEqual(whole.take(fact))
  expect(ends.steps.map(({ step }) => step)).toEqual([1, 300])
  expect(ends.evaluations.map(({ step }) => step)).toEqual([0, 299])
  expect(whole.steps).toHaveLength(300)
  expect(summaryOf(ends, run, 'done', '', 1)).toEqual(summaryOf(whole, run, 'done', '', 1))
})

test('a step that is told twice counts once', () => {
  const state = progress({ onlyEnds: true })
  const [, started, completed] = facts(1)
  for (const fact of [started!, completed!]) state.take(fact)
  expect(state.take(completed!)).toBeUndefined()
  expect(state.steps).toHaveLength(1)
})

test('a rollout whose reward failed before a later attempt succeeded does not count as a failed reward', () => {
  const state = progress()
  const { records } = quickstartHistory()
  const messages = records.flatMap(({ message }) => (message.type === 'rollout.requested' ? [message] : []))
  const asked = messages.find(({ purpose }) => purpose === 'train')!
  const { trajectory } = asked
  const ofIt = (type: string) =>
    records.find(
      ({ message }) => message.type === type && (message as { trajectory?: string }).trajectory === trajectory,
    )!
  const failed = { type: 'reward.failed', at: 2, trajectory, reason: 'timeout' } as unknown as Fact
  const ended = ofIt('rollout.finished').message as Fact
  const judged = ofIt('reward.assigned').message as Fact
  for (const fact of [{ ...asked, step: 1 }, ended, failed, judged, ...facts(1).slice(1)]) state.take(fact)
  expect(state.steps[0]).toMatchObject({ rollouts: 1, failedRewards: 0 })
})
