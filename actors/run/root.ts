/**
 * Runs a whole run in this process: starts the parts of the supervision tree (tree.ts), each after those that it needs.
 *
 * in   a run's options        out  the run: its end, and how to end it early
 * Invariant: everything that is started here ends at `close` or with this process, whichever is first. Actors that
 * answer requests (scheduler, engines, tools, verifier) are started before coordinator and learner, which at a resume
 * repeat the requests that have no answer in the log; so none of these is lost.
 */
import { refuseAtStart } from '../../config'
import { refuseUnfit } from '../../config/unfit'
import type { RunId } from '../../messages/ids'
import { TroupeError } from '../../runtime/errors'
import { modelOf } from './model'
import { startCoordination } from './roles/coordination'
import { startInference } from './roles/inference'
import { startLearning } from './roles/learning'
import { startScheduling } from './roles/scheduling'
import { openRunScope } from './roles/scope'
import { startTools } from './roles/tools'
import { startVerification } from './roles/verification'
import type { Run, RunOptions } from './run'
import { endOf, recordRunStart } from './runStart'
import { startSupervisedRenderer } from './supervisedRenderer'

/**
 * Starts or resumes a run with all its roles in this process. @throws TroupeError config.invalid (`startFaults`) or
 * config.does_not_fit or config.deadline_too_short if a new run that trains must not start with this recipe,
 * config.devices if the recipe does not fit the GPUs of this process
 */
export async function startRun(given: RunOptions): Promise<Run> {
  const options: RunOptions = { ...given, role: 'all' }
  const { config, recipe, fx, partitions = 1 } = options
  if (options.learns && !options.resume) {
    refuseAtStart(config)
    refuseUnfit(config)
  }
  const { scope, root, journal, failed } = await openRunScope(options)
  const { fail } = scope
  try {
    const demonstrations = async () => (await recipe.demonstrations?.(config)) ?? []
    const model = await modelOf(config, options.modelDirectory, demonstrations, scope.troupe.disk)
    const renderer = await startSupervisedRenderer(await scope.under('coordination'), model)
    const { digest: tokenizerDigest, stopTokens } = await renderer.describe()
    await recordRunStart(journal, { ...options, partitions, tokenizerDigest })
    root.status.start(journal)
    const { next: since } = await journal.offsets('runs', 0)
    const end = await endOf(journal, `root.${fx.unique()}`, fail, since)
    scope.onClose("reader of the run's end", () => end.close())
    // Actors that answer requests start before actors that send them; an engine may still be loading its model.
    await startScheduling(scope, { claims: false })
    await startInference(scope, { model })
    await startTools(scope, 'local-tools')
    await startVerification(scope)
    await startCoordination(scope, renderer)
    const onReplaced = () => fail(takenOver(options.run))
    await startLearning(scope, { renderer, model, stopTokens, demonstrations, onReplaced })
    return { journal, finished: Promise.race([failed, end.finished]), close: () => scope.close() }
  } catch (thrown) {
    await scope.close()
    throw thrown
  }
}

/**
 * Error for a run that another process has taken over: readers of the log ignore this process's draws (batches of new
 * groups), results and steps, so it would wait for ever.
 */
function takenOver(run: RunId): TroupeError {
  return new TroupeError('bus.run_taken_over', {
    boundary: 'bus',
    retriable: true,
    message: `another process has taken over run '${run}': records that this process writes are ignored from now on`,
    hint: 'check whether the other process still runs; if it does, leave the run to it, else continue the run with --resume',
  })
}
