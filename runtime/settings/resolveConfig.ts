/**
 * Resolves configuration: layers of plain data (default < what a recipe extends < recipe < environment < --set),
 * checked by a zod schema.
 *
 * in   a schema, layers of data, `a.b=c` assignments     out  the resolved value, and the origin of each of its leaves
 * Invariant: all problems that the schema finds are reported at once, each with its path; a malformed assignment is
 * reported alone. An unknown field names the one that was probably meant (nearestName.ts). Objects in schemas should be
 * `z.strictObject`, or unknown fields are dropped silently.
 */
import { parse as parseYaml } from 'yaml'
import type { z } from 'zod'
import { TroupeError } from '../errors'
import { knowAddressesIn } from '../secrets/credentials'
import { mergeLayers, type PlainObject } from './layers'
import { nearestName } from './nearestName'
import { fieldsAt, pathsNamed } from './schemaFields'

export type { PlainObject } from './layers'

/**
 * Layer that set a value: default | recipe | extends NAME-OR-FILE | env | --set; followed by `(flag NAME)` if the field
 * was set by another name.
 */
export type Origin = string

export interface Layer {
  readonly origin: Origin
  readonly data: PlainObject
}

/**
 * Maps alternative names of fields (flags). `one` maps one assignment; undefined if its name is not a flag. `all` takes
 * the flags out of a layer's data (`what`: its name in errors), and returns the other data and the mapped flags.
 */
interface OtherNames {
  readonly one: (name: string, value: unknown) => { readonly path: string; readonly value: unknown } | undefined
  readonly all: (
    data: PlainObject,
    what: string,
  ) => {
    readonly data: PlainObject
    readonly named: readonly { readonly path: string; readonly value: unknown; readonly flag: string }[]
  }
}

export interface ConfigLayers {
  /** Name of the configuration in errors, such as `recipe quickstart`. */
  readonly what: string
  /** Configuration layers below the recipe, the lowest first. */
  readonly below?: readonly Layer[]
  readonly recipe: PlainObject
  /** Environment variables that set a field: path → name of the variable. Empty or absent variables set nothing. */
  readonly variables?: Readonly<Record<string, string>>
  readonly env?: NodeJS.ProcessEnv
  /** Assignments of `--set`, in order: the last one wins. */
  readonly overrides?: readonly string[]
  readonly names?: OtherNames
}

export interface Resolved<T> {
  readonly value: T
  /** Path of every leaf of `value` (`learner.learningRate`, `stages.0.steps`) → the layer that it came from. */
  readonly origins: ReadonlyMap<string, Origin>
}

interface Write {
  readonly path: readonly string[]
  readonly origin: Origin
}

/** Merges the layers and checks the result. @throws TroupeError config.invalid */
export function resolveConfig<S extends z.ZodType>(schema: S, layers: ConfigLayers): Resolved<z.output<S>> {
  const { input, originOf } = mergedInput(layers)
  const value = parseConfig(schema, input, layers.what)
  const origins = new Map<string, Origin>()
  for (const path of leaves(value)) origins.set(path.join('.'), has(input, path) ? originOf(path) : 'default')
  return { value, origins }
}

/**
 * Merges the layers without a check. `originOf`: the layer that set the value at a path, or a value around it; else
 * `default`.
 * @throws TroupeError config.invalid for a malformed assignment
 */
