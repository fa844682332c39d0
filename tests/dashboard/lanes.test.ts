/** The pieces of a lane: what a rollout, or the session of an agent, waited for and did, and when. */
import { piecesOf } from '../../dashboard/server/views/lanes'
import type { CallFact, GroupClosed, RolloutFinished } from '../../messages/facts'
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

const request = requested('g', 0, { at: 10 })
const { trajectory } = request
const opened = (at: number, opening = 0) => ({ type: 'session.opened', at, trajectory, opening }) as CallFact
const started = (call: number, at: number, more: object = {}) =>
  ({ type: 'call.started', at, trajectory, opening: 0, call, attempt: 0, ...more }) as CallFact
/** `from` and `to`: the engine's times; without them it told none. */
const answered = (call: number, at: number, [from, to]: readonly [number, number] = [0, 0], more: object = {}) =>
  ({
    ...{ type: 'call.finished', at, trajectory, call, attempt: 0, finish: 'stop' },
    ...{ segments: [{ policyVersion: 2 }], timing: { queuedAt: 0, startedAt: from, firstTokenAt: from, endedAt: to } },
    ...more,
  }) as unknown as CallFact
const closed = { type: 'group.closed', at: 90, group: request.group } as GroupClosed

/** The lane's pieces as text: kind, start, end, the policy's version, and `!` if it failed. */
function drawn(facts: readonly object[], now: number): readonly string[] {
  const entries = [request, ...facts].map(message => ({ message })) as never
  const finished = facts.find((fact): fact is RolloutFinished => 'outcome' in fact) ?? null
  return piecesOf({ entries, reward: null, finished }, now).map(
    ({ kind, from, to, version, bad }) =>
      `${kind} ${from}-${to}${version === null ? '' : ` v${version}`}${bad ? '!' : ''}`,
  )
}
const end = (at: number, outcome = 'answered') => ({ type: 'rollout.finished', at, trajectory, outcome })

test("a session's call is queued and generated as a turn is; between its calls the session waits for its agent", () => {
  const facts = [
    opened(12),
    started(0, 15),
    answered(0, 30, [18, 29]),
    started(1, 40),
    answered(1, 60),
    end(70),
    closed,
  ]
  expect(drawn(facts, 99)).toEqual([
    'queue 10-12',
    'wait 12-15',
    'queue 15-18',
    'generation 18-29 v2',
    'wait 29-40',
    'generation 40-60 v2',
    'wait 60-70',
  ])
})

test('calls that run at the same time have pieces of their own, by their starts, and nothing waits meanwhile', () => {
  const facts = [opened(10), started(0, 10), started(1, 20), answered(1, 30, [22, 30]), answered(0, 50, [11, 50])]
  expect(drawn(facts, 60)).toEqual([
    'queue 10-11',
    'generation 11-50 v2',
    'queue 20-22',
    'generation 22-30 v2',
    'wait 50-60',
  ])
})

test("the engine's times are held between a call's start and its end, whatever its clock says", () => {
  expect(drawn([opened(10), started(0, 20), answered(0, 30, [5, 99]), end(30), closed], 40)).toEqual([
    'wait 10-20',
    'generation 20-30 v2',
  ])
})

test('a running call is open until now; the answer to an attempt that was replaced draws nothing', () => {
  const facts = [opened(10), started(0, 10), started(0, 20, { attempt: 1 }), answered(0, 25, [11, 24])]
  expect(drawn(facts, 40)).toEqual(['queue 10-20!', 'queue 20-40'])
})

test('calls that failed, or were lost with the agent or at the end, are marked as failed', () => {
  const failed = answered(0, 15, undefined, { finish: 'failed' })
  expect(drawn([opened(10), started(0, 10), failed, started(1, 20), opened(30, 1), end(50, 'failed')], 60)).toEqual([
    'queue 10-15!',
    'wait 15-20',
    'queue 20-30!',
    'wait 30-50!',
  ])
  expect(drawn([opened(10), started(0, 10), end(50, 'failed')], 60)).toEqual(['queue 10-50!'])
})

test("a fork's copied calls were generated in the session that was forked, so its own calls alone are drawn", () => {
  const copyOf = { trajectory, call: 0 }
  const copies = [started(0, 2, { copyOf }), answered(0, 8, [3, 7])]
  expect(drawn([opened(12), ...copies, started(1, 20), answered(1, 30, [21, 30])], 30)).toEqual([
    'queue 10-12',
    'wait 12-20',
    'queue 20-21',
    'generation 21-30 v2',
  ])
})
