/**
 * The role `learner`: curriculum, evaluation and training, under the learning supervisor.
 *
 * in   decided groups, finished evaluations        out  rollout requests, steps, weights; the run's end
 * Invariant: one process has this role at a time. It writes its claim first, so that facts which an earlier holder
 * writes after the claim are ignored.
 */
import type { Renderer } from '../../../backends/renderer/renderer'
import {
  grpoOptionsOf,
  sftOptionsOf,
  trainerOptionsOf,
  trainerTimeoutsOf,
} from '../../../backends/trainer/recipeOptions'
import type { Trainer } from '../../../backends/trainer/trainer'
import { startTrainer } from '../../../backends/trainer/trainerProcess'
import { serveWeights } from '../../../backends/weights/serveWeights'
import {
  activeAlarms,
  type RecipeConfig,
  refuseWithoutRendezvous,
  stalledMinutes,
  type TaskSource,
} from '../../../config'
import { checkpointSize } from '../../../config/estimate/disk'
import { innerCheckpointEveryOf } from '../../../config/estimate/innerCheckpoints'
import type { ToolSchema } from '../../../config/toolSchema'
import type { ChatMessage, RolloutLimits } from '../../../messages/facts'
import { type Epoch, policyVersion } from '../../../messages/ids'
import { TroupeError } from '../../../runtime/errors'
import { rejectOnAbort } from '../../../runtime/rejectOnAbort'
import { recordedPath } from '../../../runtime/runPaths'
import { curriculum, observesSteps } from '../../curriculum/curriculum'
import { drawKey, drawPort } from '../../curriculum/drawPort'
import { evaluator } from '../../curriculum/evaluator'
import type { StagePlan } from '../../curriculum/stages'
import { renderedDemonstrations } from '../../learning/demonstrations'
import { checkDisk } from '../../learning/diskSpace'
import { enginesAsleep } from '../../learning/enginesAsleep'
import { ignoredCheckpoints } from '../../learning/fromCheckpoint'
import { learner } from '../../learning/learner'
import { learnerKey, learnerPort } from '../../learning/learnerPort'
import type { WrittenSizes } from '../../learning/writeRoom'
import { claimLearning, whenReplaced } from '../../ownership/claimLearning'
import { fenced } from '../../ownership/fencing'
import { toolSchemas } from '../../tools/runTools'
import { stallAlarm } from '../control/stallAlarm'
import { takeOrders } from '../control/takeOrders'
import { leased } from '../leased'
import type { ModelOnDisk } from '../model'
import { processActor } from '../processActor'
import type { RunOptions } from '../run'
import { type Begin, beginOf, followedFeeds, saidOf } from './followed'
import type { Branch, Scope } from './scope'

export interface LearningParts {
  readonly renderer: Renderer
  readonly model: ModelOnDisk
  readonly stopTokens: readonly number[]
  readonly demonstrations: () => Promise<readonly (readonly ChatMessage[])[]>
  /** Called once, when another process has claimed this role (wrote `learner.claimed`) after this process did. */
  readonly onReplaced?: () => void
}

const maxRejectedSteps = 3
/**
 * Minimum time in ms between two batches of a partition's records, for behaviours that read every rollout and have to
 * act only when a group, a step or an evaluation is over.
 */
const lingerMs = 20

