/** A trajectory's facts, as the log has them, give the sequence that was sampled; what does not add up is refused. */

import { assembleSequence } from '../../kernels/trainingSequence'
import type {
  ContextAppended,
  RolloutRequested,
  TrajectoryFact,
  TurnAsked,
  TurnCompleted,
  TurnInterrupted,
} from '../../messages/facts'
import { engineId, epoch, groupId, policyVersion, taskId, trajectoryId } from '../../messages/ids'

const trajectory = trajectoryId(groupId('g'), 3)
const engine = engineId('e')
const sampling = { temperature: 1, topP: 1, topK: 0, minP: 0, stopTokens: [] }

const requested = (...tokens: number[]): RolloutRequested => ({
  type: 'rollout.requested',
  at: 0,
  trajectory,
  group: groupId('g'),
  member: 3,
  groupSize: 4,
  purpose: 'train',
  step: 0,
  order: 0,
  task: { id: taskId('t'), messages: [], truth: '1', reward: 'r' },
  tokens: Int32Array.from(tokens),
  tools: [],
  limits: { contextTokens: 99, responseTokens: 99, turns: 9, callsPerTurn: 1, toolTimeoutMs: 1, toolResponseChars: 9 },
  sampling,
  seed: 0,
  minVersion: policyVersion(0),
  deadlineMs: 1,
})

const asked = (turn: number, attempt: number, contextTokens: number): TurnAsked => ({
  type: 'turn.asked',
  at: 0,
  trajectory,
  turn,
  attempt,
  epoch: epoch(0),
  engine: null,
  seed: 0,
  sampling,
  maxTokens: 9,
  contextTokens,
  contextDigest: '',
})

const piece = (turn: number, attempt: number, tokens: number[], version: number, start = 0) => ({
  at: 0,
  trajectory,
  turn,
  attempt,
  engine,
  tokens: Int32Array.from(tokens),
  logprobs: Float32Array.from(tokens, token => -token / 8),
  segments: [{ policyVersion: policyVersion(version), start, end: start + tokens.length }],
})

const completed = (...of: Parameters<typeof piece>): TurnCompleted => ({
  type: 'turn.completed',
  ...piece(...of),
  text: '',
  finish: 'stop',
  cachedTokens: 0,
  preemptions: 0,
  timing: { queuedAt: 0, startedAt: 0, firstTokenAt: 0, endedAt: 0 },
})

const interrupted = (...of: Parameters<typeof piece>): TurnInterrupted => ({
  type: 'turn.interrupted',
  ...piece(...of),
  reason: 'aborted',
  error: '',
})

const appended = (turn: number, ...tokens: number[]): ContextAppended => ({
  type: 'context.appended',
  at: 0,
  trajectory,
  turn,
  epoch: epoch(0),
  text: '',
  tokens: Int32Array.from(tokens),
})

const history: TrajectoryFact[] = [
  requested(1, 2, 3),
  asked(0, 0, 3),
  interrupted(0, 0, [10, 11], 4),
  asked(0, 1, 5),
  completed(0, 1, [12], 5),
  appended(0, 20, 21),
  asked(1, 0, 8),
  completed(1, 0, [13, 14], 5),
]

test('prompt, interrupted and completed pieces, and tool tokens are joined with mask, logprobs and versions aligned', () => {
  const sequence = assembleSequence(history)
  expect([...sequence.tokens]).toEqual([1, 2, 3, 10, 11, 12, 20, 21, 13, 14])
  expect([...sequence.mask]).toEqual([0, 0, 0, 1, 1, 1, 0, 0, 1, 1])
  expect([...sequence.versions]).toEqual([-1, -1, -1, 4, 4, 5, -1, -1, 5, 5])
  expect([...sequence.engineLogprobs]).toEqual([0, 0, 0, -1.25, -1.375, -1.5, 0, 0, -1.625, -1.75])
  expect(sequence).toMatchObject({ trajectory, promptTokens: 3, sampledTokens: 5, turns: 2, oldestVersion: 4 })
})

test('facts that come twice, answers to old attempts, and other trajectories change nothing', () => {
  const twice = history.flatMap(fact => [fact, fact])
  const other = { ...completed(0, 0, [99], 1), trajectory: trajectoryId(groupId('g'), 4) }
  const late = [...history.slice(0, 4), completed(0, 0, [77], 4), other, ...history.slice(4), completed(0, 0, [78], 4)]
  for (const facts of [twice, late]) expect(assembleSequence(facts)).toEqual(assembleSequence(history))
})

test('the facts of pieces alone are enough, and segments of a resumed turn may count from its start', () => {
  const alone = history.filter(fact => fact.type !== 'turn.asked')
  expect(assembleSequence(alone)).toEqual(assembleSequence(history))
  const shifted = history.map(fact =>
    fact.type === 'turn.completed' && fact.attempt === 1 ? completed(0, 1, [12], 5, 2) : fact,
  )
  expect(assembleSequence(shifted)).toEqual(assembleSequence(history))
})

test('a rollout that ended inside a turn keeps what was sampled', () => {
  expect([...assembleSequence(history.slice(0, 3)).mask]).toEqual([0, 0, 0, 1, 1])
  expect(assembleSequence(history.slice(0, 1))).toMatchObject({ sampledTokens: 0, oldestVersion: null, turns: 0 })
})

test('lengths that do not add up are refused with trajectory, turn and lengths', () => {
  const wrong = (at: number, fact: TrajectoryFact) => () =>
    assembleSequence(history.map((one, i) => (i === at ? fact : one)))
  expect(wrong(4, { ...completed(0, 1, [12], 5), logprobs: new Float32Array(2) })).toThrow(
    'trajectory g/3, turn 0: the fact has 1 tokens but 2 logprobs',
  )
  expect(wrong(4, { ...completed(0, 1, [12], 5), segments: [] })).toThrow('do not cover 1 tokens')
  expect(wrong(7, completed(1, 0, [13, 14], 5, 1))).toThrow('do not cover 2 tokens')
  expect(wrong(6, asked(1, 0, 7))).toThrow('was asked with 7 tokens of context, the facts hold 8')
  expect(wrong(6, asked(2, 0, 8))).toThrow('turn 2: the fact follows turn 0')
  expect(() => assembleSequence(history.filter(fact => fact.type !== 'context.appended'))).toThrow(
    'without context between',
  )
  expect(() => assembleSequence(history.slice(1))).toThrow('no rollout.requested')
})
