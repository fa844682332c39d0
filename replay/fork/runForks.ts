/**
 * Runs planned forks: a new run whose trajectories begin in the middle and continue with a real engine, real tools and
 * a real verifier.
 *
 * in   the facts that the forks share with their parent, weights        out  the facts of the new run
 * Invariant: the parent's run is not changed. The coordinator rebuilds its state from the shared facts as it does after
 * a crash, and asks again for what has no answer, so a fork continues exactly where a resumed run would.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { startCoordination } from '../../actors/run/roles/coordination'
import { startInference } from '../../actors/run/roles/inference'
import { startScheduling } from '../../actors/run/roles/scheduling'
import { openScope } from '../../actors/run/roles/scope'
import { startTools } from '../../actors/run/roles/tools'
import { startVerification } from '../../actors/run/roles/verification'
import type { RunOptions } from '../../actors/run/run'
import { checkTokenizer, recordRunStart } from '../../actors/run/runStart'
import { startRenderer } from '../../backends/renderer/rendererProcess'
import type { RunFinished, RunStarted, TrajectoryFact, WeightsPublished } from '../../messages/facts'
import { epoch, type TrajectoryId } from '../../messages/ids'
import { collectedVersions } from '../../runtime/collectedVersions'
import { systemEffects as fx } from '../../runtime/effects'
import { openTroupe } from '../../runtime/embed'
import { TroupeError } from '../../runtime/errors'
import { firstFailure } from '../../runtime/firstFailure'
import type { Journal } from '../../runtime/journal/journal'
import { createLog } from '../../runtime/log'
import type { RunContext } from '../../runtime/openRun'
import { recordedPath } from '../../runtime/runPaths'
import type { RecipeCode } from '../log/recipeCode'
import type { ForkPart } from './planForks'

export interface ForkedRunOptions {
  readonly context: RunContext
  readonly code: RecipeCode
  /**
   * The planned forks, in one part for each directory of weights. The parts run one after another; each part after the
   * first resumes the run.
   */
  readonly parts: readonly ForkPart[]
  /** `run.started` of the parent's run. Its tokenizer must be that of the forks' model, since they share token ids. */
  readonly parent: RunStarted
  /** Resolves with the reason if the user stops the forks; else it never resolves. */
  readonly stopped: Promise<string>
  readonly onEnded: (ended: number, of: number) => void
}

const lookEveryMs = 100
/** Milliseconds to wait beyond the recipe's rollout deadline, at which the coordinator itself fails a rollout. */
const graceMs = 30_000

/**
 * Runs the forks. Resolves when every fork has a reward, has no reward because judging failed, or has failed; or when
 * `stopped` has resolved.
 * @throws TroupeError config.other_tokenizer when the model's tokenizer is not the parent run's; replay.forks_late when
 * forks are open and none has ended for the recipe's rollout deadline plus 30 s
 */
export async function runForks(forked: ForkedRunOptions): Promise<void> {
  const all = childrenOf(forked.parts).length
  let ended = 0
  for (const [at, part] of forked.parts.entries()) {
    const isLast = at === forked.parts.length - 1
    const onEnded = (some: number) => forked.onEnded(ended + some, all)
    const stopped = await runPart({ ...forked, onEnded }, part, { resume: at > 0, isLast })
    if (stopped) return
    ended += childrenOf([part]).length
  }
}

const childrenOf = (parts: readonly ForkPart[]): readonly TrajectoryId[] =>
  parts.flatMap(({ forks }) => forks.flatMap(f => f.lineage.map(l => l.child)))

