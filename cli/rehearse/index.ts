/**
 * `troupe rehearse RECIPE`: runs a recipe at its full size with simulated engines, at high speed, without a GPU.
 *
 * in   a recipe
 * out  a report: rollouts lost, deadlines, refills, stages, checkpoints, memory, bytes of log, the real run's duration;
 *      exit code 0 when the run's outcome is `done` and no rollout was lost or left open
 */
import { existsSync, mkdirSync, readdirSync, rmSync } from 'node:fs'
import { join, resolve } from 'node:path'
import type { Command } from 'commander'
import type { HardwareConfig, RecipeConfig } from '../../config'
import { architectureOf } from '../../config/estimate/architecture'
import { plannedEngine } from '../../config/estimate/engineModel'
import { reductionOf } from '../../config/estimate/reduction'
import { sizesOf } from '../../config/estimate/sizes'
import { timesOf } from '../../config/estimate/time'
import { tokensOf } from '../../config/estimate/tokens'
import { hardwareSection } from '../../config/sections/hardware'
import { loadRecipe } from '../../recipes/load/loadRecipe'
import { TroupeError } from '../../runtime/errors'
import { temporaryDirectory } from '../../sandbox/temporaryDirectory'
import { duration } from '../io/terminal'
import { numberFrom, wholeNumber } from '../options/readers'
import { repeatable } from '../options/repeatable'
import { rehearse, writeEngineModel } from './rehearsal'
import { rehearsed } from './rehearsed'
import { realRun, reportOf } from './report'

interface Options {
  readonly set: readonly string[]
  readonly steps: number
  readonly allStages?: boolean
  readonly speed: number
  readonly trainerTokens: number
  readonly dir?: string
  readonly json?: boolean
}

/**
 * Highest speed of the simulated clock. Actors tick at most four times a second of real time; beyond 20, two ticks
 * would lie more than 5 simulated seconds apart, and the actors would take the process for suspended in between.
 */
const highestSpeed = 20
/**
 * Upper bound on the tokens that the small model computes of each sequence: a step of 8,192 sequences takes about a
 * minute on two cores.
 */
const usualTrainerTokens = 64
const plainTemplate = join(__dirname, '../../recipes/templates/hermes.jinja')

export function registerRehearse(program: Command): void {
  program
    .command('rehearse <recipe>')
    .description("run a recipe's full size with simulated engines and a small model, and report what happened")
    .option('--set <path=value>', 'override a field of the recipe (repeatable)', repeatable, [])
    .option('--steps <n>', 'steps to rehearse; with --all-stages, steps of each stage', wholeNumber(1, 2 ** 31), 1)
    .option('--all-stages', 'shorten every stage to --steps steps, so that every change of stage happens')
    .option(
      '--speed <factor>',
      `highest speed of simulated time, in multiples of real time, at most ${highestSpeed}`,
      numberFrom(0.1),
      highestSpeed,
    )
    .option(
      '--trainer-tokens <n>',
      'upper bound on the tokens that the small model computes of each sequence',
      wholeNumber(2, 2 ** 31),
      usualTrainerTokens,
    )
    .option('--dir <directory>', "keep the rehearsal's log and files in this directory, which must be new or empty")
    .option('--json', 'print the report as one line of JSON')
    .action(async (recipe: string, options: Options) => {
      process.exitCode = await run(recipe, options)
    })
}

async function run(name: string, options: Options): Promise<number> {
  const config = loadRecipe(name, options.set).config.value
  const architecture = architectureOf(config)
  const hardware: HardwareConfig = config.hardware ?? hardwareSection.parse({})
  const sizes = sizesOf(config, architecture, hardware)
  const model = plannedEngine(sizes)
  const count = sizes.engines
  const directory = options.dir === undefined ? temporaryDirectory('rehearsal') : made(options.dir)
  const engineModelFile = join(directory, 'engine-model.json')
  try {
    writeEngineModel(engineModelFile, model)
    const plan = rehearsed(config, architecture, {
      ...{ steps: options.steps, allStages: options.allStages === true, engines: count, engineModelFile },
      template: templateOf(config),
    })
    const say = (text: string) => void process.stderr.write(`${text}\n`)
    say(`rehearsal of ${config.name}: ${count} simulated engines of ${hardware.name}, a random model of 2 layers`)
    const ran = await rehearse({
      ...{ rehearsed: plan, model, directory, trainerTokens: options.trainerTokens },
      speed: Math.min(options.speed, highestSpeed),
      onProgress: ({ rollouts, turns, steps, evaluations }, clock) =>
        say(
          `${duration(clock.realSeconds)}: ${duration(clock.simulatedSeconds)} simulated; ${rollouts.rewarded} of ${rollouts.requested} rollouts, ${turns.completed} turns, ${rollouts.lost} lost; ${steps.completed} steps, ${evaluations} evaluations`,
        ),
    })
    const times = timesOf(sizes, tokensOf(sizes), reductionOf(sizes).value)
    const real = realRun(config, ran, times.training.value)
    if (options.json) {
      const line = {
        type: 'rehearsal',
        recipe: config.name,
        ...ran,
        real,
        changes: plan.changes,
        engines: count,
        engineModel: model,
      }
      process.stdout.write(`${JSON.stringify(line)}\n`)
    } else process.stdout.write(reportOf(config, plan.changes, ran, real))
    const { lost, open } = ran.tallied.rollouts
    return ran.outcome === 'done' && lost + open === 0 ? 0 : 1
  } finally {
    if (options.dir === undefined) rmSync(directory, { recursive: true, force: true })
  }
}

/**
 * Returns the path of the recipe's chat template, so that prompts have the same form as in the real run; the path of
 * the plain Hermes template if the recipe names none or its file is missing.
 */
function templateOf({ model }: RecipeConfig): string {
  return model.template !== undefined && existsSync(model.template) ? model.template : plainTemplate
}

function made(directory: string): string {
  const path = resolve(directory)
  mkdirSync(path, { recursive: true })
  if (readdirSync(path).length === 0) return path
  throw new TroupeError('cli.directory_not_empty', {
    boundary: 'cli',
    retriable: false,
    message: `--dir ${path} has files: a rehearsal needs a directory that is new or empty`,
    hint: 'name another directory, or remove what an earlier rehearsal left there',
  })
}
