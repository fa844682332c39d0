/**
 * Merges two layers of plain data.
 *
 * in   two objects        out  one: objects are merged field by field, everything else is replaced
 * Invariant: neither input is changed. An object that is a branch of a union (its field `from` names the branch) is
 * replaced if the upper layer has another branch; a top-level field that the upper layer sets to null is removed.
 */
export type PlainObject = { readonly [key: string]: unknown }

const isPlain = (value: unknown): value is PlainObject =>
  value !== null && typeof value === 'object' && !Array.isArray(value)

export function mergeLayers(below: PlainObject, above: PlainObject): PlainObject {
  const merged: Record<string, unknown> = { ...below }
  for (const [key, value] of Object.entries(above)) {
    if (value === null) delete merged[key]
    else if (value !== undefined) merged[key] = mergeValues(merged[key], value)
  }
  return merged
}

function mergeValues(below: unknown, above: unknown): unknown {
  if (!isPlain(below) || !isPlain(above)) return above
  if (above.from !== undefined && below.from !== undefined && above.from !== below.from) return above
  const merged: Record<string, unknown> = { ...below }
  for (const [key, value] of Object.entries(above)) {
    merged[key] = Object.hasOwn(below, key) ? mergeValues(below[key], value) : value
  }
  return merged
}
