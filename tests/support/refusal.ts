/** What was thrown where something should be refused. Nothing thrown fails the test. */
import { TroupeError } from '../../runtime/errors'

export function failure(act: () => unknown): TroupeError {
  try {
    act()
  } catch (thrown) {
    if (thrown instanceof TroupeError) return thrown
    throw thrown
  }
  throw new Error('it should have been refused')
}

export const refused = (promise: Promise<unknown>): Promise<TroupeError> =>
  promise.then(
    () => Promise.reject(new Error('it should have been refused')),
    (error: TroupeError) => error,
  )
