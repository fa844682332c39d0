/**
 * Tells from a record's headers whether a newer version of Troupe wrote the record: its type is unknown here, or its
 * schema version is above the one that this code has.
 */
import { shapes } from './shapes'

/**
 * Returns why this code is too old to read the record; undefined if it is not, or if the record has no type header
 * (then Troupe did not write it).
 */
export function newerThanKnown(headers: Readonly<Record<string, string>>): string | undefined {
  const { type, version } = headers
  if (type === undefined) return undefined
  const known = Object.hasOwn(shapes, type) ? shapes[type as keyof typeof shapes].version : undefined
  if (known === undefined) return `its type '${type}' is unknown`
  return Number(version) > known
    ? `${type} has the schema version ${version}; this version of Troupe reads schema versions up to ${known}`
    : undefined
}
