/** What `train` says of a run while it lasts. */

import { trainView } from '../../../cli/train/view'
import { type RecipeConfig, recipeSchema } from '../../../config'
import { epoch, groupId, policyVersion, trajectoryId } from '../../../messages/ids'
import { progress, summaryOf } from '../../../replay/learning/progress'
import { manualEffects } from '../../../runtime/effects'
import { requested } from '../../support/facts'

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
