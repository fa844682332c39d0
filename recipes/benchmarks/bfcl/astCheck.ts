/**
 * Whether calls are those that were asked for, without making them (the Berkeley Function-Calling Leaderboard's AST check).
 *
 * in   calls {name, arguments}, functions as they were described, possible answers        out  the first difference in words
 * Invariant: pure. A call matches where its name is right, no required argument is missing, none is unknown, and each value is of
 * its declared type and among the possible ones, or a variable, which is exactly one of them; `''` among these says that it may be
 * left out. Texts are compared without case, blanks and punctuation. Several calls match in any order, each once.
 */
import { isDeepStrictEqual } from 'node:util'

export interface FunctionCall {
  readonly name: string
  readonly arguments: Readonly<Record<string, unknown>>
  /** The same for their types alone: a number that was written as a float, as `10.0`, is none that is whole. Default: `arguments`. */
  readonly typed?: Readonly<Record<string, unknown>>
}

interface Described {
  readonly type?: string
  readonly items?: { readonly type?: string }
}

export interface FunctionDescription {
  readonly name: string
  readonly parameters?: {
    readonly properties?: Readonly<Record<string, Described>>
    readonly required?: readonly string[]
  }
}

/** `{name: {parameter: [values]}}`. */
export type PossibleCall = Readonly<Record<string, Readonly<Record<string, readonly unknown[]>>>>

/** Undefined where the calls are the ones wanted. */
export function callsFault(
  calls: readonly FunctionCall[],
  possible: readonly PossibleCall[],
  functions: readonly FunctionDescription[],
): string | undefined {
  if (calls.length !== possible.length) return `${calls.length} calls where ${possible.length} were wanted`
  const left = [...calls]
  let fault: string | undefined
  for (const wanted of possible) {
    const faults = left.map(call => callFault(call, wanted, functions))
    const at = faults.indexOf(undefined)
    if (at >= 0) left.splice(at, 1)
    else fault ??= faults[0] ?? 'a call is missing'
  }
  return fault
}

/** Names with dots are no names for some models, which write `_` instead. */
const plainName = (name: string) => name.replaceAll('.', '_')

function callFault(
  call: FunctionCall,
  wanted: PossibleCall,
  functions: readonly FunctionDescription[],
): string | undefined {
  const [name, values] = Object.entries(wanted)[0] ?? ['', {}]
  if (plainName(call.name) !== plainName(name)) return `it calls ${call.name}, not ${name}`
  const described = functions.find(one => plainName(one.name) === plainName(name))
  const properties = described?.parameters?.properties ?? {}
  for (const required of described?.parameters?.required ?? []) {
    if (!Object.hasOwn(call.arguments, required)) return `${name}: '${required}' is missing`
  }
  for (const [parameter, value] of Object.entries(call.arguments)) {
    const answers = Object.hasOwn(values, parameter) ? values[parameter] : undefined
    if (answers === undefined || !Object.hasOwn(properties, parameter)) return `${name}: '${parameter}' was not wanted`
    const { type: declared, items } = properties[parameter]!
    const typed = call.typed?.[parameter] ?? value
    const possible = answers.find(answer => answer !== '')
    const isVariable = declared !== undefined && !isOfType(typed, declared)
    if (isVariable && kindOf(typed) !== kindOf(possible)) return `${name}: '${parameter}' is no ${declared}`
    if (!isVariable && !areOfType(typed, items?.type, answers))
      return `${name}: '${parameter}' is no ${declared} of ${items!.type}`
    if (!answers.some(answer => (isVariable ? isDeepStrictEqual(value, answer) : isSame(value, answer))))
      return `${name}: '${parameter}' is ${JSON.stringify(value)?.slice(0, 80)}`
  }
  for (const [parameter, answers] of Object.entries(values)) {
    if (!Object.hasOwn(call.arguments, parameter) && !answers.includes('')) return `${name}: '${parameter}' is missing`
  }
  return undefined
}

function isOfType(value: unknown, declared: string): boolean {
  switch (declared) {
    case 'integer':
      return Number.isInteger(value)
    case 'float':
    case 'number':
    case 'double':
      return typeof value === 'number'
    case 'boolean':
      return typeof value === 'boolean'
    case 'string':
    case 'char':
      return typeof value === 'string'
    case 'array':
    case 'tuple':
      return Array.isArray(value)
    case 'dict':
    case 'object':
    case 'HashMap':
      return typeof value === 'object' && value !== null && !Array.isArray(value)
    default:
      return true
  }
}

/** What an array holds, or a variable of the type of what is possible there. */
function areOfType(value: unknown, declared: string | undefined, answers: readonly unknown[]): boolean {
  if (!Array.isArray(value) || declared === undefined) return true
  const kinds = answers.flatMap(answer => (Array.isArray(answer) && answer.length > 0 ? [kindOf(answer[0])] : []))
  return value.every(one => isOfType(one, declared) || kinds.includes(kindOf(one)))
}

/** A value whose type is that of the possible answers, though not the declared one, is a variable's name to the leaderboard. */
const kindOf = (value: unknown) =>
  Array.isArray(value) ? 'array' : Number.isInteger(value) ? 'integer' : value === null ? 'null' : typeof value

const plainText = (text: string) =>
  text
    .replace(/[ ,./\-_*^]/g, '')
    .toLowerCase()
    .replaceAll("'", '"')

/**
 * In a dict, possible answers hold a list of values for each key; in an array, lists or values. Texts in a list within another, or
 * within a dict, have to be the very same.
 */
function isSame(value: unknown, answer: unknown): boolean {
  if (typeof value === 'string' && typeof answer === 'string') return plainText(value) === plainText(answer)
  if (typeof value === 'number' && typeof answer === 'number') return value === answer
  if (Array.isArray(value)) {
    const areSame = (one: unknown, at: number) =>
      Array.isArray(one) ? isDeepStrictEqual(one, (answer as unknown[])[at]) : isSame(one, (answer as unknown[])[at])
    return Array.isArray(answer) && value.length === answer.length && value.every(areSame)
  }
  if (typeof value === 'object' && value !== null) {
    if (typeof answer !== 'object' || answer === null || Array.isArray(answer)) return false
    const own = value as Readonly<Record<string, unknown>>
    const possible = answer as Readonly<Record<string, unknown>>
    const same = (one: unknown, of: unknown) => (Array.isArray(one) ? isDeepStrictEqual(one, of) : isSame(one, of))
    const among = (one: unknown, of: unknown) => (Array.isArray(of) ? of.some(each => same(one, each)) : same(one, of))
    const mayLack = (of: unknown) => Array.isArray(of) && of.includes('')
    return (
      Object.entries(own).every(([key, one]) => Object.hasOwn(possible, key) && among(one, possible[key])) &&
      Object.entries(possible).every(([key, of]) => Object.hasOwn(own, key) || mayLack(of))
    )
  }
  return value === answer
}
