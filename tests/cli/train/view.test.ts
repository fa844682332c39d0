/** What `train` says of a run while it lasts. */

import { trainView } from '../../../cli/train/view'
import { type RecipeConfig, recipeSchema } from '../../../config'
import { epoch, groupId, policyVersion, trajectoryId } from '../../../messages/ids'
import { progress, summaryOf } from '../../../replay/learning/progress'
import { manualEffects } from '../../../runtime/effects'
import { requested } from '../../support/facts'

const progressed = (done: number) =>
  ({ type: 'stage.progressed', at: 0, stage: 'cold-start', done, loss: 1, leftSeconds: 960 }) as const
const config: RecipeConfig = recipeSchema.parse({ name: 'x', model: { from: 'directory', path: '/m' } })

test('records that are left out are named as they are met, each once, the first five, and cannot drive the terminal', () => {
  const said: string[] = []
  const spy = jest.spyOn(process.stderr, 'write').mockImplementation(text => said.push(String(text)) > 0)
  try {
    const view = trainView({ json: true, config, run: 'r', fx: manualEffects() })
    for (let offset = 0; offset < 9; offset++) {
      const fact = {
        type: 'record.refused',
        at: 0,
        origin: `troupe.r.turns:0:${offset}`,
        error: '\u001b[2Jtorn',
      } as const
      view.refused(fact)
      view.refused(fact)
    }
  } finally {
    spy.mockRestore()
  }
  expect(said).toHaveLength(6)
  expect(said[0]).toBe('left out troupe.r.turns:0:0, which could not be read or applied: \\u001b[2Jtorn\n')
  expect(said[5]).toContain('`troupe replay verify` lists all')
})

test('a rate of no calls is none: a step whose positives called no tool shows no share of failed calls', () => {
  const written: string[] = []
  const spy = jest.spyOn(process.stdout, 'write').mockImplementation(text => written.push(String(text)) > 0)
  const state = progress()
  const trajectory = trajectoryId(groupId('g'), 0)
  const counts = { turns: 1, sampledTokens: 5, toolCalls: 0, toolErrors: 0, answerTags: 1 }
  try {
    state.take(requested('g', 0, { step: 1 }))
    state.take({
      ...{ type: 'rollout.finished', at: 1, trajectory, epoch: epoch(0), outcome: 'answered', reason: '' },
      ...counts,
    })
    state.take({ type: 'reward.assigned', at: 1, trajectory, attempt: 0, reward: 1, answer: '', how: '' })
    const metrics = {}
    const report = state.take({
      ...{ type: 'step.completed', at: 2, step: 1, epoch: epoch(0), version: policyVersion(1), metrics },
    })
    expect(report).toMatchObject({ passAt1: 1, toolErrorRate: null, toolErrorRateInPositives: null })
    expect(summaryOf(state, 'r', 'done', '', 1).toolErrorsInPositives).toEqual({ first: null, last: null })
    trainView({ json: false, config, run: 'r', fx: manualEffects() }).step(state.steps[0]!)
  } finally {
    spy.mockRestore()
  }
  expect(written.join('')).toMatch(/tool errors in positives +– {2}/)
})

/**
 * Prints the end of a run after two steps, as a terminal shows it. `steps`: those of the run's recipe; `shown`: those that
 * this process shows while it runs.
 */
function ending(
  { outcome = 'done', steps = 2, recipeSteps = 2, shown = 2, reason = 'why it ended' },
  evaluations: readonly (readonly [step: number, passAt1: number])[] = [],
): string {
  const written: string[] = []
  const spy = jest.spyOn(process.stdout, 'write').mockImplementation(text => written.push(String(text)) > 0)
  const state = progress()
  try {
    const resumedBy = 'npx troupe train x --resume r --bus lmdb:/d'
    const view = trainView({
      ...{ json: false, config: { ...config, train: { ...config.train, steps } } },
      ...{ run: 'r', fx: manualEffects(), place: ' --bus lmdb:/d', recipeSteps, resumedBy },
    })
    for (const [step, passAt1] of evaluations)
      state.take({
        ...{ type: 'evaluation.completed', at: 0, step, version: policyVersion(step), passAt1, standardError: 0.01 },
        ...{ n: 8, asked: 8, metrics: {} },
      } as never)
    for (const step of [1, 2]) {
      const report = state.take({
        ...{ type: 'step.completed', at: step, step, epoch: epoch(0), version: policyVersion(step), metrics: {} },
      })
      if (step > 2 - shown) view.step(report as never)
    }
    written.length = 0
    const cpu = { seconds: { engine: 0, tools: 0, trainer: 0, renderer: 0, node: 1 }, peakMib: 1 }
    view.end(summaryOf(state, 'r', outcome, reason, 3), cpu, 840)
  } finally {
    spy.mockRestore()
  }
  return written.join('')
}

