/**
 * The `troupe` command: one file a command, put together here.
 * Exit codes: 0 done, 1 failed or a check fell short, 2 wrong usage, 130 and 143 on signals (DESIGN §9).
 */
import { Command, CommanderError } from 'commander'
import { version } from '../package.json'
import { asError, TroupeError } from '../runtime/errors'
import { registerBench } from './benchCommand'
import { registerConfig } from './configCommand'
import { registerDoctor } from './doctor'
import { registerExec } from './exec'
import { registerReplay } from './replay'
import { registerRollout } from './rollout'
import { registerSetup } from './setupCommand'
import { registerTrain } from './train'

export async function main(argv: readonly string[]): Promise<number> {
  const program = new Command('troupe')
    .description('reinforcement learning of tool-using language models on a message bus')
    .version(version)
    .exitOverride()
    .showHelpAfterError()
  registerTrain(program)
  registerRollout(program)
  registerReplay(program)
  registerExec(program)
  registerConfig(program)
  registerDoctor(program)
  registerSetup(program)
  registerBench(program)
  try {
    process.exitCode = 0
    await program.parseAsync([...argv], { from: 'user' })
    return Number(process.exitCode ?? 0)
  } catch (thrown) {
    if (thrown instanceof CommanderError) return thrown.exitCode === 0 ? 0 : 2
    const error = asError(thrown)
    process.stderr.write(`troupe: ${error.message}\n`)
    if (error instanceof TroupeError) {
      if (error.hint !== undefined) process.stderr.write(`  hint: ${error.hint}\n`)
      process.stderr.write(`  code: ${error.code}\n`)
      return error.boundary === 'config' || error.boundary === 'cli' ? 2 : 1
    }
    process.stderr.write(`${error.stack ?? ''}\n`)
    return 1
  }
}
