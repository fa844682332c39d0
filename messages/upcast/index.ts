/**
 * Upcasts: records of older schema versions, lifted to the current one, a step at a time.
 *
 * in   a value as it was unpacked (arrays of numbers still as bytes) and the version it was written under
 * out  the value as the current version would have it, before its shape is checked
 * Invariant: a step is pure and knows one type and one version; it never looks at other records. Every version below
 * the current one has a step, for as long as this code reads logs at all.
 */
import { MessageError } from '../messageError'

export type Value = Readonly<Record<string, unknown>>
export type Upcast = (value: Value) => Value

/** By type, then by the version that the step lifts from (to the next one). */
export type UpcastTable = Readonly<Record<string, Readonly<Record<number, Upcast>>>>

/** All steps of this code. Every type is at version 1, so there are none. */
export const upcasts: UpcastTable = {}

/**
 * Lifts `value` from `version` to `current`. Throws MessageError `codec.newer_version` for a version that is above, and
 * `codec.bad_shape` where a step is missing or fails on the value.
 */
export function upcast(type: string, version: number, value: Value, current: number, table = upcasts): Value {
  if (version > current) {
    throw new MessageError(
      'codec.newer_version',
      `${type} was written under schema version ${version}; this code reads up to ${current}`,
    )
  }
  let lifted = value
  for (let from = version; from < current; from++) {
    const step = table[type]?.[from]
    if (!step) throw new MessageError('codec.bad_shape', `no step lifts ${type} from schema version ${from}`)
    try {
      lifted = step(lifted)
    } catch (cause) {
      throw new MessageError('codec.bad_shape', `${type} could not be lifted from schema version ${from}`, '', {
        cause,
      })
    }
  }
  return lifted
}

/** Types and versions that have no step although newer versions exist: `type@version`. Must be empty. */
export function missingSteps(versions: Readonly<Record<string, number>>, table = upcasts): string[] {
  return Object.entries(versions).flatMap(([type, current]) =>
    Array.from({ length: current - 1 }, (_, i) => i + 1)
      .filter(from => !table[type]?.[from])
      .map(from => `${type}@${from}`),
  )
}
