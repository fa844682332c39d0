/**
 * The configuration of a recorded run, as today's schema of recipes reads it.
 *
 * in   the run's first fact        out  its resolved recipe
 * A file of its own: commands that do without it need not wait for the schema.
 */

import { type RecipeConfig, recipeSchema } from '../../config'
import { TroupeError } from '../../runtime/errors'
import type { RecordedRun } from './recordedRun'

/** The configuration that a run was started under. @throws TroupeError config.invalid where today's recipes refuse it */
export async function configOf(recorded: RecordedRun): Promise<RecipeConfig> {
  const { recipe } = await recorded.started()
  const parsed = recipeSchema.safeParse(recipe)
  if (parsed.success) return parsed.data
  const [issue] = parsed.error.issues
  throw new TroupeError('config.invalid', {
    boundary: 'config',
    retriable: false,
    message: `the recipe of run '${recorded.run}' is not one of today's: ${issue?.path.join('.')}: ${issue?.message}`,
  })
}
