/**
 * `troupe replay`: registers the commands that answer questions about a run from its log. None of them changes that
 * log; `fork`, `import` and `salvage` write a new run. Loads only the modules of the named command; `--help` loads all.
 */
import type { Command } from 'commander'

type Register = (replay: Command) => void

const commands: Readonly<Record<string, () => Register>> = {
  runs: () => (require('./runs') as typeof import('./runs')).registerRuns,
  ls: () => (require('./ls') as typeof import('./ls')).registerLs,
  show: () => (require('./show') as typeof import('./show')).registerShow,
  files: () => (require('./files') as typeof import('./files')).registerFiles,
  follow: () => (require('./follow') as typeof import('./follow')).registerFollow,
  steps: () => (require('./steps') as typeof import('./steps')).registerSteps,
  run: () => (require('./run') as typeof import('./run')).registerRun,
  diff: () => (require('./diff') as typeof import('./diff')).registerDiff,
  roc: () => (require('./roc') as typeof import('./roc')).registerRoc,
  rescore: () => (require('./rescore') as typeof import('./rescore')).registerRescore,
  fork: () => (require('./fork') as typeof import('./fork')).registerFork,
  entropy: () => (require('./entropy') as typeof import('./entropy')).registerEntropy,
  limits: () => (require('./limits') as typeof import('./limits')).registerLimits,
  alarms: () => (require('./alarms') as typeof import('./alarms')).registerAlarms,
  learn: () => (require('./learn') as typeof import('./learn')).registerLearn,
  export: () => (require('./export') as typeof import('./export')).registerExport,
  import: () => (require('./import') as typeof import('./import')).registerImport,
  lineage: () => (require('./lineage') as typeof import('./lineage')).registerLineage,
  verify: () => (require('./soundness/verify') as typeof import('./soundness/verify')).registerVerify,
  salvage: () => (require('./soundness/salvage') as typeof import('./soundness/salvage')).registerSalvage,
}

/** Registers the replay commands. `argv`: the command line as `main` got it, `replay` first. */
export function registerReplay(program: Command, argv: readonly string[]): void {
  const replay = program
    .command('replay')
    .description('inspect a run through its log; fork, import and salvage write a new run')
  const named = commands[argv[1] ?? '']
  for (const load of named === undefined ? Object.values(commands) : [named]) load()(replay)
}
