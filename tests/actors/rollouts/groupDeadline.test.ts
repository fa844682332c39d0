/** A group's deadline counts from its rollouts' first generations; requests of older runs keep the former count. */
import { type GrouperState, grouper } from '../../../actors/rollouts/grouper'
import type { Fact, RolloutRequested } from '../../../messages/facts'
import { engineId } from '../../../messages/ids'
import { manualEffects } from '../../../runtime/effects'
import { claim, ofType, requested } from '../../support/facts'
import { refold, type World, world } from '../../support/world'

const behaviour = () =>
  grouper({
    runSeed: 1,
    selection: { variant: 'paper', keep: 1, minNegative: 0, minPositive: 0, rejectEqual: true },
  })

const deadlineMs = 60_000
type Groups = World<GrouperState, unknown>

/** Groups of two rollouts, all requested at once. */
function start(groups: readonly string[], change: Partial<RolloutRequested> = { deadlineFrom: 'start' }): Groups {
  const w = world(behaviour())
  w.append(claim())
  for (const [g, group] of groups.entries())
    for (const member of [0, 1])
      w.append(requested(group, member, { groupSize: 2, order: 2 * g + member, deadlineMs, at: 1000, ...change }))
  return w
}

const started = (group: string, member: number, at: number): Fact => ({
  ...{ type: 'rollout.started', at, trajectory: requested(group, member).trajectory, engine: engineId('e0') },
})
const closed = (w: Groups) => ofType(w.log, 'group.closed').map(({ group, reason }) => `${group} ${reason}`)

test('a group that waits in the queue for ten times its deadline is not closed; one that generates is, on time', () => {
  const w = start(['first', 'queued'])
  w.append(started('first', 0, 1000), started('first', 1, 1000))
  w.tick(59_000)
  expect(closed(w)).toEqual([])
  w.tick(2000)
  expect(closed(w)).toEqual(['first deadline'])
  w.tick(10 * deadlineMs)
  expect(closed(w)).toEqual(['first deadline'])
  const at = 1000 + 61_000 + 10 * deadlineMs
  w.append(started('queued', 0, at))
  w.tick(2 * deadlineMs)
  // The other member is still in the queue.
  expect(closed(w)).toHaveLength(1)
  w.append(started('queued', 1, at + 2 * deadlineMs))
  w.tick(59_000)
  expect(closed(w)).toHaveLength(1)
  w.tick(2000)
  expect(closed(w)).toEqual(['first deadline', 'queued deadline'])
})

test('a second start of the same rollout, as a new scheduler writes it, gives the group no more time', () => {
  const w = start(['g'])
  w.append(started('g', 0, 1000), started('g', 1, 1000))
  w.tick(40_000)
  const before = w.state()
  w.append(started('g', 0, 41_000), started('g', 1, 41_000))
  expect(w.state()).toBe(before)
  w.tick(21_000)
  expect(closed(w)).toEqual(['g deadline'])
})

test('an actor that begins anew gives started groups no more time, and a refold of every prefix is the live state', () => {
  const w = start(['g'])
  w.append(started('g', 0, 1000), started('g', 1, 1000))
  expect(refold(behaviour(), w.log)).toEqual(w.state())
  for (let n = 0; n < 4; n++) {
    w.tick(14_000)
    w.restart()
  }
  expect(closed(w)).toEqual([])
  w.tick(6000)
  expect(closed(w)).toEqual(['g deadline'])
})

test('time in which the process was stopped does not count', () => {
  const w = start(['g'])
  w.append(started('g', 0, 1000), started('g', 1, 1000))
  w.tick(10_000)
  w.nap(1e7)
  w.tick(40_000)
  expect(closed(w)).toEqual([])
  w.tick(11_000)
  expect(closed(w)).toEqual(['g deadline'])
})

test('a request without `deadlineFrom`, as in older logs, counts from itself, whatever starts later', () => {
  const w = start(['g'], {})
  w.append(started('g', 0, 1000))
  w.tick(59_000)
  expect(closed(w)).toEqual([])
  w.append(started('g', 1, 60_000))
  w.tick(2000)
  expect(closed(w)).toEqual(['g deadline'])
})

test('ticks before the close is folded close the group once; a close that never comes is decided again', () => {
  const grouping = behaviour()
  const fx = manualEffects(1000)
  const state = refold(grouping, [claim(), requested('g', 0, { groupSize: 1, deadlineMs, at: 1000 })])
  const closes = (ms: number) => {
    fx.advance(ms)
    return grouping.decide!(state, { type: 'tick' }, fx).facts.filter(({ type }) => type === 'group.closed').length
  }
  const steps = [0, ...Array.from({ length: 61 }, () => 1000)]
  expect(steps.map(closes).reduce((a, b) => a + b)).toBe(1)
  expect([1000, 1000, 1000].map(closes)).toEqual([0, 0, 0])
  expect([1000, 1000, 1000].map(closes)).toContain(1)
})
