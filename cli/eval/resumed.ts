/**
 * What may be said to an evaluation that goes on: it was begun with a benchmark, a model and their numbers, and ends with them.
 *
 * in   the run as it was started, what the command line says now        out  nothing, or an error
 * Invariant: nothing that was said is left out without a word.
 */

import { recipeSchema } from '../../config'
import type { RunStarted } from '../../messages/facts'
import type { Benchmark } from '../../recipes/benchmarks'
import { dataDigest } from '../../runtime/digests'
import { TroupeError } from '../../runtime/errors'
import { resolveConfig } from '../../runtime/settings/resolveConfig'
import { refuseOtherRecipe } from '../train/startedRun'
import type { EvalOptions } from './one'

/** What makes a new run's recipe. */
const ofNewRuns = [
  ...(['data', 'answers', 'judge', 'judgeModel', 'judgeKeyEnv', 'model', 'samples', 'temperature'] as const),
  ...(['maxTokens', 'turns', 'limit', 'system', 'prefix', 'run'] as const),
]
const optionOf = (name: string) => `--${name.replace(/[A-Z]/g, letter => `-${letter.toLowerCase()}`)}`

/** @throws TroupeError cli.wrong_usage */
export function refuseDropped(options: EvalOptions): void {
  const dropped = ofNewRuns.filter(name => options[name] !== undefined).map(optionOf)
  if (options.resume === undefined || dropped.length === 0) return
  throw new TroupeError('cli.wrong_usage', {
    boundary: 'cli',
    retriable: false,
    message: `${dropped.join(', ')} cannot be said to an evaluation that goes on: run '${options.resume}' was begun with its own`,
    hint: 'leave them out beside --resume, or begin a new run',
  })
}

/**
 * `fields`: what the options say of the recipe, where they were given again; `set` goes on top of either.
 * @throws TroupeError config.other_recipe
 */
export function refuseOther(
  benchmark: Benchmark,
  started: RunStarted,
  fields: readonly string[] = [],
  set: readonly string[] = [],
): void {
  refuseOtherRecipe(started, { name: `eval-${benchmark.name}` })
  const { run, recipe } = started
  const digestWith = (said: readonly string[]) =>
    dataDigest(resolveConfig(recipeSchema, { what: `run ${run}`, recipe, overrides: [...said, ...set] }).value)
  const begun = digestWith([])
  if (digestWith(fields) === begun) return
  const changed = fields.filter(field => digestWith([field]) !== begun)
  throw new TroupeError('config.other_recipe', {
    boundary: 'config',
    retriable: false,
    message: `run '${run}' was begun with other values than the options say: ${changed.join(', ')}`,
    hint: 'give --resume the options that the run was begun with, or begin a new run',
  })
}
