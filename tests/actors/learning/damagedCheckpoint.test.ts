/** A checkpoint that the trainer refuses ends the run with the command that goes on from an older one, which is checked. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { ignoredCheckpoints } from '../../../actors/learning/fromCheckpoint'
import { learner } from '../../../actors/learning/learner'
import { withCure } from '../../../actors/learning/soundCheckpoint'
import { beginOf } from '../../../actors/run/roles/followed'
import type { Fact } from '../../../messages/facts'
import { epoch, groupId, policyVersion } from '../../../messages/ids'
import { manualEffects } from '../../../runtime/effects'
import { TroupeError } from '../../../runtime/errors'
import { flipBit, writeCheckpoint } from '../../support/checkpointFiles'

const directory = mkdtempSync(join(tmpdir(), 'troupe-damaged-'))
afterAll(() => rmSync(directory, { recursive: true, force: true }))
const pathOf = (name: string) => join(directory, name)

const save = (step: number, name = `step-${step}`): Fact => {
  return { type: 'checkpoint.saved', at: 0, step, version: policyVersion(step), name, digest: '', manifest: `m${name}` }
}
const begin = (step: number): Fact => {
  return {
    ...{ type: 'step.started', at: 0, step, epoch: epoch(0), baseVersion: policyVersion(step - 1) },
    ...{ baseCheckpoint: `step-${step - 1}`, trajectories: [] },
  }
}
const end = (step: number): Fact => {
  return { type: 'step.completed', at: 0, step, epoch: epoch(0), version: policyVersion(step), metrics: {} }
}
const first: Fact = {
  ...{ type: 'weights.published', at: 0, version: policyVersion(0), step: 0 },
  ...{ url: 'weights/v0', digest: '', bytes: 0 },
}
/** Steps 1 to 3, each with a checkpoint; step 4 is open. */
const history = [
  save(0),
  first,
  begin(1),
  end(1),
  save(1),
  begin(2),
  end(2),
  save(2),
  begin(3),
  save(3),
  end(3),
  begin(4),
]

const trainRequest = (facts: readonly Fact[], without?: ReadonlySet<string>) => {
  const behaviour = learner({ groupsPerStep: 1, refillShare: 0, steps: 9, ...(without && { without }) })
  const origin = { topic: 'learner', partition: 0, offset: 0 } as const
  const state = facts.reduce((s, fact) => behaviour.evolve(s, fact, origin), behaviour.initial())
  const request = behaviour.pending(state, manualEffects(0)).requests?.find(({ kind }) => kind === 'train')
  if (request?.kind !== 'train') throw new Error('nothing is to be trained')
  return request
}

test('the trainer is asked to load the newest checkpoint under the digest that the log has of its manifest', () => {
  expect(trainRequest(history).checkpoint).toEqual({ step: 3, name: 'step-3', manifest: 'mstep-3' })
  expect(trainRequest(history).since).toEqual([])
})

test('from an older checkpoint all steps since are computed again; checkpoints that are saved later count', () => {
  const without = ignoredCheckpoints(history, 'step-1')
  expect([...without]).toEqual(['step-2', 'step-3'])
  const { checkpoint, since, batch } = trainRequest(history, without)
  expect(checkpoint).toEqual({ step: 1, name: 'step-1', manifest: 'mstep-1' })
  expect(since.map(({ started }) => started.step)).toEqual([2, 3])
  expect(batch.started.step).toBe(4)
  const later = trainRequest([...history, end(4), save(4, 'step-4-e90'), begin(5)], without)
  expect(later).toMatchObject({ checkpoint: { step: 4, name: 'step-4-e90' }, since: [] })
})

test('the rollouts of the steps that are computed again are read again', () => {
  const drawn = (step: number): Fact => ({
    ...{ type: 'curriculum.advanced', at: 0, step, purpose: 'train', groups: [groupId(`t${step}`)], cursor: 1 },
    ...{ order: 1, begins: [step * 100] },
  })
  const facts = [...[1, 2, 3, 4].map(drawn), ...history]
  expect(beginOf(facts, { learns: true })('trajectories', 0)).toBe(400)
  const without = ignoredCheckpoints(facts, 'step-1')
  expect(beginOf(facts, { learns: true, without })('trajectories', 0)).toBe(200)
})

test('a checkpoint that the run does not keep is refused by name, with those that it keeps', () => {
  const kept: Fact[] = [...history, { type: 'checkpoint.removed', at: 0, step: 0, name: 'step-0' }]
  for (const name of ['step-0', 'step-9']) {
    expect(() => ignoredCheckpoints(kept, name)).toThrow(
      expect.objectContaining({
        code: 'config.no_checkpoint',
        message: expect.stringContaining('step-1, step-2, step-3'),
      }),
    )
  }
  expect(ignoredCheckpoints(kept, undefined).size).toBe(0)
})

test('the error of a damaged checkpoint names the newest older one that is sound, and the command', async () => {
  const saved = [0, 1, 2, 3].map(step => {
    const name = `step-${step}`
    return { step, version: policyVersion(step), name, ...writeCheckpoint(pathOf(name)) }
  })
  flipBit(join(pathOf('step-2'), 'training/__0_0.distcp')) // the next older one is damaged, too
  const error = new TroupeError('trainer.checkpoint_corrupt', {
    ...{ boundary: 'trainer', retriable: false, message: 'FILE has the digest 1…, but the manifest says 2…' },
  })
  const refused = { checkpoint: saved[3]!, saved, pathOf, run: 'mine' }
  const cured = (await withCure(error, refused)) as TroupeError
  expect(cured).toMatchObject({ code: 'trainer.checkpoint_corrupt', retriable: false })
  expect(cured.message).toContain('checkpoint step-3 cannot be loaded: FILE has the digest')
  expect(cured.hint).toContain('--resume mine --from-checkpoint step-1`')
  const alone = (await withCure(error, { ...refused, saved: saved.slice(2) })) as TroupeError
  expect(alone.hint).toContain('no older checkpoint whose files match its manifest')
  const lost = new TroupeError('trainer.lost', { boundary: 'trainer', retriable: true, message: 'gone' })
  expect(await withCure(lost, refused)).toBe(lost)
})
