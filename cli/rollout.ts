/** `troupe rollout RECIPE`: collects trajectories from the recipe's model as it is, without training. */
import type { Command } from 'commander'
import { train, withRunOptions } from './train'
import type { TrainOptions } from './train/trainOptions'

export function registerRollout(program: Command): void {
  const command = program.command('rollout <recipe>').description('collect trajectories without learning')
  withRunOptions(command).action(async (recipe: string, options: TrainOptions) => {
    process.exitCode = await train(recipe, { ...options, learns: false })
  })
}