export function mergedInput(layers: ConfigLayers): {
  readonly input: PlainObject
  readonly originOf: (path: readonly string[]) => Origin
} {
  const env = layers.env ?? process.env
  const { names } = layers
  let input: PlainObject = {}
  const writes: Write[] = []
  const write = (path: readonly string[], value: unknown, origin: Origin, text: string) => {
    input = assign(input, path, value, text) as PlainObject
    writes.push({ path, origin })
  }
  for (const { origin, data } of [...(layers.below ?? []), { origin: 'recipe', data: layers.recipe }]) {
    const where = origin === 'recipe' ? layers.what : `${layers.what}: ${origin}`
    const { data: plain, named } = names === undefined ? { data, named: [] } : names.all(data, where)
    input = mergeLayers(input, plain)
    for (const path of leaves(plain)) writes.push({ path, origin })
    for (const { path, value, flag } of named) write(path.split('.'), value, `${origin} (flag ${flag})`, flag)
  }
  for (const [path, variable] of Object.entries(layers.variables ?? {})) {
    const given = env[variable]
    if (!given) continue
    const assignment = splitAssignment(`${path}=${given}`)
    write(assignment.path, assignment.value, 'env', `${variable}=${given}`)
  }
  for (const text of layers.overrides ?? []) {
    const { path, value } = splitAssignment(text)
    const flag = path.join('.')
    const mapped = names?.one(flag, value)
    if (mapped === undefined) write(path, value, '--set', text)
    else if (mapped.value !== undefined) write(mapped.path.split('.'), mapped.value, `--set (flag ${flag})`, text)
  }
  knowAddressesIn(input) // an error may repeat an address with a password
  return { input, originOf: path => writes.findLast(w => isWithin(path, w.path))?.origin ?? 'default' }
}

/**
 * Checks plain data against a schema. `what`: name of the data in the error. @throws TroupeError config.invalid, with
 * every problem
 */
export function parseConfig<S extends z.ZodType>(schema: S, input: unknown, what: string): z.output<S> {
  const result = schema.safeParse(input)
  if (result.success) return result.data
  const problems = problemsOf(schema, result.error).map(({ path, why }) => `${path.join('.') || '(all of it)'}: ${why}`)
  throw invalid(
    `${what}: ${problems.length === 1 ? 'a problem' : `${problems.length} problems`}\n  ${problems.join('\n  ')}`,
    result.error,
  )
}

/**
 * Returns a copy of `input` with `a.b=c` assignments applied in order. Values are JSON, or YAML scalars (`1e-6`,
 * `true`, `null`, text); quotes keep text that looks like a number. `list.0.field` reaches into a list; the index after
 * the last one appends.
 * @throws TroupeError config.invalid for a malformed assignment, such as one without `=`; an index beyond a list; or a
 * path through something that is not an object
 */
export function applyOverrides(input: PlainObject, assignments: readonly string[]): PlainObject {
  return assignments.reduce<PlainObject>((data, text) => {
    const { path, value } = splitAssignment(text)
    return assign(data, path, value, text) as PlainObject
  }, input)
}

function splitAssignment(text: string): { readonly path: readonly string[]; readonly value: unknown } {
  const at = text.indexOf('=')
  const path = text.slice(0, Math.max(at, 0)).trim().split('.')
  if (at < 0 || path.some(part => part === ''))
    throw invalid(`'${text}' is not an assignment`, undefined, 'write field.inner=value')
  if (path.some(part => part === '__proto__' || part === 'constructor' || part === 'prototype')) {
    throw invalid(`'${path.join('.')}' is not a field`)
  }
  return { path, value: parseValue(text.slice(at + 1)) }
}

