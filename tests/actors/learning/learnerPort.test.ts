import type { Batch, LearnerRequest } from '../../../actors/learning/learner'
import { type LearnerPortOptions, learnerPort } from '../../../actors/learning/learnerPort'
import type { Trainer, TrainSequence } from '../../../backends/trainer/trainer'
import type { GenerateTurn } from '../../../messages/commands'
import type { GroupSelected, StepStarted } from '../../../messages/facts'
import { epoch, policyVersion, runId } from '../../../messages/ids'
import { memoryBlobs } from '../../../runtime/bus/blobs'
import { openMemoryBus } from '../../../runtime/bus/memory/memoryBus'
import { systemEffects } from '../../../runtime/effects'
import { TroupeError } from '../../../runtime/errors'
import { openJournal } from '../../../runtime/journal/openJournal'
import { createLog } from '../../../runtime/log'
import { completed, requested } from '../../support/facts'

const { trajectory, group } = requested('g', 0)
const started: StepStarted = {
  type: 'step.started',
  at: 0,
  step: 3,
  epoch: epoch(0),
  baseVersion: policyVersion(2),
  baseCheckpoint: 'step-000002',
  trajectories: [trajectory],
}
const selected = {
  type: 'group.selected',
  group,
  step: 3,
  kept: [{ member: 0, reward: 1, advantage: 0.5, penalty: 0 }],
} as unknown as GroupSelected
const batch = (step: number, loss: number | null) => ({
  started: { ...started, step },
  groups: [selected],
  places: new Map([[group, { partition: 0, offset: 0 }]]),
  metrics: loss === null ? null : { loss },
  rejected: false,
})
const request = (since: Extract<LearnerRequest, { kind: 'train' }>['since']): LearnerRequest => ({
  kind: 'train',
  epoch: epoch(0),
  batch: batch(3, null),
  version: policyVersion(2),
  checkpoint: { step: 1, name: 'step-000001' },
  since,
})

interface Calls {
  readonly loaded: string[]
  readonly batches: (readonly TrainSequence[])[]
  readonly saved: string[]
  /** Of what a reset begins anew, and how many steps came before it. */
  readonly resets: (readonly [number, string])[]
}

/**
 * A journal that holds a rollout whose last tool response was over its budget, and one of another group that sampled nothing;
 * a trainer that notes its calls.
 */
async function rig(
  step: (n: number) => Promise<Readonly<Record<string, number>>>,
  grpo: Partial<LearnerPortOptions['grpo']> = {},
) {
  const bus = openMemoryBus()
  const journal = openJournal(bus, memoryBlobs(), runId('r'))
  await journal.create(1)
  const turn = completed({ trajectory, turn: 0, attempt: 0 } as GenerateTurn, 'call')
  await journal.append([
    requested('empty', 0),
    requested('g', 0),
    turn,
    {
      type: 'context.appended',
      at: 0,
      trajectory,
      turn: 0,
      epoch: epoch(0),
      text: 'too long',
      tokens: new Int32Array(99),
    },
  ])
  const calls: Calls = { loaded: [], batches: [], saved: [], resets: [] }
  const trainer = {
    step: async (sequences: readonly TrainSequence[]) => step(calls.batches.push(sequences)),
    save: async (path: string) => {
      calls.saved.push(path)
      return { digest: 'd', bytes: 1 }
    },
    load: async (path: string) => void calls.loaded.push(path),
    reset: async (what: object) => void calls.resets.push([calls.batches.length, JSON.stringify(what)]),
  } as unknown as Trainer
  const options: LearnerPortOptions = {
    trainer: async () => trainer,
    journal,
    directory: '/run',
    grpo: grpo as LearnerPortOptions['grpo'],
    checkpointEvery: 1,
    keepVersions: 3,
    onColdStart: () => {},
    fx: systemEffects,
    log: createLog('test', { level: 'silent' }),
  }
  return { port: learnerPort(options), calls, close: () => bus.close() }
}

