/**
 * The root: one run's supervision tree, wired. The only place, with cli/, where things are put together.
 *
 *   root ── engines (a process each) ── inference
 *        ├─ trainer (a process)      ── learner
 *        ├─ sandbox                  ── tool executor, verifier
 *        ├─ renderer (a process)     ── curriculum, coordinator
 *        └─ scheduler, dispatcher, evaluator, an owner (coordinator + grouper) a partition
 *
 * Each part is a role (roles/), here all in one process; `joinRun` starts one of them in a process of its own.
 * Invariant: everything that it starts ends with it, or with this process, whichever is first. Answerers are up before
 * askers, so that what a refold asks again is heard.
 */

import { startRenderer } from '../../backends/renderer/rendererProcess'
import type { RunId } from '../../messages/ids'
import { TroupeError } from '../../runtime/errors'
import { announce, endOf } from './announce'
import { modelOf } from './model'
import { startCoordination } from './roles/coordination'
import { startInference } from './roles/inference'
import { startLearning } from './roles/learning'
import { startScheduling } from './roles/scheduling'
import { openRunScope } from './roles/scope'
import { startTools } from './roles/tools'
import { startVerification } from './roles/verification'
import type { Run, RunOptions } from './run'

export async function startRun(given: RunOptions): Promise<Run> {
  const options: RunOptions = { ...given, role: 'all' }
  const { config, recipe, fx, log, partitions = 1 } = options
  const { scope, journal, failed } = await openRunScope(options)
  const { fail } = scope
  try {
    const demonstrations = async () => (await recipe.demonstrations?.(config)) ?? []
    const model = await modelOf(config, options.modelDirectory, demonstrations)
    const { directory: modelDirectory, template } = model
    const renderer = await startRenderer({ modelDirectory, ...(template === undefined ? {} : { template }), log })
    scope.onClose(() => renderer.close())
    const { digest: tokenizerDigest, stopTokens } = await renderer.describe()
    await announce(journal, { ...options, partitions, tokenizerDigest })
    const { next: since } = await journal.offsets('runs', 0)
    const end = await endOf(journal, `root.${fx.unique()}`, fail, since)
    scope.onClose(() => end.close())
    // Answerers before askers.
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

/** What this process draws, finds out and trains from then on is heard by nobody: it would wait for ever. */
function takenOver(run: RunId): TroupeError {
  return new TroupeError('bus.run_taken_over', {
    boundary: 'bus',
    retriable: true,
    message: `another process has taken over the run '${run}': nothing that this one says of it counts any more`,
    hint: 'look whether that one still runs, and leave the run to it; go on with --resume where it does not',
  })
}
