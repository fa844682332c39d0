/** A run ends after three steps in a row that the trainer rejected; resumed, it has three tries again, whatever the order of topics. */
import { curriculum } from '../../../actors/curriculum/curriculum'
import { routeOf } from '../../../messages'
import type { Fact, StepRejected } from '../../../messages/facts'
import { epoch, runId } from '../../../messages/ids'
import { manualEffects } from '../../../runtime/effects'
import { plan, published } from '../../support/facts'
import { originAt } from '../../support/world'

const behaviour = curriculum({ ...plan, steps: 9 })
const rejected = (step: number): StepRejected => ({
  ...{ type: 'step.rejected', at: 0, step, epoch: epoch(0), reason: 'the loss is not finite', metrics: {} },
})
const resumed: Fact = {
  type: 'run.resumed',
  at: 0,
  run: runId('r'),
  recipeDigest: '',
  codeDigest: '',
  tokenizerDigest: '',
}

/** How the run ends after these facts, which are read topic by topic. */
function ending(facts: readonly Fact[], topics: readonly string[]) {
  let state = behaviour.initial()
  for (const topic of topics) {
    const own = facts.filter(fact => routeOf(fact, plan.run).topic === topic)
    for (const [offset, fact] of own.entries()) state = behaviour.evolve(state, fact, originAt(offset))
  }
  return behaviour.pending(state, manualEffects(0)).facts.filter(fact => fact.type === 'run.finished')
}

test.each([[['runs', 'learner']], [['learner', 'runs']]])('topics in the order %j', topics => {
  const first = [published(0), rejected(1), rejected(2)]
  expect(ending(first, topics)).toEqual([])
  const third = [...first, rejected(3)]
  const end = ending(third, topics)
  const reason = expect.stringMatching(/^3 steps in a row were rejected/)
  expect(end).toMatchObject([{ outcome: 'failed', steps: 3, reason }])
  const again = [...third, end[0]!, resumed]
  expect(ending(again, topics)).toEqual([])
  expect(ending([...again, rejected(4), rejected(5)], topics)).toEqual([])
  expect(ending([...again, rejected(4), rejected(5), rejected(6)], topics)).toMatchObject([
    { outcome: 'failed', steps: 6 },
  ])
})
