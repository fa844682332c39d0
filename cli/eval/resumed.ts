/**
 * Refuses options that contradict the resumed evaluation: it keeps its benchmark, model and numbers to the end.
 *
 * in   the run as it was started, the options of this command line        out  nothing, or an error
 * --set and --engine are not checked here: the resumed run obeys them, and an evaluation that is over, which is only
 * printed, ignores them.
 */

import { recipeSchema } from '../../config'
import type { RunStarted } from '../../messages/facts'
import type { Benchmark } from '../../recipes/benchmarks'
import { dataDigest } from '../../runtime/digests'
import { TroupeError } from '../../runtime/errors'
import { resolveConfig } from '../../runtime/settings/resolveConfig'
import { refuseOtherRecipe } from '../train/startedRun'
import type { EvalOptions } from './one'

/** Options that only a new run accepts. */
const newRunOptions = [
  ...(['data', 'answers', 'judge', 'judgeModel', 'judgeKeyEnv', 'model', 'samples', 'temperature'] as const),
  ...(['maxTokens', 'turns', 'limit', 'system', 'prefix', 'run'] as const),
]
const optionOf = (name: string) => `--${name.replace(/[A-Z]/g, letter => `-${letter.toLowerCase()}`)}`

/**
 * Refuses options that only a new run accepts.
 * @throws TroupeError cli.wrong_usage
 */
export function refuseUnusedOptions(options: EvalOptions): void {
  const unused = newRunOptions.filter(name => options[name] !== undefined).map(optionOf)
  if (options.resume === undefined || unused.length === 0) return
  throw new TroupeError('cli.wrong_usage', {
    boundary: 'cli',
    retriable: false,
    message: `${unused.join(', ')} cannot be combined with --resume: run '${options.resume}' keeps the values that it was started with`,
    hint: 'leave these options out, or start a new run',
  })
}

/**
 * Refuses another benchmark or other recipe values. `fields`: recipe fields that the repeated options give; `set`:
 * overrides of this command, which count on both sides of the comparison.
 * @throws TroupeError config.other_recipe
 */
export function refuseChangedRecipe(
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
    message: `run '${run}' was started with other values than these options give: ${changed.join(', ')}`,
    hint: 'give --resume the options that the run was started with, or start a new run',
  })
}
