/**
 * Waits for the end of a run that a command made for its own report: a dry run, a rehearsal.
 *
 * in   the run's end, the signals, a bound on the time        out  how it ended, and why
 * Invariant: this function does not stop the run. After a signal, or when the time is over, the caller has to close the
 * run.
 */
import type { RunFinished } from '../../messages/facts'
import type { StopSignals } from './signals'

export interface RunEnded {
  readonly outcome: RunFinished['outcome']
  readonly reason: string
}

/** Waits at most `withinMs`. @param what the run in words, for the reason, such as `the rehearsal` */
export async function runEnd(
  finished: Promise<RunFinished>,
  { stopped }: Pick<StopSignals, 'stopped'>,
  withinMs: number,
  what: string,
): Promise<RunEnded> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<RunEnded>(done => {
    const reason = `${what} did not end within ${withinMs / 60_000} minutes`
    timer = setTimeout(() => done({ outcome: 'failed', reason }), withinMs)
  })
  const signalled = stopped.then((signal): RunEnded => ({ outcome: 'stopped', reason: signal }))
  try {
    const { outcome, reason } = await Promise.race([finished, signalled, late])
    return { outcome, reason }
  } finally {
    clearTimeout(timer)
  }
}
