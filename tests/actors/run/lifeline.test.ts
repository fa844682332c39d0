/** Lifeline: what becomes of an outside process that does not start, or dies. */
import { type Living, lifeline } from '../../../actors/run/lifeline'
import { systemEffects } from '../../../runtime/effects'
import { TroupeError } from '../../../runtime/errors'
import { until } from '../../support/until'

const failure = (retriable: boolean) =>
  new TroupeError('process.start_failed', { boundary: 'process', retriable, message: 'cannot start' })

/** Lives until it is told that it died. */
function living(): Living & { die(error: Error): void } {
  let die: (error: Error) => void = () => {}
  const lost = new Promise<Error>(resolve => {
    die = resolve
  })
  return { lost, die, close: async () => {} }
}

/** Starts fail as `plan` says, in order; the last entry holds for all that follow. */
function kept(plan: readonly (TroupeError | undefined)[]) {
  const seen = { starts: 0, downs: [] as Error[], failed: [] as Error[] }
  const line = lifeline({
    name: 'engine',
    start: async () => {
      const outcome = plan[Math.min(seen.starts++, plan.length - 1)]
      if (outcome !== undefined) throw outcome
      return living()
    },
    onDown: async error => {
      seen.downs.push(error)
    },
    onFailed: error => seen.failed.push(error),
    fx: systemEffects,
    restart: { backoffMs: 1 },
  })
  line.current().catch(() => {})
  return { line, seen }
}

test('a first start that may succeed later is tried again', async () => {
  const { line, seen } = kept([failure(true), undefined])
  await until(() => seen.starts === 2)
  await line.current()
  expect(seen.downs).toHaveLength(1)
  expect(seen.failed).toEqual([])
})

test('a first start that can never succeed fails the run at once, though nobody asks for the process', async () => {
  const error = failure(false)
  const { seen } = kept([error])
  await until(() => seen.failed.length > 0)
  expect(seen).toEqual({ starts: 1, downs: [], failed: [error] })
})

test('too many failed starts in a row fail the run, once, with the last reason', async () => {
  const { seen } = kept([failure(true)])
  await until(() => seen.failed.length > 0)
  expect(seen.failed).toHaveLength(1)
  expect(seen.failed[0]).toMatchObject({
    code: 'process.failed_repeatedly',
    message: expect.stringMatching(/failed 3 times in a row; last: .*cannot start/),
  })
  expect(seen.starts).toBe(seen.downs.length)
})

test('a process that dies is replaced, and one that is closed is not', async () => {
  const processes: (Living & { die(error: Error): void })[] = []
  const line = lifeline({
    name: 'trainer',
    start: async () => {
      processes.push(living())
      return processes.at(-1)!
    },
    onFailed: () => {},
    fx: systemEffects,
    restart: { backoffMs: 1 },
  })
  const first = await line.current()
  processes[0]!.die(new Error('killed'))
  await until(() => processes.length === 2)
  expect(await line.current()).not.toBe(first)
  await line.close()
  processes[1]!.die(new Error('closed'))
  await new Promise(resolve => setTimeout(resolve, 50))
  expect(processes).toHaveLength(2)
})