test('a trainer that lost its state loads the newest checkpoint and goes through the batches since, then trains', async () => {
  const { port, calls, close } = await rig(async () => ({ loss: 0.25, maxRssBytes: 7 }))
  const decision = await port(request([batch(2, 0.25)]), new AbortController().signal)
  expect(calls.loaded).toEqual(['/run/checkpoints/step-000001'])
  expect(calls.batches).toHaveLength(2)
  expect(decision!.facts.map(f => f.type)).toEqual(['checkpoint.saved', 'weights.published', 'step.completed'])
  expect(decision!.facts.at(-1)).toMatchObject({ step: 3, version: 3, metrics: { loss: 0.25 } })
  expect(decision!.facts.at(-1)).not.toHaveProperty('metrics.maxRssBytes')
  await close()
})

test('a sequence ends with its last sampled token: what was over the budget is not trained through', async () => {
  const { port, calls, close } = await rig(async () => ({ loss: 0 }))
  await port(request([]), new AbortController().signal)
  const [sequence] = calls.batches[0]!
  expect([...sequence!.tokens]).toEqual([1, 2, 3, 0, 1, 2, 3, 4])
  expect([...sequence!.mask]).toEqual([0, 0, 0, 1, 1, 1, 1, 1])
  expect(sequence).toMatchObject({ trajectory, advantage: 0.5, group: 0 })
  await close()
})

test('a rollout in which nothing was sampled is not given to the trainer; the others keep their advantages and groups', async () => {
  const { port, calls, close } = await rig(async () => ({ loss: 0 }))
  const empty = requested('empty', 0)
  const both: Batch = {
    ...batch(3, null),
    started: { ...started, trajectories: [empty.trajectory, trajectory] },
    groups: [{ ...selected, group: empty.group, kept: [{ ...selected.kept[0]!, advantage: -1 }] }, selected],
    places: new Map([
      [empty.group, { partition: 0, offset: 0 }],
      [group, { partition: 0, offset: 0 }],
    ]),
  }
  await port({ ...request([]), batch: both } as LearnerRequest, new AbortController().signal)
  expect(calls.batches).toHaveLength(1)
  expect(calls.batches[0]).toMatchObject([{ trajectory, advantage: 0.5, group: 1 }])
  await close()
})

const refusing = (code: string) => async () => {
  const said = { message: 'for this reason', hint: 'do that' }
  throw new TroupeError(code, { boundary: 'trainer', retriable: false, ...said })
}

test.each(['trainer.not_finite', 'trainer.empty_batch', 'trainer.bad_sequence', 'trainer.context_exceeded'])(
  'a batch that the trainer answers with %s is rejected, with its reason and what to do, and publishes nothing',
  async code => {
    const { port, calls, close } = await rig(refusing(code))
    const decision = await port(request([]), new AbortController().signal)
    expect(decision!.facts).toMatchObject([{ type: 'step.rejected', step: 3, reason: 'for this reason; do that' }])
    expect(calls.saved).toEqual([])
    await close()
  },
)

test('what is wrong with the trainer and not with the batch rejects no step', async () => {
  for (const code of ['trainer.lost', 'trainer.bad_option', 'trainer.failed']) {
    const { port, close } = await rig(refusing(code))
    await expect(port(request([]), new AbortController().signal)).rejects.toMatchObject({ code })
    await close()
  }
})

test('a stage resets the trainer before its first step, and again when that step is computed again', async () => {
  const { port, calls, close } = await rig(async () => ({ loss: 0.25 }), { klCoef: 0.001 })
  const reset = { optimizer: true, reference: true }
  await port(request([{ ...batch(2, 0.25), reset }]), new AbortController().signal)
  expect(calls.resets).toEqual([[0, JSON.stringify(reset)]])
  const asked = request([])
  await port(
    { ...asked, batch: { ...(asked as { batch: Batch }).batch, reset } } as LearnerRequest,
    new AbortController().signal,
  )
  expect(calls.resets[1]).toEqual([2, JSON.stringify(reset)])
  await close()
})

test('without a KL a stage takes no reference: nothing would be measured from it', async () => {
  const { port, calls, close } = await rig(async () => ({ loss: 0.25 }))
  const only = { optimizer: false, reference: true }
  const { batch: asked } = request([]) as { batch: Batch }
  const now = { ...asked, reset: { optimizer: true, reference: true } }
  const since = [{ ...batch(2, 0.25), reset: only }]
  await port({ ...request(since), batch: now } as LearnerRequest, new AbortController().signal)
  expect(calls.resets).toEqual([[1, JSON.stringify({ optimizer: true, reference: false })]])
  await close()
})
