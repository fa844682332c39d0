/** Properties that all recipes of the paper and of its release share. */
import { rstar2 } from '../../recipes/rstar2'

test.each([...rstar2])(
  '%s: RL begins at a tuned model, warms up over 20 steps, and takes no restated problem for an answer',
  (_, recipe) => {
    const { coldStart, model, train, reward } = recipe.config
    const isBase = model.from === 'directory' && model.path.endsWith('-Base')
    expect(isBase).toBe(coldStart !== undefined)
    expect(train).toMatchObject({ warmupSteps: 20 })
    expect(reward).toMatchObject({ name: 'math', literal: true })
  },
)
