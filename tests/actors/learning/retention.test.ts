import * as fc from 'fast-check'
import { learner } from '../../../actors/learning/learner'
import { obsolete } from '../../../actors/learning/retention'
import type { CheckpointSaved, Fact } from '../../../messages/facts'
import { epoch, policyVersion } from '../../../messages/ids'
import { manualEffects } from '../../../runtime/effects'

const saved = (steps: readonly number[]) =>
  steps.map(step => ({ step, version: policyVersion(step), name: `step-${step}` }))

test('the newest checkpoints stay, and older ones that a step needs; `all` removes none', () => {
  const five = saved([0, 2, 4, 6, 8])
  const names = (needed: readonly string[], keep: number | 'all') =>
    obsolete(five, new Set(needed), keep).map(({ name }) => name)
  expect(names([], 2)).toEqual(['step-0', 'step-2', 'step-4'])
  expect(names(['step-2'], 2)).toEqual(['step-0', 'step-4'])
  expect(names([], 9)).toEqual([])
  expect(names([], 'all')).toEqual([])
})

test('whatever is kept or needed, the newest checkpoint is never removed', () =>
  fc.assert(
    fc.property(fc.uniqueArray(fc.nat(40), { minLength: 1 }), fc.integer({ min: 1, max: 5 }), (steps, keep) => {
      const all = saved(steps.sort((a, b) => a - b))
      const gone = obsolete(all, new Set(), keep)
      expect(gone).not.toContainEqual(all.at(-1))
      expect(all.length - gone.length).toBe(Math.min(keep, all.length))
    }),
  ))

const plan = { groupsPerStep: 1, refillShare: 0, steps: 9, keepCheckpoints: 1 }
const [fx, origin] = [manualEffects(0), { topic: 'learner', partition: 0, offset: 0 }]

const save = (step: number): Fact => {
  return { type: 'checkpoint.saved', at: 0, step, version: policyVersion(step), name: `step-${step}`, digest: '' }
}
const begin = (step: number, base: number): Fact => {
  return {
    ...{ type: 'step.started', at: 0, step, epoch: epoch(0), baseVersion: policyVersion(step - 1) },
    ...{ baseCheckpoint: `step-${base}`, trajectories: [] },
  }
}
const end = (step: number): Fact => {
  return { type: 'step.completed', at: 0, step, epoch: epoch(0), version: policyVersion(step), metrics: {} }
}
const first: Fact = {
  ...{ type: 'weights.published', at: 0, version: policyVersion(0), step: 0 },
  ...{ url: 'file:///w', digest: '', bytes: 0 },
}

/** Names of the checkpoints whose removal the learner requests after `facts`. */
function removals(facts: readonly Fact[]): readonly string[] {
  const behaviour = learner(plan)
  const state = facts.reduce((s, fact) => behaviour.evolve(s, fact, origin), behaviour.initial())
  return (behaviour.pending(state, fx).requests ?? []).flatMap(r =>
    r.kind === 'remove-checkpoint' ? [r.checkpoint.name] : [],
  )
}

function trainRequest(facts: readonly Fact[]) {
  const behaviour = learner(plan)
  const state = facts.reduce((s, fact) => behaviour.evolve(s, fact, origin), behaviour.initial())
  const request = behaviour.pending(state, fx).requests?.[0]
  return request?.kind === 'train' ? request : undefined
}

test('the checkpoint that an open step began from stays until the step is over and another one has begun elsewhere', () => {
  // Step 2 began before the checkpoint of step 1 was complete, so it names that of step 0.
  const open = [save(0), first, begin(1, 0), end(1), begin(2, 0), save(1)]
  expect(removals(open)).toEqual([])
  const over = [...open, end(2), save(2)]
  expect(removals(over)).toEqual(['step-1'])
  expect(removals([...over, begin(3, 2)])).toEqual(['step-1'])
  expect(removals([...over, begin(3, 2), end(3), save(3)])).toEqual(['step-0', 'step-1'])
})

test('a removal is requested until checkpoint.removed is in the log', () => {
  const facts = [save(0), first, begin(1, 0), end(1), save(1), begin(2, 1), end(2), save(2)]
  expect(removals(facts)).toEqual(['step-0'])
  expect(removals([...facts, { type: 'checkpoint.removed', at: 0, step: 0, name: 'step-0' }])).toEqual([])
})

const partSaved = (step: number, updates: number): Fact => {
  return { ...(save(step) as CheckpointSaved), name: `step-${step}-u${updates}`, updates }
}

test('the newest checkpoint in the middle of a step stays until a checkpoint holds the step, or it is rejected', () => {
  const open = [save(0), first, begin(1, 0), partSaved(1, 2), partSaved(1, 4)]
  const partials = (facts: readonly Fact[]) => trainRequest(facts)?.partial?.name
  expect(partials(open)).toBe('step-1-u4')
  expect(removals(open)).toEqual(['step-1-u2'])
  // Its step is over, but a trainer that dies now would compute it again from its base.
  const over = [...open, end(1), begin(2, 0)]
  expect(partials(over)).toBe('step-1-u4')
  expect(removals(over)).toEqual(['step-1-u2'])
  expect(partials([...over, partSaved(2, 2)])).toBe('step-2-u2')
  expect(removals([...over, partSaved(2, 2)])).toEqual(['step-1-u2', 'step-1-u4'])
  expect(partials([...over, save(1)])).toBeUndefined()
  expect(removals([...over, save(1)])).toEqual(['step-1-u2', 'step-1-u4'])
  const rejected: Fact = { type: 'step.rejected', at: 0, step: 1, epoch: epoch(0), reason: '', metrics: {} }
  expect(partials([...open, rejected, begin(2, 0)])).toBeUndefined()
  expect(removals([...open, rejected])).toEqual(['step-1-u2', 'step-1-u4'])
})

test('a checkpoint in the middle of a step is no checkpoint of the step', () => {
  const facts = [save(0), first, begin(1, 0), partSaved(1, 2), end(1), begin(2, 0)]
  expect(trainRequest(facts)).toMatchObject({ checkpoint: { name: 'step-0' }, since: [{ started: { step: 1 } }] })
})

const sftSaved = (updates: number): Fact => {
  return { ...(save(0) as CheckpointSaved), name: `sft-${updates}`, updates }
}

test('a cold start goes on from its newest checkpoint, keeps that alone, and none once it is over', () => {
  const behaviour = learner(plan)
  const requests = (facts: readonly Fact[]) =>
    behaviour.pending(
      facts.reduce((s, fact) => behaviour.evolve(s, fact, origin), behaviour.initial()),
      fx,
    ).requests ?? []
  expect(requests([])).toEqual([{ kind: 'cold-start', epoch: 0 }])
  const two = [sftSaved(5), sftSaved(10)]
  expect(requests(two)[0]).toMatchObject({ kind: 'cold-start', resume: { name: 'sft-10' } })
  expect(removals(two)).toEqual(['sft-5'])
  expect(removals([...two, { type: 'checkpoint.removed', at: 0, step: 0, name: 'sft-5' }])).toEqual([])
  expect(removals([...two, save(0), first])).toEqual(['sft-5', 'sft-10'])
  // A cold start that began anew wrote the first one again: it is the newest, once.
  expect(requests([...two, sftSaved(5)])[0]).toMatchObject({ kind: 'cold-start', resume: { name: 'sft-5' } })
  expect(removals([...two, sftSaved(5)])).toEqual(['sft-10'])
})
