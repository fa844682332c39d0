/**
 * The `troupe` command: registers the subcommands, one file or folder each.
 * Exit codes: 0 done, 1 failed or a check fell short, 2 an error in the command line, the recipe or the log that a
 * command reads (boundaries `cli`, `config`, `replay`), 130 and 143 on signals.
 */
import { Command, CommanderError } from 'commander'
import { version } from '../package.json'
import { knowAddressesIn, knowVariables } from '../runtime/secrets/credentials'
import { onNpxEnd } from './io/npxParent'
import { reportError } from './io/reportError'

export { redactOutput } from './io/redactOutput'

type Register = (program: Command, argv: readonly string[]) => void

const commands: Readonly<Record<string, () => Register>> = {
  train: () => (require('./train') as typeof import('./train')).registerTrain,
  init: () => (require('./init') as typeof import('./init')).registerInit,
  check: () => (require('./check') as typeof import('./check')).registerCheck,
  ranks: () => (require('./ranks') as typeof import('./ranks')).registerRanks,
  rehearse: () => (require('./rehearse') as typeof import('./rehearse')).registerRehearse,
  rollout: () => (require('./rollout') as typeof import('./rollout')).registerRollout,
  eval: () => (require('./eval') as typeof import('./eval')).registerEval,
  gateway: () => (require('./gateway') as typeof import('./gateway')).registerGateway,
  dashboard: () => (require('./dashboard') as typeof import('./dashboard')).registerDashboard,
  demo: () => (require('./demo') as typeof import('./demo')).registerDemo,
  chat: () => (require('./chat') as typeof import('./chat')).registerChat,
  replay: () => (require('./replay') as typeof import('./replay')).registerReplay,
  control: () => (require('./control') as typeof import('./control')).registerControl,
  track: () => (require('./track') as typeof import('./track')).registerTrack,
  why: () => (require('./why') as typeof import('./why')).registerWhy,
  exec: () => (require('./exec') as typeof import('./exec')).registerExec,
  judge: () => (require('./judge') as typeof import('./judge')).registerJudge,
  execute: () => (require('./execute') as typeof import('./execute')).registerExecute,
  grade: () => (require('./grade') as typeof import('./grade')).registerGrade,
  mcp: () => (require('./mcp') as typeof import('./mcp')).registerMcp,
  data: () => (require('./data') as typeof import('./data')).registerData,
  tasks: () => (require('./tasks') as typeof import('./tasks')).registerTasks,
  config: () => (require('./configCommand') as typeof import('./configCommand')).registerConfig,
  doctor: () => (require('./doctor') as typeof import('./doctor')).registerDoctor,
  setup: () => (require('./setupCommand') as typeof import('./setupCommand')).registerSetup,
  simulate: () => (require('./simulate') as typeof import('./simulate')).registerSimulate,
  experiment: () => (require('./experiment') as typeof import('./experiment')).registerExperiment,
  bench: () => (require('./benchCommand') as typeof import('./benchCommand')).registerBench,
}

const withSubcommands = (command: Command): readonly Command[] => [
  command,
  ...command.commands.flatMap(inner => withSubcommands(inner)),
]

/** Returns the words that call a command, with those of its parents, such as `troupe replay ls`. */
const pathOf = (command: Command): string =>
  command.parent === null ? command.name() : `${pathOf(command.parent)} ${command.name()}`

/**
 * Returns the parser of the command line. It has the command that `argv` names, or all commands if it names none.
 */
export function commandLine(argv: readonly string[]): Command {
  const program = new Command('troupe')
    .description('reinforcement learning of tool-using language models on a message bus')
    .version(version)
    .exitOverride()
  // Loads only the modules of the named command. The help needs all modules, the version none.
  const [first = ''] = argv
  const named = commands[first] === undefined ? Object.values(commands) : [commands[first]]
  for (const load of ['-V', '--version'].includes(first) ? [] : named) load()(program, argv)
  for (const command of withSubcommands(program)) command.showHelpAfterError(`see  npx ${pathOf(command)} --help`)
  return program
}

export async function main(argv: readonly string[]): Promise<number> {
  knowVariables(process.env)
  knowAddressesIn(argv)
  const program = commandLine(argv)
  // A command that handles SIGTERM watches for the end of npx itself; any other command is sent SIGTERM here.
  onNpxEnd(() => process.listenerCount('SIGTERM') === 0 && process.kill(process.pid, 'SIGTERM'))
  try {
    process.exitCode = 0
    await program.parseAsync([...argv], { from: 'user' })
    return Number(process.exitCode ?? 0)
  } catch (thrown) {
    if (thrown instanceof CommanderError) return thrown.exitCode === 0 ? 0 : 2
    return reportError(thrown)
  }
}
