/**
 * Reads the configuration of a recorded run with today's recipe schema.
 *
 * in   the run's `run.started`        out  its resolved recipe
 * This is a file of its own, so that commands which need no configuration do not load the schema.
 */

import { type RecipeConfig, recipeSchema } from '../../config'
import { recordedRecipe } from '../../config/recordedRecipe'
import { TroupeError } from '../../runtime/errors'
import type { RecordedRun } from './recordedRun'

/**
 * Returns the configuration that a run was started under.
 * @throws TroupeError config.invalid when today's recipe schema refuses the configuration; replay.run_empty when the
 * log has no `run.started`
 */
export async function configOf(recorded: RecordedRun): Promise<RecipeConfig> {
  const { recipe } = await recorded.started()
  const parsed = recipeSchema.safeParse(recordedRecipe(recipe))
  if (parsed.success) return parsed.data
  const [issue] = parsed.error.issues
  throw new TroupeError('config.invalid', {
    boundary: 'config',
    retriable: false,
    message: `the recipe of run '${recorded.run}' does not fit today's schema: ${issue?.path.join('.')}: ${issue?.message}`,
    hint: 'use the version of Troupe that the run was started with',
  })
}
