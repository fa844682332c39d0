/** `troupe rollout RECIPE`: collects trajectories from the recipe's model as it is, without training. */
import type { Command } from 'commander'
import { recipeOf, train, withRunOptions } from './train'
import type { TrainOptions } from './train/trainOptions'

export function registerRollout(program: Command): void {
  const command = program.command('rollout [recipe]').description('collect trajectories without learning')
  withRunOptions(command).action(async (recipe: string | undefined, options: TrainOptions) => {
    process.exitCode = await train(await recipeOf(recipe, options), { ...options, learns: false })
  })
}