function parseValue(text: string): unknown {
  if (text.trim() === '') return ''
  // A commit id that has only digits would lose its last digits if it were read as a number.
  if (/^\d+$/.test(text) && !Number.isSafeInteger(Number(text))) return text
  try {
    const value: unknown = parseYaml(text)
    // `a: b` stays text; only a value written in brackets or braces is a collection.
    return typeof value === 'object' && value !== null && !/^\s*[[{]/.test(text) ? text : value
  } catch {
    return text
  }
}

function assign(target: unknown, path: readonly string[], value: unknown, text: string): unknown {
  const [key, ...rest] = path
  if (key === undefined) return value
  if (Array.isArray(target)) {
    const index = Number(key)
    if (!/^\d+$/.test(key) || index > target.length)
      throw invalid(
        `${text}: '${key}' is not an index of a list of ${target.length} elements; expected 0 to ${target.length}`,
      )
    return [...target.slice(0, index), assign(target[index], rest, value, text), ...target.slice(index + 1)]
  }
  if (target === undefined || target === null) return { [key]: assign(undefined, rest, value, text) }
  if (typeof target !== 'object') throw invalid(`${text}: '${key}' lies below a value that is not an object`)
  const object = target as PlainObject
  return { ...object, [key]: assign(Object.hasOwn(object, key) ? object[key] : undefined, rest, value, text) }
}

/** A fault that a schema found: the path of the field, and the reason. */
export interface Problem {
  readonly path: readonly string[]
  readonly why: string
}

/** Lists what a schema found, each with its path; an unknown field with the known one that was probably meant. */
export const problemsOf = (schema: z.ZodType, error: z.ZodError): readonly Problem[] =>
  error.issues.flatMap(issue => describe(schema, issue, []))

function describe(schema: z.ZodType, issue: z.core.$ZodIssue, above: readonly PropertyKey[]): readonly Problem[] {
  const path = [...above, ...issue.path]
  if (issue.code === 'unrecognized_keys') {
    return issue.keys.map(key => ({
      path: [...path, key].map(String),
      why: `unknown field${advice(schema, path, key)}`,
    }))
  }
  if (issue.code === 'invalid_union' && issue.errors.length > 0 && issue.message === 'Invalid input') {
    const whole = issue.errors.map(branch => (branch.length === 1 ? wholeFault(branch[0]!) : undefined))
    if (whole.every(why => why !== undefined)) return [{ path: path.map(String), why: alternatives(whole) }]
    // Errors are reported for the union's branch with the fewest problems, which was probably meant.
    const meant = issue.errors.reduce((best, branch) => (branch.length < best.length ? branch : best))
    return meant.flatMap(inner => describe(schema, inner, path))
  }
  return [{ path: path.map(String), why: reason(issue) }]
}

const reason = ({ message }: z.core.$ZodIssue) =>
  message
    .replace(/^Invalid (?:input|option): /, '')
    .replace(/^expected record/, 'expected an object of names and values')

/** Returns what a branch of a union expected in place of the whole value; undefined for a fault within the value. */
const wholeFault = (issue: z.core.$ZodIssue): string | undefined =>
  issue.path.length === 0 && (issue.code === 'invalid_type' || issue.code === 'invalid_value')
    ? /^expected (.+?)(?:, received .*)?$/.exec(reason(issue))?.[1]
    : undefined

const alternatives = (expected: readonly string[]) => `expected ${[...new Set(expected)].join(' or ')}`

function advice(schema: z.ZodType, path: readonly PropertyKey[], key: string): string {
  const known = fieldsAt(schema, path)
  // `known` has the fields of all branches of a union, so this field belongs to a branch that was not chosen.
  if (known.includes(key)) {
    const at = path.join('.')
    return ` of this kind of ${at}; to change the kind, replace the object: --set '${at}={kind: …}'`
  }
  const meant = nearestName(key, known)
  const [elsewhere] = pathsNamed(schema, key)
  const full = meant === undefined ? elsewhere : [...path.map(String), meant].join('.')
  if (full !== undefined) return `; did you mean '${full}'?`
  return known.length === 0 ? '' : `; known here: ${known.join(', ')}`
}

function* leaves(value: unknown, path: readonly string[] = []): Generator<readonly string[]> {
  const isObject =
    Array.isArray(value) ||
    (typeof value === 'object' && value !== null && Object.getPrototypeOf(value) === Object.prototype)
  const entries = isObject ? Object.entries(value as object) : []
  if (entries.length === 0) {
    if (path.length > 0) yield path
    return
  }
  for (const [key, inner] of entries) yield* leaves(inner, [...path, key])
}

function has(data: unknown, path: readonly string[]): boolean {
  let value = data
  for (const key of path) {
    if (typeof value !== 'object' || value === null || !Object.hasOwn(value, key)) return false
    value = (value as PlainObject)[key]
  }
  return value !== undefined
}

const isWithin = (path: readonly string[], prefix: readonly string[]) => prefix.every((part, i) => path[i] === part)

function invalid(message: string, cause?: unknown, hint?: string): TroupeError {
  return new TroupeError('config.invalid', {
    boundary: 'config',
    retriable: false,
    message,
    cause,
    hint: hint ?? '`troupe config print RECIPE` shows every field and where its value comes from',
  })
}
