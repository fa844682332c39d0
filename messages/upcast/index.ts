/**
 * Upcasts: convert a record of an older schema version to the current one, one version at a time.
 *
 * in   an unpacked value (its arrays of numbers are still bytes) and the version that it was written under
 * out  the value in the form of the current version; its shape is checked afterwards
 * Invariant: an upcast is a pure function of one value of one type and one version. Every version from 1 to the one
 * below the current one has an upcast, so this code reads every older log.
 */
import { MessageError } from '../messageError'

export type Value = Readonly<Record<string, unknown>>
export type Upcast = (value: Value) => Value

/** Upcasts by type, then by the version that they convert from (to the next one). */
export type UpcastTable = Readonly<Record<string, Readonly<Record<number, Upcast>>>>

/** All upcasts of this code. Every type is at version 1, so there are none. */
export const upcasts: UpcastTable = {}

/**
 * Converts `value` from `version` to `current`.
 * @throws MessageError codec.newer_version for a version above `current`; codec.bad_shape when an upcast is missing, or
 * fails on the value
 */
export function upcast(type: string, version: number, value: Value, current: number, table = upcasts): Value {
  if (version > current) {
    throw new MessageError(
      'codec.newer_version',
      `${type} was written under schema version ${version}, but this code reads only up to ${current}: use a newer Troupe`,
    )
  }
  let converted = value
  for (let from = version; from < current; from++) {
    const step = table[type]?.[from]
    if (!step) throw new MessageError('codec.bad_shape', `${type} has no upcast from schema version ${from}`)
    try {
      converted = step(converted)
    } catch (cause) {
      throw new MessageError(
        'codec.bad_shape',
        `the upcast of ${type} from schema version ${from} failed: ${(cause as Error).message}`,
        '',
        { cause },
      )
    }
  }
  return converted
}

/** Lists the versions below the current one that have no upcast, as `type@version`; a test requires an empty list. */
export function missingSteps(versions: Readonly<Record<string, number>>, table = upcasts): string[] {
  return Object.entries(versions).flatMap(([type, current]) =>
    Array.from({ length: current - 1 }, (_, i) => i + 1)
      .filter(from => !table[type]?.[from])
      .map(from => `${type}@${from}`),
  )
}
