/**
 * Finds the error that was thrown below the errors that name the actors on its way up.
 * in   an error of an actor      out  the first cause that is none
 */
import { TroupeError } from '../errors'

export function rootCause(error: Error): Error {
  let last = error
  while (last instanceof TroupeError && last.boundary === 'actor' && last.cause instanceof Error) last = last.cause
  return last
}
