/**
 * The learner's port to the trainer.
 *
 * in   cold-start and train requests
 * out  cold start: stage.changed (if there are demonstrations), checkpoint.saved, weights.published
 *      step: checkpoint.saved (every `checkpointEvery` steps), weights.published, step.completed; or step.rejected
 * Invariant: before a step is trained, the trainer holds the state that the earlier steps left. If it lost that state
 * (a crash, a resume), it loads the newest checkpoint and repeats the recorded batches since; a loss that then differs
 * from the recorded one is logged. `step.completed` is written last, after the weights and the checkpoint are durable.
 */
import { readdir, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import type {
  GrpoOptions,
  SftExample,
  SftOptions,
  StageReset,
  Trainer,
  TrainSequence,
} from '../../backends/trainer/trainer'
import { type AssembledSequence, assembleSequence } from '../../kernels'
import type { CheckpointSaved, Fact, Metrics, TrajectoryFact, WeightsPublished } from '../../messages/facts'
import { type Epoch, groupOf, type PolicyVersion, policyVersion, type TrajectoryId } from '../../messages/ids'
import type { Effects } from '../../runtime/effects'
import { asError, TroupeError } from '../../runtime/errors'
import type { Decision } from '../../runtime/host/behaviour'
import type { Port } from '../../runtime/host/host'
import type { Journal } from '../../runtime/journal/journal'
import type { Log } from '../../runtime/log'
import { rejectOnAbort } from '../../runtime/rejectOnAbort'
import { curriculumAfter, isReplaced, noCurriculum } from '../ownership/fencing'
import type { Batch, LearnerRequest } from './learner'

export interface LearnerPortOptions {
  /** Resolves with the trainer; starts it again first if its process was lost. */
  readonly trainer: () => Promise<Trainer>
  readonly journal: Journal
  /** Root directory of checkpoints and weights. */
  readonly directory: string
  /** Maps a directory of weights to the URL under which other hosts fetch it. */
  readonly servedAt?: (directory: string) => string
  readonly grpo: GrpoOptions
  readonly checkpointEvery: number
  readonly keepVersions: number
  /**
   * Cold start: demonstrations (conversations to imitate) as token ids, and how to train on them. Without it, version 0
   * is the unchanged initial model.
   */
  readonly coldStart?: { readonly options: SftOptions; readonly examples: () => Promise<readonly SftExample[]> }
  readonly onColdStart: (done: number, loss: number) => void
  readonly fx: Effects
  readonly log: Log
}

/** Relative difference between a recomputed and a recorded loss above which a warning is logged. */
const recomputedTolerance = 1e-3

/**
 * Codes of errors after which the step is rejected and the trainer's state is unchanged: the batch is at fault, not the
 * trainer.
 */
const batchFaults: ReadonlySet<string> = new Set([
  'trainer.not_finite',
  'trainer.empty_batch',
  'trainer.bad_sequence',
  'trainer.context_exceeded',
])

export const learnerKey = (request: LearnerRequest): string =>
  request.kind === 'cold-start' ? 'cold-start' : `train ${request.batch.started.step}`

export function learnerPort(options: LearnerPortOptions): Port<LearnerRequest> {
  const { journal, fx, log } = options
  /** The trainer, and the number of the step whose resulting state it holds. */
  let held: { readonly trainer: Trainer; readonly step: number } | undefined

  // File names carry the epoch (offset of the learner's claim): a learner that does not know that it was replaced
  // cannot overwrite its successor's files.
  const under = (name: string, epoch: Epoch) => (epoch > 0 ? `${name}-e${epoch}` : name)
  const versionName = (version: number) => `v${String(version).padStart(6, '0')}`
  const checkpointPath = (name: string) => join(options.directory, 'checkpoints', name)

  async function publish(trainer: Trainer, step: number, version: PolicyVersion, epoch: Epoch): Promise<Fact[]> {
    const whole = step % options.checkpointEvery === 0
    const name = under(`step-${String(step).padStart(6, '0')}`, epoch)
    const path = whole ? checkpointPath(name) : join(options.directory, 'weights', under(versionName(version), epoch))
    const { digest, bytes, adapter } = await trainer.save(path, whole)
    const at = fx.now()
    const url = pathToFileURL(path).href
    const served = options.servedAt === undefined ? {} : { served: options.servedAt(path) }
    const adapters = adapter === undefined ? {} : { adapter }
    const said = { version, step, url, ...served, digest, bytes, ...adapters, epoch }
    const published: WeightsPublished = { type: 'weights.published', at, ...said }
    const saved: CheckpointSaved[] = whole ? [{ type: 'checkpoint.saved', at, step, version, name, digest, epoch }] : []
    await removeOld(version)
    return [...saved, published]
  }

  /** Removes the weights that are `keepVersions` versions old, unless they are part of a checkpoint. */
  async function removeOld(version: PolicyVersion): Promise<void> {
    const old = version - options.keepVersions
    if (old < 0) return
    const folder = join(options.directory, 'weights')
    const names = await readdir(folder).catch(() => []) // the folder does not exist when every version is a checkpoint
    const gone = names.filter(name => name === versionName(old) || name.startsWith(`${versionName(old)}-`))
    for (const name of gone) await rm(join(folder, name), { recursive: true, force: true })
  }

  async function coldStart(epoch: Epoch): Promise<Decision> {
    const trainer = await options.trainer()
    const facts: Fact[] = []
    if (options.coldStart !== undefined) {
      const examples = await options.coldStart.examples()
      const metrics = await trainer.sft(examples, options.coldStart.options, options.onColdStart)
      const reason = `supervised on ${examples.length} demonstrations, loss ${(metrics.loss ?? Number.NaN).toFixed(4)}`
      facts.push({ type: 'stage.changed', at: fx.now(), stage: 'cold-start', step: 0, reason, epoch })
    }
    facts.push(...(await publish(trainer, 0, policyVersion(0), epoch)))
    held = { trainer, step: 0 }
    return { facts, commands: [] }
  }

  /** Reads the batch's sequences from the log, in the batch's order. */
  const sequencesOf = async (batch: Batch): Promise<TrainSequence[]> =>
    trainSequences(batch, await factsOf(journal, batch))

  async function restore(request: Extract<LearnerRequest, { kind: 'train' }>): Promise<Trainer> {
    const trainer = await options.trainer()
    const { started } = request.batch
    if (held?.trainer === trainer && held.step === started.step - 1) return trainer
    await trainer.load(checkpointPath(request.checkpoint.name))
    for (const batch of request.since) {
      await resetTrainer(trainer, batch.reset, options.grpo)
      if (batch.rejected) continue
      const metrics = await trainer.step(await sequencesOf(batch), options.grpo)
      const recorded = batch.metrics?.loss ?? Number.NaN
      const difference = Math.abs((metrics.loss ?? Number.NaN) - recorded) / Math.max(1e-6, Math.abs(recorded))
      if (!(difference <= recomputedTolerance)) {
        log.warn(
          { step: batch.started.step, loss: metrics.loss, recorded },
          'the recomputed loss of a step differs from the recorded one',
        )
      }
    }
    return trainer
  }

  async function train(request: Extract<LearnerRequest, { kind: 'train' }>): Promise<Decision> {
    const { epoch } = request
    const { step } = request.batch.started
    const trainer = await restore(request)
    const sequences = await sequencesOf(request.batch)
    // A stage that begins may ask for a reset. It is made here, because the newest checkpoint still holds the previous
    // stage's optimizer and reference model.
    await resetTrainer(trainer, request.batch.reset, options.grpo)
    let metrics: Metrics
    try {
      held = undefined
      metrics = withoutMemory(await trainer.step(sequences, options.grpo))
    } catch (thrown) {
      const error = asError(thrown)
      if (!(error instanceof TroupeError) || !batchFaults.has(error.code)) throw error
      held = { trainer, step }
      const reason = error.hint === undefined ? error.message : `${error.message}; ${error.hint}`
      const rejected: Fact = { type: 'step.rejected', at: fx.now(), step, epoch, reason, metrics: {} }
      return { facts: [rejected], commands: [] }
    }
    const version = policyVersion(request.version + 1)
    const facts = await publish(trainer, step, version, epoch)
    held = { trainer, step }
    return { facts: [...facts, { type: 'step.completed', at: fx.now(), step, epoch, version, metrics }], commands: [] }
  }

  // Stopping the run waits for a running step, whose result would otherwise be lost, but aborts a cold start.
  return (request, signal) =>
    request.kind === 'cold-start' ? rejectOnAbort(coldStart(request.epoch), signal) : train(request)
}

/**
 * Resets the trainer at the start of a stage. Without a KL term the policy is not copied as the new reference model,
 * since nothing would use it.
 */
export async function resetTrainer(trainer: Trainer, reset: StageReset | undefined, grpo: GrpoOptions): Promise<void> {
  if (reset === undefined) return
  const { optimizer } = reset
  const reference = reset.reference && grpo.klCoef > 0
  if (optimizer || reference) await trainer.reset({ optimizer, reference })
}

/**
 * Builds the trainer's sequences in the order of `step.started`; groups are numbered from 0 in the order in which they
 * first occur there. A rollout without a sampled token is left out, so it counts in no normalisation of the loss.
 */
export function trainSequences(
  { started, groups }: Pick<Batch, 'started' | 'groups'>,
  facts: ReadonlyMap<TrajectoryId, readonly TrajectoryFact[]>,
): TrainSequence[] {
  const indexOf = new Map([...new Set(started.trajectories.map(groupOf))].map((group, i) => [group, i]))
  const advantageOf = new Map<string, number>(
    groups.flatMap(g => g.kept.map(k => [`${g.group}/${k.member}`, k.advantage] as const)),
  )
  return started.trajectories.flatMap(trajectory => {
    const { tokens, mask, engineLogprobs } = trained(assembleSequence(facts.get(trajectory) ?? []))
    if (tokens.length === 0) return []
    const group = indexOf.get(groupOf(trajectory))!
    return [{ trajectory, tokens, mask, engineLogprobs, advantage: advantageOf.get(trajectory)!, group }]
  })
}

/**
 * Cuts a sequence after its last sampled token: nothing is trained on a tool response that ended the rollout over its
 * budget.
 */
function trained({
  tokens,
  mask,
  engineLogprobs,
}: AssembledSequence): Pick<TrainSequence, 'tokens' | 'mask' | 'engineLogprobs'> {
  const end = mask.lastIndexOf(1) + 1
  return { tokens: tokens.slice(0, end), mask: mask.slice(0, end), engineLogprobs: engineLogprobs.slice(0, end) }
}

/** Drops the memory use of the trainer process from the metrics, since it differs between two runs with one seed. */
const withoutMemory = ({ maxRssBytes: _, ...metrics }: Metrics): Metrics => metrics

/**
 * Reads the facts of a batch's trajectories, from the log positions where their groups begin. Facts written by replaced
 * owners and replaced curricula are left out.
 */
async function factsOf(journal: Journal, batch: Batch): Promise<Map<TrajectoryId, TrajectoryFact[]>> {
  const wanted = new Map<TrajectoryId, TrajectoryFact[]>(batch.started.trajectories.map(t => [t, []]))
  const begins = new Map<number, number>()
  for (const { partition, offset } of batch.places.values()) {
    begins.set(partition, Math.min(begins.get(partition) ?? offset, offset))
  }
  for (const [partition, begin] of begins) {
    const { next } = await journal.offsets('trajectories', partition)
    let claimed = -1
    let curriculum = noCurriculum
    for await (const entries of journal.readTo('trajectories', partition, begin, next)) {
      for (const { message, offset } of entries) {
        if (message.type === 'partition.claimed') claimed = offset
        // The first record read is a valid request; its learnerEpoch gives the curriculum whose requests are valid.
        if (isReplaced(curriculum, message as Fact)) continue
        curriculum = curriculumAfter(curriculum, message as Fact)
        if (!('trajectory' in message) || ('epoch' in message && message.epoch < claimed)) continue
        wanted.get(message.trajectory)?.push(message as TrajectoryFact)
      }
    }
  }
  return wanted
}
