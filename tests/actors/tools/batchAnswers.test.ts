/** Answers of calls that end close together are appended together; one that comes alone does not wait. */
import { batchAnswers } from '../../../actors/tools/batchAnswers'
import type { EndTools } from '../../../messages/commands'
import { executorId } from '../../../messages/ids'

const ended = (calls: readonly string[]): EndTools => ({
  ...{ type: 'tools.ended', executor: executorId('x'), incarnation: '1', slots: 4, calls },
})
const answer = (at: number) => ({ facts: [{ type: 'engine.slept', at, engine: 'e' }] as never[], commands: [] })

test('an answer alone is appended at once; those that follow within the window come in one append with one report', async () => {
  jest.useFakeTimers()
  try {
    const batched = batchAnswers(() => 10, ended)
    const first = await batched(answer(0), 'a')
    expect(first).toEqual({ facts: answer(0).facts, commands: [ended(['a'])] })
    const later = [batched(answer(1), 'b'), batched(answer(2), 'c')]
    let isDone = false
    void Promise.all(later).then(() => (isDone = true))
    await jest.advanceTimersByTimeAsync(5)
    expect(isDone).toBe(false)
    await jest.advanceTimersByTimeAsync(10)
    const facts = [...answer(1).facts, ...answer(2).facts]
    expect(await Promise.all(later)).toEqual([{ facts, commands: [ended(['b', 'c'])] }, undefined])
    await jest.advanceTimersByTimeAsync(10)
    expect((await batched(answer(3), 'd'))?.commands).toEqual([ended(['d'])])
  } finally {
    jest.useRealTimers()
  }
})