/** Runs the forks of one part. Returns true when the user stopped the run before all of them had ended. */
async function runPart(
  forked: ForkedRunOptions,
  part: ForkPart,
  { resume, isLast }: { readonly resume: boolean; readonly isLast: boolean },
): Promise<boolean> {
  const { context } = forked
  const { weights } = part
  const { config, recipe } = forked.code
  const { bus, blobs, run, files } = context
  const log = createLog('replay', { level: process.env.TROUPE_LOG ?? 'warn' })
  const { failed, fail } = firstFailure()
  const options: RunOptions = {
    ...{ run, config, bus, blobs, fx, log, resume, learns: false, acceptCode: false, role: 'all' },
    // A fork takes no task from the recipe: its task is its parent's.
    recipe: { ...recipe, config, tasks: () => Promise.reject(new RangeError('a fork draws no tasks')) },
    directory: files.root,
    modelDirectory: weights.directory,
    versions: collectedVersions(),
  }
  const troupe = await openTroupe({ bus, blobs, run, partitions: 1, fx, log, onFailed: fail })
  const scope = openScope(options, troupe, fail)
  scope.onClose('bus', () => troupe.close())
  try {
    const { journal } = troupe
    const template = config.model.from === 'directory' ? config.model.template : undefined
    const model = { directory: weights.directory, template }
    const modelDirectory = weights.directory
    const renderer = await startRenderer({ modelDirectory, ...(template === undefined ? {} : { template }), log })
    scope.onClose('renderer', () => renderer.close())
    const { digest: tokenizerDigest } = await renderer.describe()
    checkTokenizer(forked.parent, tokenizerDigest)
    await recordRunStart(journal, { ...options, partitions: 1, tokenizerDigest })
    await begin(journal, part, files.root)
    // Actors that answer commands start before the coordinator that sends them, as in a run.
    await startScheduling(scope, { claims: false })
    await startInference(scope, { model })
    await startTools(scope, 'local-tools')
    await startVerification(scope)
    await startCoordination(scope, renderer)

    const over = await Promise.race([allEnded(journal, part, forked), forked.stopped, failed])
    if (over === undefined && !isLast) return false
    const ended = over === undefined ? (['done', 'all forks have ended'] as const) : (['stopped', over] as const)
    const [outcome, reason] = ended
    const finished: RunFinished = { type: 'run.finished', at: fx.now(), run, outcome, reason, steps: 0, summary: {} }
    await journal.append([finished])
    return over !== undefined
  } finally {
    await scope.close()
  }
}

/**
 * Writes the forks' first facts. In `trajectories` the claim (`partition.claimed`) comes first: its offset is the epoch
 * of all shared facts.
 */
async function begin(journal: Journal, { weights, forks }: ForkPart, root: string): Promise<void> {
  const { directory, version, digest } = weights
  const url = recordedPath(root, directory)
  const published: WeightsPublished = {
    type: 'weights.published',
    at: fx.now(),
    version,
    step: 0,
    url,
    digest,
    bytes: 0,
  }
  await journal.append(forks.flatMap(f => f.lineage))
  await journal.append([published])
  const { offset } = await journal.appendTo(0, { type: 'partition.claimed', at: fx.now(), partition: 0, owner: 'fork' })
  const placed = (fact: TrajectoryFact): TrajectoryFact => {
    if ('epoch' in fact) return { ...fact, epoch: epoch(offset) }
    return fact.type === 'rollout.requested' ? { ...fact, at: fx.now() } : fact // the rollout's deadline counts from now
  }
  for (const { facts } of forks) await journal.append(facts.map(placed))
}

async function allEnded(journal: Journal, part: ForkPart, { code, onEnded }: ForkedRunOptions): Promise<undefined> {
  const open = new Set(childrenOf([part]))
  const all = open.size
  // The deadline starts again whenever a fork ends: the others may have waited for its slot on the engine.
  const afterMs = code.config.rollout.deadlineMs + graceMs
  let deadline = fx.elapsed() + afterMs
  let at = 0
  while (open.size > 0) {
    const entries = await journal.read('trajectories', 0, at, 1024)
    const before = open.size
    for (const { message, offset } of entries) {
      at = offset + 1
      const fact = message as TrajectoryFact
      const ends =
        fact.type === 'reward.assigned' ||
        fact.type === 'reward.failed' ||
        (fact.type === 'rollout.finished' && fact.outcome === 'failed')
      if (ends) open.delete(fact.trajectory)
    }
    if (open.size < before) {
      onEnded(all - open.size, all)
      deadline = fx.elapsed() + afterMs
    }
    if (entries.length > 0) continue
    if (fx.elapsed() > deadline) throw late(open.size, afterMs)
    await sleep(lookEveryMs)
  }
  return undefined
}

const late = (open: number, afterMs: number) =>
  new TroupeError('replay.forks_late', {
    boundary: 'engine',
    retriable: true,
    message: `${open} forks are open, and none has ended for ${afterMs / 1000} s (rollout.deadlineMs plus 30 s)`,
    hint: '`troupe why RUN`, with the name of the new run, shows what the forks wait for; `troupe replay runs` lists the runs',
  })
