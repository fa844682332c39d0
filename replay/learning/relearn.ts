/**
 * Recomputes optimizer steps from their recorded batches, and compares them with the record.
 *
 * in   a recorded run, and its newest checkpoint on disk from before the first wanted step
 * out  for each step: loss, gradient norm, members and weights, recorded and recomputed
 * Invariant: batches come from `step.started` and the recorded tokens, whatever order groups arrived in. Weights are
 * written only to a temporary directory, to compute their digest. Equal bits are to be expected only on the run's own
 * device, with its dtype and its numbers of threads and ranks: any other adds floats in another order.
 */
import { existsSync, readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { z } from 'zod'
import { resetTrainer } from '../../actors/learning/trainerSteps'
import { trainSequences } from '../../actors/learning/trainSequences'
import { grpoOptionsOf, trainerOptionsOf, trainerTimeoutsOf } from '../../backends/trainer/recipeOptions'
import { startTrainer, type TrainerProcess } from '../../backends/trainer/trainerProcess'
import type { RecipeConfig } from '../../config'
import type { CheckpointSaved } from '../../messages/facts'
import { groupOf } from '../../messages/ids'
import { unreadable } from '../../runtime/disk/pathKind'
import { asError } from '../../runtime/errors'
import { createLog } from '../../runtime/log'
import { pathToday } from '../../runtime/runPaths'
import { temporaryDirectory } from '../../sandbox/temporaryDirectory'
import { configOf } from '../log/recordedConfig'
import type { RecordedRun } from '../log/recordedRun'
import { replayError } from '../replayError'
import { factsIn, groupsOf, readTrajectories } from '../trajectories/trajectory'
import { compare, type LearnedStep, reselected, type Tolerance } from './learnedStep'
import { learnerLog, type RecordedStep } from './learnerLog'

export interface RelearnOptions {
  /**
   * Largest relative difference that counts as agreement, for loss, gradient norm, trained tokens and sequences.
   * Default: `toleranceOf`.
   */
  readonly check?: number
  /** Torch device that recomputes the steps. Default: the run's. */
  readonly device?: string
  /** Precision of matrix products. Default: the run's. */
  readonly dtype?: 'float32' | 'bfloat16'
  /** CPU threads that torch uses. Default: the run's. */
  readonly threads?: number
}

/** A recomputed step, and the tolerance that it was compared under. */
export interface CheckedStep {
  readonly learned: LearnedStep
  readonly check: number
}

/**
 * Recomputes `wanted`: one step, or with `all` every completed step after the oldest checkpoint on disk.
 * @throws TroupeError replay.no_step when `wanted` names no completed step; replay.no_checkpoint when no checkpoint
 * from before that step is on disk; config.invalid; errors of the trainer's process
 */
export async function* relearn(
  recorded: RecordedRun,
  wanted: number | 'all',
  options: RelearnOptions = {},
): AsyncGenerator<CheckedStep> {
  const config = await configOf(recorded)
  const { steps, ...saved } = await learnerLog(recorded)
  const asked = wantedSteps(wanted, steps, oldestOnDisk(recorded, saved.checkpoints))
  const checkpoint = nearestCheckpoint(recorded, saved, asked[0]!)
  const check = options.check ?? toleranceOf(config, options)
  const loss = options.check === undefined && isOtherDtype(config, options.dtype) ? lossRounding : 0
  for await (const learned of relearnFrom(recorded, config, steps, checkpoint, asked, options, {
    relative: check,
    loss,
  })) {
    yield { learned, check }
  }
}

/**
 * Default tolerance of the comparison, a relative difference. 1e-6 on the run's own device and dtype. 1e-3 on another
 * device, or for a run on several hosts: float32 numbers are added in another order. 0.05 with another dtype: bfloat16
 * keeps 8 bits of each product. A loss is a small difference of large sums, so with another dtype it may also differ by
 * `lossRounding`: a difference of 5.4 % was seen for a loss of 0.0045.
 */
export function toleranceOf(config: RecipeConfig, { device, dtype }: RelearnOptions): number {
  if (isOtherDtype(config, dtype)) return 0.05
  // A run on several hosts is computed again by fewer ranks, which add in another order.
  const isOther = (device !== undefined && device !== config.train.device) || (config.train.nodes ?? 1) > 1
  return isOther ? 1e-3 : 1e-6
}

/** Rounding error of a loss's term in bfloat16 (8 bits); a term is about 1, as advantages are normalised by group. */
const lossRounding = 2 ** -8

const isOtherDtype = ({ train }: RecipeConfig, dtype: RelearnOptions['dtype']) =>
  dtype !== undefined && dtype !== (train.dtype ?? 'float32')

/** Step of the oldest checkpoint that is on disk; 0 if none is. */
function oldestOnDisk(recorded: RecordedRun, saved: readonly CheckpointSaved[]): number {
  const steps = saved.filter(c => isOnDisk(recorded, c)).map(c => c.step)
  return steps.length === 0 ? 0 : Math.min(...steps)
}

const isOnDisk = ({ files }: RecordedRun, { name }: CheckpointSaved) =>
  existsSync(join(files.root, 'checkpoints', name, 'config.json'))

function wantedSteps(
  wanted: number | 'all',
  steps: ReadonlyMap<number, RecordedStep>,
  oldest: number,
): readonly number[] {
  const over = [...steps].filter(([, s]) => s.metrics !== null && !s.rejected).map(([step]) => step)
  if (wanted === 'all') {
    const computable = over.filter(step => step > oldest)
    if (over.length > 0) return (computable.length > 0 ? computable : over).sort((a, b) => a - b)
    throw noStep('the run has no completed step')
  }
  const step = steps.get(wanted)
  if (step === undefined) throw noStep(`step ${wanted} never started; completed steps: ${over.join(', ') || 'none'}`)
  if (step.metrics === null) throw noStep(`step ${wanted} has not ended, so the log has no result to compare with`)
  if (step.rejected) throw noStep(`step ${wanted} was rejected: it changed no weights`)
  return [wanted]
}

/**
 * Finds the newest checkpoint before `step` that is still on disk.
 * @throws TroupeError replay.no_checkpoint, which names the nearest checkpoint that was kept
 */
function nearestCheckpoint(
  recorded: RecordedRun,
  { checkpoints, removed }: Pick<Awaited<ReturnType<typeof learnerLog>>, 'checkpoints' | 'removed'>,
  step: number,
) {
  const folder = join(recorded.files.root, 'checkpoints')
  const before = checkpoints.filter(c => c.step < step).sort((a, b) => b.step - a.step)
  for (const { name, step: at, manifest } of before) {
    const directory = join(folder, name)
    if (existsSync(join(directory, 'config.json'))) return { name, step: at, directory, manifest }
  }
  const nearest = checkpoints.filter(c => c.step >= step && isOnDisk(recorded, c)).sort((a, b) => a.step - b.step)[0]
  const known = before.map(c => c.name).join(', ') || 'none'
  const lost = before.length > 0 && before.every(({ name }) => removed.has(name))
  throw replayError(
    'no_checkpoint',
    `${folder} has no checkpoint from before step ${step}; the run had saved: ${known}${lost ? ', and removed all of them (train.keepCheckpoints)' : ''}`,
    nearest === undefined
      ? `none of the run's checkpoints is there: copy the run's directory, with its checkpoints, to ${recorded.files.root}`
      : `the nearest checkpoint that was kept is ${nearest.name}: name a step after ${nearest.step}`,
  )
}

async function* relearnFrom(
  recorded: RecordedRun,
  config: RecipeConfig,
  steps: ReadonlyMap<number, RecordedStep>,
  checkpoint: ReturnType<typeof nearestCheckpoint>,
  wanted: readonly number[],
  options: RelearnOptions,
  within: Tolerance,
): AsyncGenerator<LearnedStep> {
  const last = wanted.at(-1)!
  // Every step since the checkpoint is recomputed, because each step starts from the weights of the step before.
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
    ...trainerTimeoutsOf(config),
    // A run on several hosts is computed again by as many ranks as one of them had.
    ranks: train.ranks / train.nodes,
    nodes: 1,
    modelDirectory:
      train.lora === undefined ? checkpoint.directory : adaptersBase(recorded.files.root, checkpoint.directory),
    device: options.device ?? train.device,
    ...(options.dtype === undefined ? {} : { dtype: options.dtype }),
    threads: options.threads ?? train.threads,
    log: createLog('replay', { level: process.env.TROUPE_LOG ?? 'warn' }),
  })
  const scratch = temporaryDirectory('learn')
  try {
    await trainer.load(checkpoint.directory, checkpoint.manifest)
    for (const one of through) {
      const { started } = one
      const decisions = started.trajectories.flatMap(id => {
        const decision = byGroup.get(groupOf(id))?.[0]?.decision
        return decision?.type === 'group.selected' ? [decision] : []
      })
      await resetTrainer(trainer, one.reset, grpo) // a stage's reset applies even when the stage's first step was rejected
      if (one.rejected) continue
      const metrics = await trainer.step(
        trainSequences({ started, groups: decisions }, facts, config.agent?.trains),
        grpo,
      )
      if (!wanted.includes(started.step)) continue
      const digest = await digestOf(trainer, join(scratch, `step-${started.step}`))
      yield compare(one, checkpoint.name, metrics, digest, reselected(byGroup, one, config), within)
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

/**
 * Returns the directory of the base weights that the checkpoint's adapters were trained on, from its manifest; the
 * checkpoint's own directory if it has no adapters. @throws TroupeError replay.bad_manifest
 */
export function adaptersBase(root: string, directory: string): string {
  const path = join(directory, 'manifest.json')
  const refused = (why: string, cause?: unknown) => {
    const hint = `copy the checkpoint from where it is whole, or name a step whose checkpoint is; \`troupe replay verify\` lists damaged checkpoints`
    return replayError(
      'bad_manifest',
      `${path} ${why}; expected the manifest of a checkpoint with adapters`,
      hint,
      cause,
    )
  }
  const why = unreadable(path, 'file')
  if (why !== undefined) throw refused(why)
  let content: unknown
  try {
    content = JSON.parse(readFileSync(path, 'utf8'))
  } catch (thrown) {
    throw refused(`cannot be read: ${asError(thrown).message}`, thrown)
  }
  const manifest = withAdapter.safeParse(content)
  if (!manifest.success) throw refused(`names no base model: ${manifest.error.issues[0]?.message}`)
  const { adapter } = manifest.data
  if (adapter === undefined) return directory
  try {
    return pathToday(root, adapter.model)
  } catch (thrown) {
    throw refused(`names the base model ${JSON.stringify(adapter.model)}: ${asError(thrown).message}`, thrown)
  }
}

const withAdapter = z.object({ adapter: z.object({ model: z.string() }).optional() })

const noStep = (message: string) => replayError('no_step', message, '`troupe replay steps` lists the steps of a run')
