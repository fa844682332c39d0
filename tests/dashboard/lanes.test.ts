/** The pieces of a lane: what a rollout waited for and did, and when. */
import { piecesOf } from '../../dashboard/server/views/lanes'
import type { RolloutFinished } from '../../messages/facts'
import { requested } from '../support/facts'

test('a rollout whose grading failed is over: its lane ends there, and the piece is marked as failed', () => {
  const request = requested('g', 0, { at: 10 })
  const { trajectory } = request
  const finished = { type: 'rollout.finished', at: 20, trajectory, outcome: 'answered' } as RolloutFinished
  const failed = { type: 'reward.failed', at: 30, trajectory }
  const entries = [request, finished, failed].map(message => ({ message })) as never
  expect(piecesOf({ entries, reward: null, finished }, 99)).toEqual([
    { kind: 'wait', from: 10, to: 20, version: null, bad: false },
    { kind: 'judge', from: 20, to: 30, version: null, bad: true },
  ])
})
