/**
 * `troupe config print RECIPE`: prints the resolved recipe as YAML, with the origin of each value. Timeouts and
 * `train.innerCheckpointEvery` that the recipe leaves out are printed with the values that a run would use, and the
 * estimate from which they follow; `train.gradientReduction: auto` as the value that it stands for, with the reason.
 */

import type { Command } from 'commander'
import { Document, isScalar, visit } from 'yaml'
import { explainInnerCheckpoints } from '../config/estimate/innerCheckpoints'
import { resolvedReduction } from '../config/estimate/reduction'
import { durationsIfKnown, explainTimeouts, timeoutNames } from '../config/estimate/timeouts'
import { type LoadedRecipe, loadRecipe } from '../recipes/load/loadRecipe'
import type { Origin } from '../runtime/settings/resolveConfig'
import { repeatable } from './options/repeatable'

export function registerConfig(program: Command): void {
  program
    .command('config')
    .description('show resolved recipes')
    .command('print <recipe>')
    .description('print a recipe with all defaults and where each value came from')
    .option('--set <path=value>', 'override a field of the recipe (repeatable)', repeatable, [])
    .option('--json', 'print JSON: {value, origins}')
    .action((name: string, options: { set: string[]; json?: boolean }) => {
      const { value, origins } = withReduction(withEstimated(loadRecipe(name, options.set).config))
      const text = options.json
        ? JSON.stringify({ value, origins: Object.fromEntries(origins) }, null, 2)
        : annotated(value, origins)
      process.stdout.write(`${text.trimEnd()}\n`)
    })
}

type Resolved = Pick<LoadedRecipe['config'], 'value' | 'origins'>

/** Replaces `train.gradientReduction: auto` by the value that it stands for, with the reason as its origin. */
function withReduction({ value: config, origins }: Resolved): Resolved {
  const { value, origin } = resolvedReduction(config)
  if (origin === undefined) return { value: config, origins }
  const all = new Map(origins).set('train.gradientReduction', origin)
  return { value: { ...config, train: { ...config.train, gradientReduction: value } }, origins: all }
}

/** Adds the values that the recipe leaves to the estimate: timeouts, and checkpoints in the middle of a step. */
function withEstimated({ value, origins }: Resolved): Resolved {
  const durations = durationsIfKnown(value)
  const explained = explainTimeouts(value, durations)
  const all = new Map(origins)
  for (const name of timeoutNames) {
    const { origin } = explained[name]
    if (origin !== undefined) all.set(`timeouts.${name}`, origin)
  }
  const timeouts = Object.fromEntries(timeoutNames.map(name => [name, explained[name].ms]))
  const inner = explainInnerCheckpoints(value, durations)
  if (inner.origin !== undefined) all.set('train.innerCheckpointEvery', inner.origin)
  const train = { ...value.train, innerCheckpointEvery: inner.every }
  return { value: { ...value, train, timeouts }, origins: all }
}

/** Renders the value as YAML with the origin of each value in a comment, so that the text can be parsed again. */
export function annotated(value: unknown, origins: ReadonlyMap<string, Origin>): string {
  const document = new Document(value, { aliasDuplicateObjects: false })
  visit(document, {
    Pair(_, pair, ancestors) {
      const path = [...pathOf(ancestors), String(isScalar(pair.key) ? pair.key.value : pair.key)].join('.')
      const origin = origins.get(path)
      if (origin !== undefined && pair.value !== null && typeof pair.value === 'object') {
        ;(pair.value as { comment?: string }).comment = ` ${origin}`
      }
    },
    Seq(_, seq, ancestors) {
      for (const [at, item] of seq.items.entries()) {
        const origin = origins.get([...pathOf([...ancestors, seq]), at].join('.'))
        if (origin !== undefined && isScalar(item)) item.comment = ` ${origin}`
      }
    },
  })
  // Puts the comment on the same line: without this, the comment of an empty collection gets its own line.
  return document.toString({ lineWidth: 0 }).replace(/:\n +(\[\]|\{\})\n +#/g, ': $1 #')
}

function pathOf(ancestors: readonly unknown[]): (string | number)[] {
  const path: (string | number)[] = []
  for (const [at, node] of ancestors.entries()) {
    const next = ancestors[at + 1]
    if (typeof node !== 'object' || node === null) continue
    if ('key' in node && isScalar(node.key)) path.push(String(node.key.value))
    else if (
      'items' in node &&
      Array.isArray(node.items) &&
      typeof next === 'object' &&
      next !== null &&
      !('key' in next)
    )
      path.push(node.items.indexOf(next))
  }
  return path
}
