/**
 * `troupe replay learn STEP`: computes an optimizer step again and compares it with the record.
 *
 * in   a run's log, and its nearest checkpoint before the step that is still on disk
 * out  loss, gradient norm, members and weights, recorded and recomputed; exit 1 where they do not agree
 * Invariant: batches come from `step.started` and the recorded tokens, whatever order groups arrived in; weights are
 * written to a temporary directory only, to take their digest. On the run's own device and dtype the trainer gives the same
 * bits; another device adds floats in another order, and `--check` says what difference is allowed.
 */
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type Command, Option } from 'commander'
import { resetTrainer, trainSequences } from '../../actors/learning/learnerPort'
import { grpoOptionsOf, trainerOptionsOf } from '../../backends/trainer/recipeOptions'
import { startTrainer, type TrainerProcess } from '../../backends/trainer/trainerProcess'
import type { RecipeConfig } from '../../config'
import type { CheckpointSaved } from '../../messages/facts'
import { groupOf } from '../../messages/ids'
import { compare, type LearnedStep, reselected } from '../../replay/learning/learnedStep'
import { learnerLog, type RecordedStep } from '../../replay/learning/learnerLog'
import { configOf } from '../../replay/log/recordedConfig'
import type { RecordedRun } from '../../replay/log/recordedRun'
import { factsIn, groupsOf, readTrajectories } from '../../replay/trajectories/trajectory'
import { TroupeError } from '../../runtime/errors'
import { createLog } from '../../runtime/log'
import { numberFrom, wholeNumber } from '../options/readers'
import { jsonText } from './jsonText'
import { learnedLines } from './learnedLines'
import { openRecorded, type ReadOptions, reportFaults, withRun } from './runOptions'

interface LearnOptions extends ReadOptions {
  readonly all?: boolean
  readonly check?: number
  readonly device?: string
  readonly dtype?: 'float32' | 'bfloat16'
  readonly threads?: number
  readonly json?: boolean
}

export function registerLearn(replay: Command): void {
  const command = replay
    .command('learn [step]')
    .description('compute an optimizer step again from its recorded batch, and compare')
    .option('--all', 'every step from the oldest checkpoint that is kept')
    .option(
      '--check <relative>',
      'largest relative difference of loss and gradient norm (default: 1e-6; on another device 1e-3, in another dtype 0.02)',
      numberFrom(0),
    )
    .option('--device <device>', "a torch device (default: the run's)")
    .addOption(new Option('--dtype <dtype>', "of the products (default: the run's)").choices(['float32', 'bfloat16']))
    .option('--threads <n>', "torch threads (default: the run's)", wholeNumber(1, 1024))
    .option('--json', 'a JSON line a step')
  withRun(command).action(learn)
}

async function learn(asked: string | undefined, options: LearnOptions): Promise<void> {
  const recorded = await openRecorded(options)
  try {
    const config = await configOf(recorded)
    const log = await learnerLog(recorded)
    const wanted = wantedSteps(asked, options, log.steps)
    const checkpoint = nearest(recorded, log.checkpoints, wanted[0]!)
    const check = options.check ?? toleranceOf(config, options)
    let disagreed = 0
    for await (const result of relearn(recorded, config, log.steps, checkpoint, wanted, { ...options, check })) {
      if (!result.agrees) disagreed++
      const text = options.json ? jsonText(result) : learnedLines(result, check).join('\n')
      process.stdout.write(`${text}\n`)
    }
    reportFaults(recorded)
    process.exitCode = disagreed > 0 ? 1 : 0
  } finally {
    await recorded.close()
  }
}

/**
 * What a step may differ by where nothing is said: the run's own device and dtype give the same numbers; another device adds
 * float32 in another order; bfloat16 keeps 8 bits of each product, and a loss is a small difference of large sums.
 */
function toleranceOf(config: RecipeConfig, { device, dtype }: LearnOptions): number {
  if (dtype !== undefined && dtype !== (config.train.dtype ?? 'float32')) return 0.02
  return device !== undefined && device !== config.train.device ? 1e-3 : 1e-6
}

