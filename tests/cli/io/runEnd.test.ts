/** The end of a run that a command made for its report is the run's own, a signal's, or that of the time it is given. */
import { runEnd } from '../../../cli/io/runEnd'
import type { RunFinished } from '../../../messages/facts'

const never = new Promise<never>(() => {})

test('the first of the run, a signal and the bound says outcome and reason', async () => {
  const finished = { outcome: 'done', reason: 'all steps', steps: 1 } as unknown as RunFinished
  const ends = (run: Promise<RunFinished>, stopped: Promise<'SIGINT'>, ms: number) =>
    runEnd(run, { stopped }, ms, 'the step')
  expect(await ends(Promise.resolve(finished), never, 60_000)).toEqual({ outcome: 'done', reason: 'all steps' })
  expect(await ends(never, Promise.resolve('SIGINT'), 60_000)).toEqual({ outcome: 'stopped', reason: 'SIGINT' })
  expect(await ends(never, never, 30)).toEqual({
    outcome: 'failed',
    reason: 'the step did not end within 0.0005 minutes',
  })
})
