/**
 * Evaluates conditions on facts, as a person writes them: `type == "tool.completed" && status == "error"`, `reward <
 * 0.5`.
 *
 * in   an expression, facts        out  true or false for a fact, or the expression's value
 * The language is Jexl's: comparisons, `&& || !`, arithmetic, `"x" in text`, `tokens.length`, `task.id`. An expression
 * reads only the values of a `Stop` and calls nothing. A missing field is undefined: comparing it with a value by `==`,
 * `<` or `>` gives false, by `!=` true.
 * Invariant: an expression is refused if the first name of a path in it (`task` of `task.id`) is neither a field of a
 * fact nor `topic`, `partition`, `offset`, `timestamp`, `group`, `decides` or `differs`; otherwise a misspelt condition
 * would silently never hold. The names after the first are not checked.
 */

import { Jexl } from 'jexl'
import { shapes } from '../../messages/shapes'
import { asError, TroupeError } from '../../runtime/errors'
import type { Entry } from '../../runtime/journal/journal'
import { didYouMean } from '../../runtime/settings/nearestName'

/** Values that an expression reads: a fact with its group, position and time, and how today's code answers the fact. */
export interface Stop {
  readonly entry: Entry
  /** Types of the facts that today's code decides in answer to this fact. */
  readonly decides: readonly string[]
  /** True when the fact is a decision that differs from what today's code decides. */
  readonly differs: boolean
}

export interface Condition {
  readonly text: string
  holds(stop: Stop): boolean
  value(stop: Stop): unknown
}

const around = ['topic', 'partition', 'offset', 'timestamp', 'group', 'decides', 'differs'] as const
const known: readonly string[] = [
  ...new Set(['type', ...around, ...Object.values(shapes).flatMap(({ fields }) => Object.keys(fields))]),
]

const jexl = new Jexl()

/** Compiles an expression. @throws TroupeError replay.bad_expression */
export function conditionOf(text: string): Condition {
  if (text.trim() === '') throw bad(text, 'the expression is empty')
  const expression = jexl.createExpression(text)
  try {
    expression.compile()
  } catch (thrown) {
    throw bad(text, asError(thrown).message)
  }
  const unknown = namesIn((expression as unknown as { _getAst(): unknown })._getAst()).find(n => !known.includes(n))
  if (unknown !== undefined) throw bad(text, `no fact has a field '${unknown}'${didYouMean(unknown, known)}`)
  const value = (stop: Stop): unknown => {
    try {
      return expression.evalSync(contextOf(stop))
    } catch (thrown) {
      throw bad(text, asError(thrown).message)
    }
  }
  return { text, value, holds: stop => Boolean(value(stop)) }
}

function contextOf({ entry, decides, differs }: Stop): Record<string, unknown> {
  const { message, topic, partition, offset, timestamp } = entry
  const group = 'trajectory' in message ? message.trajectory.slice(0, message.trajectory.lastIndexOf('/')) : undefined
  return Object.assign(Object.create(null), {
    ...(group === undefined ? {} : { group }),
    ...message,
    ...{ topic, partition, offset, timestamp, decides, differs },
  })
}

/** Collects the first identifier of each path in an expression, such as `metrics` of `metrics.loss`. */
function namesIn(node: unknown): string[] {
  if (typeof node !== 'object' || node === null) return []
  const { type, value, from, ...rest } = node as Record<string, unknown>
  if (type === 'Identifier') return from === undefined ? [String(value)] : namesIn(from)
  return [...(type === 'Literal' ? [] : [value]), ...Object.values(rest)].flatMap(part =>
    Array.isArray(part) ? part.flatMap(namesIn) : namesIn(part),
  )
}

const bad = (text: string, why: string) =>
  new TroupeError('replay.bad_expression', {
    boundary: 'replay',
    retriable: false,
    message: `'${text.slice(0, 200)}' is not a valid expression: ${why}`,
    hint: `write an expression as in type == "tool.completed" && status == "error", or reward < 0.5`,
  })