export async function startLearning(scope: Scope, parts: LearningParts): Promise<void> {
  if (scope.options.learns) refuseWithoutRendezvous(scope.options.config)
  const branch = await scope.under('learning')
  const { options, troupe } = branch
  const { config, recipe, run, fx, log, learns } = options
  const { journal } = troupe
  const schemas = await toolSchemas({ config, recipe, log })
  // Another process may have been elected meanwhile; a claim by this one would replace it, since the latest claim wins.
  if (!(await scope.mayAct())) return
  const learnerEpoch = await claimLearning(journal, fx)
  if (parts.onReplaced !== undefined)
    branch.onClose('learner watch', await whenReplaced(journal, fx, learnerEpoch, parts.onReplaced, scope.fail))
  const source = await recipe.tasks(config)
  if (Object.keys(source.dropped).length > 0)
    log.info({ dropped: source.dropped }, "some rows of the recipe's data are skipped")
  for (const note of source.notes ?? []) log.warn({}, note)
  const observed = { stages: stagePlans(config, source), alarms: activeAlarms(config.alarms) }
  const said = await saidOf(journal)
  const { bus, directory } = options
  branch.onClose(
    'orders of troupe control',
    await takeOrders({
      ...{ journal, fx, log, learnerEpoch, said, mayAct: scope.mayAct, onError: scope.fail },
      // Only one process may write to an lmdb log, so there `troupe control` leaves its orders as files.
      directory: bus.kind === 'lmdb' ? directory : undefined,
    }),
  )
  const minutes = stalledMinutes(config.alarms)
  if (minutes !== undefined)
    branch.onClose('alarm of a stalled run', stallAlarm({ journal, fx, log, minutes, mayAct: scope.mayAct }).start())
  const without = ignoredCheckpoints(said, options.fromCheckpoint)
  const begin = beginOf(said, { learns, tallies: observesSteps(observed), without })
  await branch.host({
    behaviour: fenced(evaluator(config.selection), learnerEpoch),
    feeds: followedFeeds,
    begin,
    lingerMs,
  })
  const { groupsPerStep, maxStaleness } = config.rollout
  const { refillShare, positiveAbove } = config.selection
  const { steps } = config.train
  const { evaluation } = config
  const plan = {
    ...{ run, steps, groupsPerStep, refillShare, maxStaleness, maxRejectedSteps, learns, evaluation },
    ...{ ...observed, positiveAbove },
  }
  await branch.host({
    behaviour: fenced(curriculum(plan), learnerEpoch),
    feeds: followedFeeds,
    begin,
    lingerMs,
    perform: drawPort(source, parts.renderer, { ...drawOptions(branch, parts.stopTokens, schemas), learnerEpoch }, fx),
    keyOf: drawKey,
  })
  if (learns) await startTraining(branch, parts, { begin, schemas, learnerEpoch, without })
  else if (!(await hasWeights(branch))) {
    const url = recordedPath(options.directory, parts.model.directory)
    const asItIs = { version: policyVersion(0), step: 0, url, digest: '', bytes: 0, epoch: learnerEpoch }
    await journal.append([{ type: 'weights.published', at: fx.now(), ...asItIs }])
  }
}

/** True if weights were published already: a run without training publishes them once. */
async function hasWeights({ troupe: { journal } }: Scope): Promise<boolean> {
  return (await saidOf(journal, ['learner'])).some(({ type }) => type === 'weights.published')
}

interface Training {
  readonly begin: Begin
  readonly schemas: readonly ToolSchema[]
  readonly learnerEpoch: Epoch
  /** Names of checkpoints that are ignored (`ignoredCheckpoints`). */
  readonly without: ReadonlySet<string>
}

async function startTraining(
  branch: Branch,
  parts: LearningParts,
  { begin, schemas, learnerEpoch, without }: Training,
): Promise<void> {
  const { options, troupe } = branch
  const { config, fx, log, directory } = options
  const { renderer, model, demonstrations } = parts
  const { checkpointEvery, keepVersions, keepCheckpoints, steps } = config.train
  const timeouts = trainerTimeoutsOf(config)
  const innerCheckpointEvery = innerCheckpointEveryOf(config)
  const leases = await branch.leases()
  const modelDirectory = model.directory
  const plan = config.hardware?.plan
  const takesTurns = plan?.kind === 'colocated'
  // The trainer sleeps until its first request, so that engines that start meanwhile do not wait for its GPUs.
  const child = { name: 'trainer', group: 'trainer', startsAsleep: takesTurns } as const
  const offload = plan?.kind === 'colocated' && plan.offloadTrainer
  // In a process with engines of its own, the leases make the trainer wait for them.
  const othersAsleep = async (signal: AbortSignal) => {
    if (takesTurns && options.role === 'learner') await enginesAsleep(troupe.journal, signal)
  }
  /**
   * Sizes of weights and checkpoints; known once the first trainer has started and the disk is large enough for them.
   */
  let sizes: WrittenSizes | undefined
  const trainers = processActor<Trainer>({
    name: 'trainer',
    async start(signal) {
      await othersAsleep(signal)
      return leased(leases, child, signal, async env => {
        const trainer = await (options.startTrainer ?? startTrainer)({
          modelDirectory,
          ...trainerOptionsOf(config),
          ...timeouts,
          offload,
          log,
          signal,
          env,
        })
        if (sizes !== undefined) return trainer
        const kept = { ...config.train, innerCheckpointEvery }
        const checking = checkDisk(directory, kept, trainer.info, { disk: troupe.disk, log })
        await rejectOnAbort(checking, signal).catch(async thrown => {
          await trainer.close()
          throw thrown
        })
        const { parameters, trainedParameters: trainable, device } = trainer.info
        const { bytes, weightBytes } = checkpointSize({ parameters, trainable }, { ...config.train, device })
        sizes = { weights: weightBytes * parameters, checkpoint: bytes }
        return trainer
      })
    },
  })
  await branch.processes('trainer', [trainers])
  // Resolves at the end of the checkpoint being written; awaited between the learner's stop and the trainer's end.
  let writing = async () => {}
  branch.onClose('checkpoint', () => writing())
  const { coldStart } = config
  const server =
    options.serveWeights === undefined
      ? undefined
      : await serveWeights({ root: directory, address: options.serveWeights })
  if (server !== undefined) branch.onClose('server of weights', () => server.close())
  await branch.host({
    behaviour: fenced(
      learner({
        groupsPerStep: config.rollout.groupsPerStep,
        refillShare: config.selection.refillShare,
        ...{ steps, keepCheckpoints, without },
      }),
      learnerEpoch,
    ),
    feeds: followedFeeds,
    begin,
    lingerMs,
    perform: learnerPort({
      async trainer(signal) {
        await othersAsleep(signal)
        return trainers.current()
      },
      takesTurns,
      disk: troupe.disk,
      sizes: () => sizes,
      journal: troupe.journal,
      directory,
      ...(server === undefined ? {} : { servedAt: server.urlOf }),
      grpo: grpoOptionsOf(config),
      ...(config.agent === undefined ? {} : { trains: config.agent.trains }),
      ...{ checkpointEvery, innerCheckpointEvery, keepVersions, lastStep: steps, mayAct: branch.mayAct },
      onWriting: ended => {
        writing = ended
      },
      fx,
      log,
      ...(coldStart === undefined
        ? {}
        : {
            coldStart: {
              options: sftOptionsOf(coldStart, config.seed),
              checkpointEvery: coldStart.checkpointEvery,
              async *examples() {
                const { contextTokens } = config.limits
                const tools = demonstratedTools(options, schemas)
                const conversations = await demonstrations()
                yield* renderedDemonstrations({ renderer, conversations, tools, contextTokens, log })
              },
            },
          }),
    }),
    keyOf: learnerKey,
  })
}

