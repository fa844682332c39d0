/**
 * Runs one role of a run in this process, on a bus that the run's processes share.
 *
 * in   a role, the run's recipe        out  that role, running until the run is over
 * Invariant: a role that exists once in a run (scheduler, learner) is run by the elected process, and the others stand
 * by; of every other role, any number of processes share the work. Only the learner records the run's start
 * (`run.started`) and, if the recipe names no model directory, makes the model.
 */
import { hostname } from 'node:os'
import type { Renderer } from '../../backends/renderer/renderer'
import { refuseAtStart } from '../../config'
import { refuseUnfit } from '../../config/unfit'
import { runsCode } from '../tools/runTools'
import { type ModelOnDisk, modelOf, modelThere } from './model'
import { startCoordination } from './roles/coordination'
import { startInference } from './roles/inference'
import { lead } from './roles/lead'
import { startLearning } from './roles/learning'
import { startScheduling } from './roles/scheduling'
import { openRunScope, openScope, type Root, type Scope } from './roles/scope'
import { startTools } from './roles/tools'
import { startVerification } from './roles/verification'
import type { Role, Run, RunOptions } from './run'
import { checkCode, checkEnvironment, checkRecipe, checkTokenizer, endOf, recordRunStart, startOf } from './runStart'
import { startSupervisedRenderer } from './supervisedRenderer'

/**
 * Joins a run. Resolves when the role has been started; for `learner` and `scheduler`, when this process is elected or
 * stands by; without starting the role if the run is over. A role other than `learner` expects that the caller has
 * waited for `run.started`.
 */
export async function joinRun(options: RunOptions & { readonly role: Exclude<Role, 'all'> }): Promise<Run> {
  const { scope, root, journal, failed } = await openRunScope(options)
  const {
    fail,
    troupe: { fx },
  } = scope
  try {
    const resumes = options.resume && options.role === 'learner'
    const since = resumes ? (await journal.offsets('runs', 0)).next : 0
    const end = await endOf(journal, `root.${fx.unique()}`, fail, since)
    scope.onClose("reader of the run's end", () => end.close())
    const finished = Promise.race([failed, end.finished])
    if (!end.over) await take(options, scope, root)
    return { journal, finished, close: () => scope.close() }
  } catch (thrown) {
    await scope.close()
    throw thrown
  }
}

async function take(
  options: RunOptions & { readonly role: Exclude<Role, 'all'> },
  scope: Scope,
  root: Root,
): Promise<void> {
  const { fx } = options
  if (options.role !== 'learner') root.status.start(scope.troupe.journal)
  // Names of engines and executors are recorded in the log, so they contain the host's name (for people who read the
  // log) and a random part (to be unique).
  const name = `${hostname().replaceAll(/[^A-Za-z0-9._-]/g, '-')}-${fx.unique().slice(0, 8)}`
  switch (options.role) {
    case 'learner': {
      let resumes = options.resume
      scope.onClose(
        'election of the learner',
        await lead(options, 'learner', scope.fail, async (mayAct, again) => {
          const part = openScope(options, scope.troupe, scope.fail, mayAct, root)
          if (await beginLearning(part, resumes, again)) resumes = false
          root.status.start(scope.troupe.journal)
          return part
        }),
      )
      return
    }
    case 'scheduler':
      scope.onClose(
        'election of the scheduler',
        await lead(options, 'scheduler', scope.fail, async mayAct => {
          const part = openScope(options, scope.troupe, scope.fail, mayAct, root)
          await startScheduling(part, { claims: true })
          return part
        }),
      )
      return
    case 'inference':
      return startInference(scope, { model: modelThere(options.config, options.modelDirectory), name })
    case 'tools':
      // Tools that come from an embedding program do not run code in this host's interpreter.
      if (options.tools === undefined && runsCode(options)) {
        await checkEnvironment(scope.troupe.journal, options.config, options.acceptCode)
      }
      return startTools(scope, name)
    case 'verifier':
      return startVerification(scope)
    case 'coordinator': {
      const model = modelThere(options.config, options.modelDirectory)
      const { renderer, digest } = await rendererOf(scope, model)
      const started = await startOf(scope.troupe.journal)
      if (started !== undefined) checkTokenizer(started, digest)
      return startCoordination(scope, renderer)
    }
  }
}

/**
 * Records run.started if the log has none, or run.resumed if `resumes`; then starts the learner and resolves with true.
 * If another process was elected meanwhile, it records and starts nothing, and resolves with false.
 */
async function beginLearning(scope: Scope, resumes: boolean, onReplaced: () => void): Promise<boolean> {
  const { options, troupe } = scope
  const { config, recipe, partitions = 1 } = options
  const lookUp = async () => {
    const started = await startOf(troupe.journal)
    if (started === undefined) return undefined
    checkCode(started, options.acceptCode)
    // A resuming process may have a different recipe, also when it is elected again.
    if (!options.resume) checkRecipe(started, config)
    return started
  }
  try {
    const demonstrations = async () => (await recipe.demonstrations?.(config)) ?? []
    await lookUp() // throws if the run was started with other code or another recipe, before a model is made
    const model = await modelOf(config, options.modelDirectory, demonstrations, troupe.disk)
    const { renderer, digest, stopTokens } = await rendererOf(scope, model)
    // Making the model took time, in which another process may have been elected and started the run.
    const started = await lookUp()
    if (!(await scope.mayAct())) return false
    if (started === undefined || resumes) {
      const resume = started !== undefined
      if (options.learns && !resume) {
        refuseAtStart(config)
        refuseUnfit(config)
      }
      await recordRunStart(troupe.journal, { ...options, resume, partitions, tokenizerDigest: digest })
    } else checkTokenizer(started, digest)
    await startLearning(scope, { renderer, model, stopTokens, demonstrations, onReplaced })
    return true
  } catch (thrown) {
    await scope.close()
    throw thrown
  }
}

async function rendererOf(
  scope: Scope,
  model: ModelOnDisk,
): Promise<{ readonly renderer: Renderer; readonly digest: string; readonly stopTokens: readonly number[] }> {
  const renderer = await startSupervisedRenderer(await scope.under('coordination'), model)
  const { digest, stopTokens } = await renderer.describe()
  return { renderer, digest, stopTokens }
}
