/**
 * `troupe train RECIPE --dry-run`: makes one real step on a random 2-layer model of the recipe's kind of architecture,
 * through the whole system and without a GPU, and estimates the real run.
 *
 * in   a recipe
 * out  the reduced fields, the step, the estimates. Exit code 0 if the reduced run ended with outcome `done` and made
 *      its step (a recipe with train.steps 0 has none), and the estimate finds that the recipe fits its hardware and
 *      deadlines (not asked of a model below 100e6 parameters in a recipe without a `hardware` section)
 * Invariant: trainer, renderer, sandbox, verifier, scheduler and bus are those of a run; the engine is the local one. A
 * dry run that is not killed removes its files and ends its processes.
 */
import { existsSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { startRun } from '../../actors/run/root'
import { type HardwareConfig, type RecipeConfig, recipeSchema } from '../../config'
import { architectureOf } from '../../config/estimate/architecture'
import type { Estimate } from '../../config/estimate/estimate'
import type { StepTallied } from '../../messages/facts'
import { runId } from '../../messages/ids'
import type { LoadedRecipe } from '../../recipes/load/loadRecipe'
import { progress, type StepReport } from '../../replay/learning/progress'
import { type Take, watchRun } from '../../replay/log/watchRun'
import { memoryBlobs } from '../../runtime/bus/blobs'
import { openMemoryBus } from '../../runtime/bus/memory/memoryBus'
import { collectedVersions } from '../../runtime/collectedVersions'
import { systemEffects } from '../../runtime/effects'
import { asError } from '../../runtime/errors'
import { createLog } from '../../runtime/log'
import { parseConfig } from '../../runtime/settings/resolveConfig'
import { temporaryDirectory } from '../../sandbox/temporaryDirectory'
import { faultText } from '../check/checkRecipe'
import type { Fault } from '../check/fault'
import { runEnd } from '../io/runEnd'
import { stopSignals } from '../io/signals'
import { duration, reportUnfollowed } from '../io/terminal'
import { startAgents } from '../startAgents'
import { estimateOf, estimateText, isTiny, tinyText } from './estimateReport'
import { type Reduced, reduce } from './reduced'

const deadlineMs = 600_000
const plainTemplate = join(__dirname, '../../recipes/templates/hermes.jinja')

interface Outcome {
  readonly outcome: string
  readonly reason: string
  readonly step: StepReport | undefined
  readonly tally: StepTallied | undefined
  readonly seconds: number
}

/**
 * Makes the dry run and prints its report. `lacking`: what this machine lacks for the run itself. Returns the exit
 * code.
 */
export async function dryRun(
  { recipe, config: { value: config } }: LoadedRecipe,
  json: boolean,
  lacking: readonly Fault[] = [],
): Promise<number> {
  const architecture = architectureOf(config)
  const { hardware, estimated } = estimateOf(config)
  const reduced = reduce(config, architecture, templateOf(config))
  const tasks = await recipe.tasks(config).then(
    source => ({
      found: true,
      said: source.size === undefined ? 'an unlimited number of tasks' : `${source.size} tasks`,
    }),
    thrown => ({ found: false, said: asError(thrown).message }),
  )
  if (!json) {
    say(
      `dry run of ${config.name}: a random model of 2 layers of ${String(architecture.model_type)}, one step on this machine's CPU`,
    )
    for (const { path, from, to } of reduced.changes) say(`  ${path}: ${shown(from)} → ${shown(to)}`)
    say(`the recipe's own data: ${tasks.said}${tasks.found ? '' : ' (the step uses problems of the dry run)'}`)
  }
  const ran = await oneStep(reduced)
  if (json) {
    const { changes } = reduced
    const line = {
      type: 'dry-run',
      recipe: config.name,
      ...ran,
      reduced: changes,
      data: tasks,
      ...(lacking.length === 0 ? {} : { lacking }),
      hardware,
      estimate: estimated,
    }
    process.stdout.write(`${JSON.stringify(line)}\n`)
  } else {
    process.stdout.write(report(config, hardware, estimated, ran))
    if (lacking.length > 0)
      process.stdout.write(`this machine cannot run it yet:\n  ${lacking.map(faultText).join('\n  ')}\n`)
  }
  const isMade = ran.outcome === 'done' && (ran.step !== undefined || config.train.steps === 0)
  return isMade && (isTiny(config, estimated) || estimated.faults.length === 0) ? 0 : 1
}

async function oneStep({ recipe, config: input }: Reduced): Promise<Outcome> {
  const config = parseConfig(recipeSchema, input, 'the reduced recipe')
  const directory = temporaryDirectory('dry')
  const begun = systemEffects.elapsed()
  const signals = stopSignals()
  const bus = openMemoryBus()
  const state = progress()
  let tally: StepTallied | undefined
  let run: Awaited<ReturnType<typeof startRun>> | undefined
  try {
    run = await startRun({
      ...{ run: runId('dry-run'), recipe, config, directory, modelDirectory: join(directory, 'model'), bus },
      ...{ blobs: memoryBlobs(), resume: false, learns: true, acceptCode: false, fx: systemEffects },
      log: createLog('troupe', { level: process.env.TROUPE_LOG ?? 'warn' }),
      versions: collectedVersions(),
      startAgents,
    })
    const count: Take = message => {
      state.take(message)
      if (message.type === 'step.tallied') tally = message
    }
    const stop = await watchRun(run.journal, count, reportUnfollowed)
    const ended = await runEnd(run.finished, signals, deadlineMs, 'the step')
    await stop()
    const seconds = (systemEffects.elapsed() - begun) / 1000
    return { ...ended, step: state.steps[0], tally, seconds }
  } finally {
    signals.release()
    await run?.close()
    await bus.close()
    rmSync(directory, { recursive: true, force: true })
  }
}

/**
 * Path of the recipe's own template when the file exists, so that the dry run tries it too; else of a plain template.
 */
function templateOf({ model }: RecipeConfig): string {
  return model.template !== undefined && existsSync(model.template) ? model.template : plainTemplate
}

function report(config: RecipeConfig, hardware: HardwareConfig, estimated: Estimate, ran: Outcome): string {
  const { step } = ran
  const made =
    step === undefined
      ? `no step: ${ran.outcome}, ${ran.reason}`
      : [
          `one step in ${duration(ran.seconds)}: ${step.rollouts} rollouts of ${step.meanTokens.toFixed(0)} tokens and ${step.meanTurns.toFixed(1)} turns`,
          `pass@1 ${step.passAt1.toFixed(2)}, ${step.groupsSelected} of ${step.groupsSelected + step.groupsRejected} groups kept`,
          `loss ${(step.metrics.loss ?? Number.NaN).toFixed(4)}, gradient ${(step.metrics.gradNorm ?? Number.NaN).toFixed(4)}`,
        ].join('; ')
  const text = isTiny(config, estimated)
    ? tinyText(config.name, estimated)
    : estimateText(config.name, hardware, estimated)
  return `${made}\n\n${text}`
}

const shown = (value: unknown) =>
  value === undefined ? '–' : typeof value === 'string' ? value : JSON.stringify(value)
const say = (text: string) => process.stderr.write(`${text}\n`)
