/**
 * Compares calls with the possible answers without running them: the AST check of the Berkeley Function-Calling
 * Leaderboard.
 *
 * in   calls {name, arguments}, the described functions, the possible answers        out  the first difference in words
 * Invariant: pure. A call matches if its name is right, no required argument is missing, no argument is unknown, and
 * each value has its declared type and is a possible one. A value that has the answers' type instead of the declared
 * one counts as the name of a variable, and must equal an answer exactly. `''` among the answers makes an argument
 * optional. Texts compare without case, blanks and the marks , . / - _ * ^, and with ' as "; calls match in any order.
 */
import { isDeepStrictEqual } from 'node:util'

export interface FunctionCall {
  readonly name: string
  readonly arguments: Readonly<Record<string, unknown>>
  /**
   * Arguments to use for type checks only, in which a float that the model wrote as `10.0` is not an integer. Default:
   * `arguments`.
   */
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

/** One expected call, as `{name: {parameter: [possible values]}}`. */
export type PossibleCall = Readonly<Record<string, Readonly<Record<string, readonly unknown[]>>>>

/** Returns the first difference between the model's calls and the expected ones; undefined if they match. */
export function callsFault(
  calls: readonly FunctionCall[],
  possible: readonly PossibleCall[],
  functions: readonly FunctionDescription[],
): string | undefined {
  if (calls.length !== possible.length) return `${calls.length} calls, expected ${possible.length}`
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

/** Replaces `.` by `_` in a function's name, because some models cannot write a dot there. */
const plainName = (name: string) => name.replaceAll('.', '_')

function callFault(
  call: FunctionCall,
  wanted: PossibleCall,
  functions: readonly FunctionDescription[],
): string | undefined {
  const [name, values] = Object.entries(wanted)[0] ?? ['', {}]
  if (plainName(call.name) !== plainName(name)) return `calls ${call.name}, expected ${name}`
  const described = functions.find(one => plainName(one.name) === plainName(name))
  const properties = described?.parameters?.properties ?? {}
  for (const required of described?.parameters?.required ?? []) {
    if (!Object.hasOwn(call.arguments, required)) return `${name}: required argument '${required}' is missing`
  }
  for (const [parameter, value] of Object.entries(call.arguments)) {
    const answers = Object.hasOwn(values, parameter) ? values[parameter] : undefined
    if (answers === undefined || !Object.hasOwn(properties, parameter))
      return `${name}: unexpected argument '${parameter}'`
    const { type: declared, items } = properties[parameter]!
    const typed = call.typed?.[parameter] ?? value
    const possible = answers.find(answer => answer !== '')
    const isVariable = declared !== undefined && !isOfType(typed, declared)
    if (isVariable && kindOf(typed) !== kindOf(possible)) return `${name}: '${parameter}' is not of type ${declared}`
    if (!isVariable && !areOfType(typed, items?.type, answers))
      return `${name}: '${parameter}' is not an ${declared} of type ${items!.type}`
    if (!answers.some(answer => (isVariable ? isDeepStrictEqual(value, answer) : isSame(value, answer))))
      return `${name}: '${parameter}' has the wrong value ${JSON.stringify(value)?.slice(0, 80)}`
  }
  for (const [parameter, answers] of Object.entries(values)) {
    if (!Object.hasOwn(call.arguments, parameter) && !answers.includes(''))
      return `${name}: argument '${parameter}' is missing`
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

/**
 * Returns true if every item of a list has the declared type, or the type of the first item of a possible answer; also
 * true for a value that is no list, and without a declared type.
 */
function areOfType(value: unknown, declared: string | undefined, answers: readonly unknown[]): boolean {
  if (!Array.isArray(value) || declared === undefined) return true
  const kinds = answers.flatMap(answer => (Array.isArray(answer) && answer.length > 0 ? [kindOf(answer[0])] : []))
  return value.every(one => isOfType(one, declared) || kinds.includes(kindOf(one)))
}

/**
 * Returns the kind of a value: its JavaScript type, with `integer`, `array` and `null` as kinds of their own. The
 * leaderboard takes a value that has the answers' kind instead of the declared type for the name of a variable.
 */
const kindOf = (value: unknown) =>
  Array.isArray(value) ? 'array' : Number.isInteger(value) ? 'integer' : value === null ? 'null' : typeof value

const plainText = (text: string) =>
  text
    .replace(/[ ,./\-_*^]/g, '')
    .toLowerCase()
    .replaceAll("'", '"')

/**
 * Compares a value with one possible answer. A dict's answer holds a list of values for each key; an array's holds
 * lists or values. Texts in a list inside another list, or inside a dict, must be identical.
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
