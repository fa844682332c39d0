/**
 * Finds the original error below the actor errors that wrapped it on its way up the tree.
 * in   an error of an actor
 * out  the first error of its chain of causes, itself included, that is not an actor error; without one, the deepest
 *      actor error
 */
import { TroupeError } from '../errors'

export function rootCause(error: Error): Error {
  let last = error
  while (last instanceof TroupeError && last.boundary === 'actor' && last.cause instanceof Error) last = last.cause
  return last
}
