/**
 * Lists every problem of a configuration at once, also those that a schema reports only after others are corrected.
 *
 * in   a schema, plain data
 * out  the problems; the value that the schema gives once the faulty fields are removed, undefined if it gives none
 * A schema checks conditions between fields only if each field is valid by itself. So each faulty field is removed,
 * which leaves its default, and the rest is checked again, in at most 8 rounds.
 * Invariant: after the first round, a problem whose path or text names a removed field is not listed, since the default
 * may have caused it. Assumes that each schema of an object is strict.
 */
import type { z } from 'zod'
import { type PlainObject, type Problem, problemsOf } from './resolveConfig'

const mostRounds = 8

/**
 * Lists every problem of the data. `placeholders`: values of required top-level fields, by name; one replaces its field
 * for the next rounds if the field is faulty or missing.
 */
export function allProblems<S extends z.ZodType>(
  schema: S,
  data: PlainObject,
  placeholders: PlainObject = {},
): { readonly problems: readonly Problem[]; readonly value: z.output<S> | undefined } {
  const problems: Problem[] = []
  const removed: string[] = []
  let input: unknown = data
  for (let round = 0; round < mostRounds; round++) {
    const result = schema.safeParse(input)
    if (result.success) return { problems, value: result.data }
    const found = problemsOf(schema, result.error)
    problems.push(...found.filter(problem => round === 0 || !mentions(problem, removed)))
    let isChanged = false
    // Removes from the last to the first, so that the indices of list elements stay valid until each is removed.
    for (const { path } of [...found].reverse()) {
      const [after, was] = without(input, path)
      const [top = ''] = path
      const put = was ? undefined : placeholders[top]
      if (!was && (put === undefined || (input as PlainObject)[top] === put)) continue
      input = was ? after : { ...(input as PlainObject), [top]: put }
      isChanged = true
      removed.push(path.join('.'))
    }
    if (!isChanged) break
  }
  return { problems, value: undefined }
}

const mentions = ({ path, why }: Problem, removed: readonly string[]): boolean =>
  removed.some(
    field => path.join('.').startsWith(field) || why.includes(field) || why.includes(field.split('.').at(-1)!),
  )

/** Returns the data without the value at the path, and whether there was one. */
function without(data: unknown, [key, ...rest]: readonly string[]): readonly [unknown, boolean] {
  if (key === undefined || typeof data !== 'object' || data === null || !Object.hasOwn(data, key)) return [data, false]
  const inner = (data as PlainObject)[key]
  const [after, was] = rest.length === 0 ? [undefined, true] : without(inner, rest)
  if (!was) return [data, false]
  if (Array.isArray(data)) {
    const at = Number(key)
    return [rest.length === 0 ? data.toSpliced(at, 1) : data.with(at, after), true]
  }
  if (rest.length > 0) return [{ ...data, [key]: after }, true]
  return [Object.fromEntries(Object.entries(data).filter(([name]) => name !== key)), true]
}
