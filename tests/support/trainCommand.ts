/**
 * Parses the arguments of a `troupe` command line that begins with `train`, by the command's own parser, and runs
 * nothing.
 */
import { Command } from 'commander'
import { registerTrain } from '../../cli/train'
import type { TrainOptions } from '../../cli/train/trainOptions'

export async function trainCommand(
  words: readonly (string | number)[],
): Promise<{ readonly recipe: string; readonly options: TrainOptions }> {
  const program = new Command().exitOverride()
  program.configureOutput({ writeErr: () => {} })
  registerTrain(program)
  let read: { recipe: string; options: TrainOptions } | undefined
  program.commands[0]!.exitOverride().action((recipe: string, options: TrainOptions) => {
    read = { recipe, options }
  })
  await program.parseAsync(words.map(String), { from: 'user' })
  return read!
}
