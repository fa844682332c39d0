/** Alarms that every recipe has: active unless switched off by name, with a command; and the two that look elsewhere than at a step. */
import { dueAlarms, noAlarms, watch } from '../../../actors/curriculum/alarms'
import { nextTally, noTallies, tally } from '../../../actors/curriculum/tally'
import { stallAlarm } from '../../../actors/run/control/stallAlarm'
import { activeAlarms, recipeSchema, stalledMinutes, stepAlarms, withoutUsual } from '../../../config'
import type { Fact } from '../../../messages/facts'
import { runId } from '../../../messages/ids'
import { memoryBlobs } from '../../../runtime/bus/blobs'
import { openMemoryBus } from '../../../runtime/bus/memory/memoryBus'
import { manualEffects } from '../../../runtime/effects'
import { openJournal } from '../../../runtime/journal/openJournal'
import { createLog } from '../../../runtime/log'
import { resolveConfig } from '../../../runtime/settings/resolveConfig'
import { everything } from '../../support/audit'
import { ofType } from '../../support/facts'

const alarmsOf = (alarms?: readonly object[]) => {
  const recipe = { name: 'r', model: { from: 'directory', path: '/m' }, ...(alarms === undefined ? {} : { alarms }) }
  return resolveConfig(recipeSchema, { what: 'recipe r', recipe, overrides: [] }).value.alarms
}
const named = (alarms?: readonly object[]) => activeAlarms(alarmsOf(alarms)).map(({ name }) => name)

test('a recipe that names no alarm has every built-in one; a recipe switches one off by name, or changes its bound', () => {
  expect(named()).toEqual(stepAlarms)
  expect(stalledMinutes(alarmsOf())).toBe(30)
  const some = [
    { name: 'equal-groups', off: true },
    { name: 'entropy-collapse', below: 0.5 },
    { name: 'stalled', off: true },
  ]
  expect(named(some).sort()).toEqual(stepAlarms.filter(name => name !== 'equal-groups').sort())
  expect(activeAlarms(alarmsOf(some)).filter(({ name }) => name === 'entropy-collapse')).toMatchObject([
    { below: 0.5, for: 5 },
  ])
  expect(stalledMinutes(alarmsOf(some))).toBeUndefined()
  expect(stalledMinutes(alarmsOf([{ name: 'stalled', above: 5 }]))).toBe(5)
  expect(activeAlarms(withoutUsual(alarmsOf([{ name: 'tool-errors' }]))).map(({ name }) => name)).toEqual([
    'tool-errors',
  ])
  expect(() => alarmsOf([{ name: 'mine', metric: 'loss', above: 1, off: true }])).toThrow(
    /only a built-in alarm is switched off/,
  )
  expect(() => alarmsOf([{ name: 'stalled', stop: true }])).toThrow(/'stalled' cannot stop a run/)
})

test('an alarm ends with the command that shows what to look at, for its run', () => {
  const plans = activeAlarms(alarmsOf())
  let state = noAlarms
  for (let step = 1; step <= 10; step++)
    state = watch(plans, state, { type: 'step.tallied', at: 0, step, metrics: { truncatedShare: 0.5 } })
  expect(dueAlarms(plans, state, 'my-run').map(({ message }) => message)).toEqual([
    expect.stringMatching(
      /^truncatedShare is 0.5, above 0.1 .*: npx troupe replay ls --status truncated --run my-run$/,
    ),
  ])
})

test('a policy that does worse on problems it is not trained on is told of, in whatever order the topics are read', () => {
  const evaluated = (step: number, passAt1: number): Fact =>
    ({
      type: 'evaluation.completed',
      at: 0,
      name: 'held-out',
      step,
      version: step,
      passAt1,
      standardError: 0,
      n: 8,
    }) as never
  const groups = (step: number): Fact[] =>
    [
      { type: 'curriculum.advanced', purpose: 'train', step, groups: [`s000${step}.0000`], cursor: 0, order: 0 },
      { type: 'group.selected', step, group: `s000${step}.0000` },
      { type: 'step.completed', at: 0, step, version: step, metrics: {} },
    ] as never
  const runs = [evaluated(0, 0.2), evaluated(1, 0.7), evaluated(2, 0.4)]
  const drops = (facts: readonly Fact[]) => {
    let state = facts.reduce(tally, noTallies)
    return [1, 2, 3].map(done => {
      const told = nextTally(state, 3, 0)!
      state = tally(state, { type: 'step.tallied', at: 0, ...told })
      expect(told.step).toBe(done)
      return told.metrics.evaluationDrop
    })
  }
  const steps = [1, 2, 3].flatMap(groups)
  for (const order of [
    [...runs, ...steps],
    [...steps, ...runs],
  ]) {
    const [none, rising, fallen] = drops(order)
    expect([none, rising]).toEqual([undefined, 0])
    expect(fallen).toBeCloseTo(0.3)
  }
})

test('a run that writes no fact for so long is stalled: told once, again only after a fact; a pause does not count', async () => {
  const bus = openMemoryBus()
  const journal = openJournal(bus, memoryBlobs(), runId('r'))
  await journal.create(2)
  const fx = manualEffects(0)
  const { look } = stallAlarm({
    ...{ journal, fx, minutes: 1, mayAct: async () => true, log: createLog('stall', { level: 'silent' }) },
  })
  const raised = async () =>
    ofType(
      (await everything(journal, 'runs', 0)).map(e => e.message),
      'alarm.raised',
    )
  const pass = async (looks: number) => {
    for (let n = 0; n < looks; n++) {
      fx.advance(10_000)
      await look()
    }
  }
  await look()
  await pass(5)
  expect(await raised()).toEqual([])
  fx.advance(3600_000) // suspended: counts as two looks at most
  await look()
  await pass(20)
  expect(await raised()).toMatchObject([
    { alarm: 'stalled', message: expect.stringMatching(/^no fact for 1 minutes.*npx troupe why r$/) },
  ])
  await journal.append([{ type: 'learner.claimed', at: 0, owner: 'l' }])
  await pass(5)
  expect(await raised()).toHaveLength(1)
  await pass(5)
  expect(await raised()).toHaveLength(2)
  await bus.close()
})
