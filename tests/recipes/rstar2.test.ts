/** Properties that all recipes of the paper and of its release share. */
import { countAnswerTags, extractAnswer } from '../../kernels/grading/answerExtraction'
import { parseToolCalls, printToolCall } from '../../kernels/toolCalls/toolCalls'
import { recipes } from '../../recipes'
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

test('the recipes of the paper open the reasoning of every turn, and no other recipe does', () => {
  for (const [name, { config }] of recipes) {
    const template = config.model.from === 'directory' ? config.model.template : undefined
    expect([name, template?.endsWith('templates/rstar2.jinja') ?? false]).toEqual([name, rstar2.has(name)])
  }
})

test('a response that goes on inside the reasoning is parsed and graded as one that opens it itself', () => {
  const turns = [
    `first I add</reason>\n${printToolCall('python', { code: 'print(<reason>)' })}`,
    'so it is 5</reason>\n<answer>\\boxed{5}</answer>',
  ]
  for (const texts of [turns, turns.map(text => `<reason>${text}`)]) {
    const parsed = parseToolCalls(texts[0]!)
    expect(parsed).toMatchObject({ unclosed: false, calls: [{ kind: 'call', name: 'python' }] })
    const response = texts.join('\n')
    expect(countAnswerTags(response)).toBe(1)
    expect(extractAnswer(response, 'answer-tag')).toBe('5')
    expect(extractAnswer(response, 'anywhere')).toBe('5')
  }
})