test('a run that --steps ended early says after which step, and how to go on to the last one', () => {
  const text = ending({ recipeSteps: 6 })
  expect(text).toContain('r: stopped after step 2 of 6\n')
  expect(text).toContain('continue with             npx troupe train x --resume r --bus lmdb:/d --steps 6\n')
})

test('a run whose last stage was over before its last step says so, and not how to go on', () => {
  const text = ending({ steps: 6, recipeSteps: 6 })
  expect(text).toContain('r: done, why it ended\n')
  expect(text).not.toContain('continue with')
})

test('a run that was stopped or failed says with which command it goes on, one that is done does not', () => {
  expect(ending({ outcome: 'stopped' })).toContain(
    'continue with             npx troupe train x --resume r --bus lmdb:/d\n',
  )
  expect(ending({ outcome: 'failed' })).toContain('r: failed, why it ended\n')
  expect(ending({})).not.toContain('continue with')
  expect(ending({})).toContain('look at it                npx troupe replay ls --run r --bus lmdb:/d\n')
})

test('a run that had no group to train on says what it needs to go on', () => {
  const reason =
    'step 3 has no group to train on: of 12 groups, 12 have the same reward in every rollout (equal-rewards)'
  const { refillShare } = config.selection
  expect(ending({ outcome: 'stopped', reason })).toContain(
    `continue with             npx troupe train x --resume r --bus lmdb:/d --set selection.refillShare=${2 * refillShare + 1}\n`,
  )
})

test('a run without evaluations or tool calls prints no row of dashes', () => {
  const text = ending({})
  expect(text).not.toContain('–')
  expect(text).not.toContain('pass@1')
  expect(ending({}, [[0, 0.5]])).toMatch(/pass@1 +0\.500 ± 0\.010 \(n 8\)\n/)
  expect(
    ending({}, [
      [0, 0.5],
      [2, 0.75],
    ]),
  ).toMatch(/pass@1 +0\.500 .* → 0\.750 ± 0\.010 \(n 8\)\n/)
})

test('a process that resumed a run says which times are its own, for how many steps, and how long ago the run began', () => {
  const resumed = ending({ shown: 1 })
  expect(resumed).toMatch(/wall time +3s for 1 of 2 steps in this process; the run began 14m ?0?0?s? ago\n/)
  expect(resumed).toMatch(/CPU time of this process +engine 0 s/)
  expect(ending({})).toMatch(/wall time +3s for 2 steps\nCPU time +engine 0 s/)
})

test('the summary says how many rewards failed and why, the most frequent reason first', () => {
  const written: string[] = []
  const spy = jest.spyOn(process.stdout, 'write').mockImplementation(text => written.push(String(text)) > 0)
  const view = trainView({ json: false, config, run: 'r', fx: manualEffects() })
  const failed = (how: string, why: string) => ({
    ...({ type: 'reward.failed', at: 0, trajectory: trajectoryId(groupId('g'), 0), attempt: 0 } as const),
    ...{ how, why },
  })
  try {
    view.rewardFailed(failed('timeout', 'no score within 10 ms'))
    for (const unit of ['kg', 'm']) view.rewardFailed(failed('raised', `KeyError: '${unit}' (judge.py:12)`))
    view.end(summaryOf(progress(), 'r', 'done', '', 1), { seconds: { node: 1 }, peakMib: 1 } as never)
  } finally {
    spy.mockRestore()
  }
  expect(written.join('')).toMatch(
    /rewards failed +2 × raised: KeyError: 'kg' \(judge\.py:12\)\nrewards failed +1 × timeout: no score/,
  )
})

test('without a terminal, a cold start says its progress and the time left as it begins, at each quarter, and every 30 s', () => {
  const said: string[] = []
  const spy = jest.spyOn(process.stderr, 'write').mockImplementation(text => said.push(String(text)) > 0)
  const tty = process.stderr.isTTY
  process.stderr.isTTY = false
  const fx = manualEffects()
  try {
    const view = trainView({ json: false, config, run: 'r', fx })
    for (const [afterMs, done] of [
      [0, 0.01],
      [10_000, 0.02],
      [10_000, 0.03],
      [10_000, 0.04],
      [10_000, 0.05],
      [10, 0.25],
      [10, 0.3],
    ] as const) {
      fx.advance(afterMs)
      view.progress(progressed(done))
    }
  } finally {
    process.stderr.isTTY = tty
    spy.mockRestore()
  }
  expect(said.map(line => /\d+ ?%/.exec(line)?.[0].replace(' ', ''))).toEqual(['1%', '4%', '25%'])
  expect(said[1]).toBe('cold start 4 %, loss 1.000, 16m00s left\n')
})
