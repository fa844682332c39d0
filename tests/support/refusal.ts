/** Returns the error that a call throws (`failure`) or rejects with (`refused`); the test fails if there is none. */
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