/** Limits of a rollout as facts record them: without the limit of the prompt. */
const rolloutLimits = ({ promptTokens: _, ...limits }: RecipeConfig['limits']): RolloutLimits => limits

/** Drops the fields whose value is undefined. */
const given = (limits: object = {}) =>
  Object.fromEntries(Object.entries(limits).filter(([, value]) => value !== undefined))

/**
 * Returns the plans of the recipe's stages. A stage that measures its problems gets their number: `problems.count`, at
 * most the size of the task source. @throws TroupeError config.endless_problems if a stage that measures names no count
 * and the source is endless
 */
function stagePlans({ stages }: RecipeConfig, { size }: TaskSource): readonly StagePlan[] {
  return stages.map(stage => {
    const { problems } = stage
    if (problems === undefined) return { ...stage, problems }
    const count = Math.min(problems.count ?? size ?? 0, size ?? Number.POSITIVE_INFINITY)
    if (count > 0) return { ...stage, problems: { ...problems, count } }
    throw new TroupeError('config.endless_problems', {
      boundary: 'config',
      retriable: false,
      message: `stage '${stage.name}' cannot measure its problems: the recipe's task source is endless, and the stage names no count`,
      hint: 'set stages.N.problems.count',
    })
  })
}

const demonstratedTools = ({ config }: RunOptions, schemas: readonly ToolSchema[]) =>
  (config.coldStart?.toolsInPrompt ?? config.tools.inPrompt) ? schemas : []

const shownTools = ({ config }: RunOptions, schemas: readonly ToolSchema[]) => (config.tools.inPrompt ? schemas : [])

function drawOptions(
  { options, troupe: { journal } }: Scope,
  stopTokens: readonly number[],
  schemas: readonly ToolSchema[],
) {
  const { config } = options
  return {
    async begins() {
      const partitions = Array.from({ length: await journal.partitionsOf('trajectories') }, (_, p) => p)
      return Promise.all(partitions.map(async p => (await journal.offsets('trajectories', p)).next))
    },
    seed: config.seed,
    groupSize: config.rollout.groupSize,
    evaluationSamples: config.evaluation.samples,
    limits: rolloutLimits(config.limits),
    promptTokens: config.limits.promptTokens,
    evaluationLimits: rolloutLimits({ ...config.limits, ...given(config.evaluation.limits) }),
    stages: config.stages.map(({ limits, problems }) => ({
      limits: rolloutLimits({ ...config.limits, ...given(limits) }),
      samples: problems?.samples ?? 0,
    })),
    sampling: { ...config.rollout.sampling, stopTokens },
    evaluationTemperature: config.evaluation.temperature,
    deadlineMs: config.rollout.deadlineMs,
    tools: schemas.map(t => t.name),
    shownTools: shownTools(options, schemas),
  }
}
