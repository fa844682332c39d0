/** A training draw skips tasks whose prompts are too long, in any order of the source, and fails only if all are. */
import type { DrawRequest } from '../../../actors/curriculum/curriculum'
import { drawPort } from '../../../actors/curriculum/drawPort'
import type { Renderer } from '../../../backends/renderer/renderer'
import type { TaskSource } from '../../../config'
import { groupId, policyVersion, taskId } from '../../../messages/ids'
import { manualEffects } from '../../../runtime/effects'
import { requested } from '../../support/facts'

const { limits, sampling, task } = requested('g', 0)
const fits = { ...task, id: taskId('fits'), messages: [{ role: 'user', content: 'short' }] } as typeof task
const long = { ...task, id: taskId('long'), messages: [{ role: 'user', content: 'long' }] } as typeof task
const renderer = {
  prompt: async (messages: typeof task.messages) => ({
    text: '',
    tokens: new Int32Array(messages[0]?.content === 'long' ? limits.contextTokens + 1 : 1),
  }),
} as unknown as Renderer

function draw(order: readonly (typeof task)[], size: number, cursor: number) {
  const train = (index: number) => order[index % order.length]!
  const source: TaskSource = { train, evaluation: train, dropped: {}, size }
  const options = {
    ...{ seed: 1, groupSize: 1, evaluationSamples: 1, limits, sampling, evaluationTemperature: 0, deadlineMs: 1 },
    ...{ tools: [], shownTools: [], begins: async () => [0] },
  }
  const request: DrawRequest = {
    ...{ kind: 'draw', purpose: 'train', step: 1, groups: [groupId('s1')], cursor, order: 0 },
    minVersion: policyVersion(0),
  }
  return drawPort(source, renderer, options, manualEffects(0))(request, new AbortController().signal)
}

test('a task that is met twice in a row, where two orders of the source join, counts once', async () => {
  const answer = await draw([fits, long, long, fits], 2, 1)
  expect(JSON.stringify(answer)).toContain('"fits"')
})

test('a source whose tasks are all too long is refused with their number', async () => {
  const other = { ...long, id: taskId('other') }
  await expect(draw([long, other], 2, 0)).rejects.toMatchObject({
    code: 'config.prompt_too_long',
    message: expect.stringContaining('the prompts of 2 tasks in a row are too long'),
  })
})
