/** Failures of one kind in a row: the third is final, whatever time lies between them. */
import { FailureStreaks } from '../../../runtime/actor/failureStreaks'
import { TroupeError } from '../../../runtime/errors'

const slow = new TroupeError('trainer.timeout', { boundary: 'trainer', retriable: true, message: 'too slow' })
const step = { what: 'the step', boundary: 'trainer' } as const
const save = { what: 'the save', boundary: 'trainer' } as const
const fails = async () => Promise.reject(slow)
const codeOf = (attempt: Promise<unknown>) =>
  attempt.then(
    value => value,
    error => error.code,
  )

test('the third failure in a row is final and names the last one; those before it are as they were', async () => {
  const streaks = new FailureStreaks()
  expect([await codeOf(streaks.attempt(step, fails)), await codeOf(streaks.attempt(step, fails))]).toEqual([
    'trainer.timeout',
    'trainer.timeout',
  ])
  await expect(streaks.attempt(step, fails)).rejects.toMatchObject({
    code: 'trainer.failed_repeatedly',
    retriable: false,
    message: 'the step failed 3 times in a row; last: too slow',
    cause: slow,
  })
})

test('a success of the kind begins the count anew; one of another kind does not', async () => {
  const streaks = new FailureStreaks()
  const codes: unknown[] = []
  for (const work of [fails, fails, async () => 'done', fails, fails])
    codes.push(await codeOf(streaks.attempt(step, work)))
  await streaks.attempt(save, async () => 'done')
  expect(codes).toEqual(['trainer.timeout', 'trainer.timeout', 'done', 'trainer.timeout', 'trainer.timeout'])
  expect(await codeOf(streaks.attempt(step, fails))).toBe('trainer.failed_repeatedly')
})