function wantedSteps(
  asked: string | undefined,
  options: LearnOptions,
  steps: ReadonlyMap<number, RecordedStep>,
): readonly number[] {
  const over = [...steps].filter(([, s]) => s.metrics !== null && !s.rejected).map(([step]) => step)
  if (options.all) {
    if (over.length > 0) return over.sort((a, b) => a - b)
    throw refusal('cli.no_step', 'the run has no completed step')
  }
  if (asked === undefined || !/^\d{1,9}$/.test(asked))
    throw refusal('cli.no_step', 'no step was named: a number, or --all')
  const step = steps.get(Number(asked))
  if (step === undefined)
    throw refusal('cli.no_step', `step ${asked} was never started; completed: ${over.join(', ') || 'none'}`)
  if (step.metrics === null) throw refusal('cli.no_step', `step ${asked} is not over: there is nothing to compare with`)
  if (step.rejected) throw refusal('cli.no_step', `step ${asked} was rejected: it changed no weights`)
  return [Number(asked)]
}

/** The newest checkpoint before the step that is on disk. */
function nearest(recorded: RecordedRun, checkpoints: readonly CheckpointSaved[], step: number) {
  const before = checkpoints.filter(c => c.step < step).sort((a, b) => b.step - a.step)
  for (const { name, step: at } of before) {
    const directory = join(recorded.files.root, 'checkpoints', name)
    if (existsSync(join(directory, 'config.json'))) return { name, step: at, directory }
  }
  const known = before.map(c => c.name).join(', ') || 'none was saved'
  throw refusal(
    'cli.no_checkpoint',
    `no checkpoint before step ${step} is in ${join(recorded.files.root, 'checkpoints')} (${known})`,
    "copy the run's directory together with its log, or name a later step",
  )
}

async function* relearn(
  recorded: RecordedRun,
  config: RecipeConfig,
  steps: ReadonlyMap<number, RecordedStep>,
  checkpoint: { readonly name: string; readonly step: number; readonly directory: string },
  wanted: readonly number[],
  options: LearnOptions & { readonly check: number },
): AsyncGenerator<LearnedStep> {
  const last = wanted.at(-1)!
  const through = [...steps.values()].filter(
    s => s.started.step > checkpoint.step && s.started.step <= last && (s.metrics !== null || s.rejected),
  )
  const groups = new Set(through.filter(s => !s.rejected).flatMap(s => s.started.trajectories.map(groupOf)))
  const all = await readTrajectories(recorded, id => groups.has(groupOf(id)))
  const facts = new Map(all.map(c => [c.id, factsIn(c)]))
  const byGroup = groupsOf(all)

  const { train } = config
  const grpo = grpoOptionsOf(config)
  const trainer = await startTrainer({
    ...trainerOptionsOf(config),
    modelDirectory: train.lora === undefined ? checkpoint.directory : adaptersBase(checkpoint.directory),
    device: options.device ?? train.device,
    ...(options.dtype === undefined ? {} : { dtype: options.dtype }),
    threads: options.threads ?? train.threads,
    log: createLog('replay', { level: process.env.TROUPE_LOG ?? 'warn' }),
  })
  const scratch = mkdtempSync(join(tmpdir(), 'troupe-learn-'))
  try {
    await trainer.load(checkpoint.directory)
    for (const one of through) {
      const { started } = one
      const decisions = started.trajectories.flatMap(id => {
        const decision = byGroup.get(groupOf(id))?.[0]?.decision
        return decision?.type === 'group.selected' ? [decision] : []
      })
      await resetTrainer(trainer, one.reset, grpo) // a stage's reset stays, though its first step was rejected
      if (one.rejected) continue
      const metrics = await trainer.step(trainSequences({ started, groups: decisions }, facts), grpo)
      if (!wanted.includes(started.step)) continue
      const digest = await digestOf(trainer, join(scratch, `step-${started.step}`))
      yield compare(one, checkpoint.name, metrics, digest, reselected(byGroup, one, config), options.check)
    }
  } finally {
    await trainer.close()
    rmSync(scratch, { recursive: true, force: true })
  }
}

async function digestOf(trainer: TrainerProcess, directory: string): Promise<string> {
  const { digest } = await trainer.save(directory, false)
  rmSync(directory, { recursive: true, force: true })
  return digest
}

/** Adapters go on only with the weights that they were trained on: the checkpoint says where those are. */
function adaptersBase(directory: string): string {
  const { adapter } = JSON.parse(readFileSync(join(directory, 'manifest.json'), 'utf8')) as {
    adapter?: { readonly model: string }
  }
  return adapter?.model ?? directory
}

function refusal(code: string, message: string, hint = '`troupe replay steps` lists them'): TroupeError {
  return new TroupeError(code, { boundary: 'cli', retriable: false, message, hint })
}
