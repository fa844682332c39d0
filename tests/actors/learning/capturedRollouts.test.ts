/** A rollout that an agent led gives a sequence for each of its conversations; reward and advantage count the rollout. */
import { trainSequences } from '../../../actors/learning/trainSequences'
import type { CallFact, CallStarted, Fact, GroupSelected, StepStarted, TrajectoryFact } from '../../../messages/facts'
import { engineId, epoch, groupId, policyVersion, type TrajectoryId, trajectoryId } from '../../../messages/ids'
import { requested } from '../../support/facts'

const group = groupId('g')
const sampling = { temperature: 1, topP: 1, topK: 0, minP: 0, stopTokens: [] }
const timing = { queuedAt: 0, startedAt: 0, firstTokenAt: 0, endedAt: 0 }

/** A call and its answer of `sampled` tokens. */
function call(
  trajectory: TrajectoryId,
  number: number,
  parent: number | null,
  contextTokens: number,
  sampled: number,
  label: CallStarted['label'] = 'main',
): CallFact[] {
  const tokens = Int32Array.from({ length: sampled }, (_, i) => 100 * number + i)
  return [
    {
      ...{
        type: 'call.started',
        at: 0,
        trajectory,
        opening: 0,
        call: number,
        attempt: 0,
        dialect: 'chat',
        model: 'm',
        label,
      },
      ...{ parent, branch: null, digest: '', messages: '[]', tools: '', tokens: Int32Array.of(9, 9), contextTokens },
      ...{ sampling, seed: 0, maxTokens: 9, asked: {} },
    },
    {
      ...{
        type: 'call.finished',
        at: 0,
        trajectory,
        call: number,
        attempt: 0,
        engine: engineId('e'),
        tokens,
        text: '',
      },
      ...{
        logprobs: new Float32Array(sampled).fill(-number - 1),
        finish: 'stop',
        error: '',
        cachedTokens: 0,
        preemptions: 0,
        timing,
      },
      segments: [{ policyVersion: policyVersion(0), start: 0, end: sampled }],
    },
  ]
}

test('rows of one rollout share its advantage and its group; a rollout of one row weighs no less for it', () => {
  const [a, b] = [trajectoryId(group, 0), trajectoryId(group, 1)]
  const facts = new Map<TrajectoryId, readonly Fact[]>([
    // Two turns, then a sub-agent beside them, and a title, which is not trained on.
    [
      a,
      [
        requested('g', 0),
        ...call(a, 0, null, 2, 3),
        ...call(a, 1, 0, 7, 2),
        ...call(a, 2, null, 2, 4, 'subagent'),
        ...call(a, 3, null, 2, 5, 'aux'),
      ],
    ],
    [b, [requested('g', 1), ...call(b, 0, null, 2, 1)]],
  ])
  const started = { type: 'step.started', step: 1, epoch: epoch(0), trajectories: [a, b] } as unknown as StepStarted
  const kept = [
    { member: 0, reward: 1, advantage: 0.5, penalty: 0 },
    { member: 1, reward: 0, advantage: -0.5, penalty: 0 },
  ]
  const selected = { type: 'group.selected', group, kept } as unknown as GroupSelected
  const rows = trainSequences(
    { started, groups: [selected] },
    facts as ReadonlyMap<TrajectoryId, readonly TrajectoryFact[]>,
  )
  expect(rows.map(row => [row.trajectory, row.advantage, row.group, row.mask.reduce((n, bit) => n + bit, 0)])).toEqual([
    [a, 0.5, 0, 5],
    [a, 0.5, 0, 4],
    [b, -0.5, 0, 1],
  ])
  // The recipe's labels decide (agent.trains).
  const own = trainSequences(
    { started, groups: [selected] },
    facts as ReadonlyMap<TrajectoryId, readonly TrajectoryFact[]>,
    ['main', 'aux'],
  )
  expect(own.map(row => [row.trajectory, row.mask.reduce((n, bit) => n + bit, 0)])).toEqual([
    [a, 5],
    [a, 5],
    [b, 1],
  ])
  expect([...rows[0]!.mask]).toEqual([0, 0, 1, 1, 1, 0, 0, 1, 1])
  expect([...rows[0]!.engineLogprobs]).toEqual([0, 0, -1, -1, -1, 0, 0, -2, -2])
})
