/**
 * `troupe simulate`: predicts how long a load takes on a fleet of engines under each scheduling policy.
 *
 * in   an engine model and a trace, or a recorded run    out  a JSON line per policy, or a table; `--picture` an SVG
 * in   `--calibrate RUN`
 * out  the engine model that fits the run's turns, with its error; `--write-trace` its load
 * The policies are the code that live runs use. No clock is read, so the same files give the same figures.
 */
import { type Command, Option } from 'commander'
import { readEngineModel } from '../../backends/engines/simulated/engineModelFile'
import {
  calibrate,
  type EngineModel,
  lowerBoundMs,
  type PolicyName,
  policies,
  simulate,
  type TracedTrajectory,
} from '../../kernels'
import { asError, TroupeError } from '../../runtime/errors'
import { openRun } from '../../runtime/openRun'
import { svgOf } from '../io/picture'
import { percent } from '../io/terminal'
import { readyOut, writeOut } from '../io/writeOut'
import { withBus } from '../options/busOptions'
import { numberFrom, wholeNumber } from '../options/readers'
import { readTrace } from './inputs'
import { pictureOf } from './picture'
import { type RecordedLoad, readLoad, sizesOf } from './recorded'
import { tableOf } from './table'

interface SimulateOptions {
  readonly engineModel?: string
  readonly trace?: string
  readonly run?: string
  readonly picture?: string
  readonly calibrate?: string
  readonly writeTrace?: string
  readonly maxBatchTokens: number
  readonly bus: string
  readonly policy: PolicyName | 'all'
  readonly engines: number
  readonly boundTokens?: number
  readonly statusMs: number
  readonly priority?: 'yes' | 'no'
  readonly weightsEveryMs?: number
  readonly weightsPauseMs: number
  readonly json?: boolean
}

const names = Object.keys(policies) as PolicyName[]

export function registerSimulate(program: Command): void {
  const command = program
    .command('simulate')
    .description('predict how long a load takes on a fleet of engines under each scheduling policy')
    .option('--engine-model <file>', 'JSON file with sizes, rules and step times of the engine')
    .option('--trace <file>', "the load: JSON lines, one per trajectory, or a CSV of Azure's traces")
    .option(
      '--run <run>',
      'instead of --trace: simulate the load of a recorded run, on --engine-model or on engines fitted to the run',
    )
    .option('--picture <file>', 'draw all policies in one picture (SVG)')
    .addOption(
      new Option('--policy <policy>', 'scheduling policy to simulate, or all of them')
        .choices([...names, 'all'])
        .default('all'),
    )
    .option('--engines <n>', 'number of engines', wholeNumber(1, 65_536), 1)
    .option(
      '--bound-tokens <n>',
      'longest context in tokens that a recipe would allow (default: the longest of the trace)',
      wholeNumber(1, 2 ** 31),
    )
    .option('--status-ms <ms>', "interval between the engines' KV reports; 0: no reports", numberFrom(0), 1000)
    .addOption(
      new Option(
        '--priority <which>',
        'yes: engines admit and preempt turns in the start order of their trajectories (default: yes for kv-headroom on vllm, else no)',
      ).choices(['yes', 'no']),
    )
    .option('--weights-every-ms <ms>', 'interval between weight updates of the engines', numberFrom(0))
    .option('--weights-pause-ms <ms>', 'how long a weight update pauses every engine', numberFrom(0), 0)
    .option('--json', 'print a JSON line for each policy')
    .option(
      '--calibrate <run>',
      'write the engine model that fits a recorded run to the file of --engine-model (default: to stdout)',
    )
    .option('--write-trace <file>', "with --calibrate: write the run's load to this file, as a trace")
    .option(
      '--max-batch-tokens <n>',
      'most tokens that one step of a fitted engine computes',
      wholeNumber(1, 2 ** 24),
      8192,
    )
  withBus(command).action((options: SimulateOptions) => {
    refuseIdle(options, option => command.getOptionValueSource(option) === 'cli')
    return options.calibrate === undefined ? run(options) : calibrateRun(options, options.calibrate)
  })
}

/** Options of simulations. A calibration refuses them: they have no effect on it. */
const ofSimulations = [
  ...(['trace', 'run', 'picture', 'policy', 'engines', 'boundTokens', 'statusMs', 'priority'] as const),
  ...(['weightsEveryMs', 'weightsPauseMs'] as const),
]

/** Refuses options that have no effect in combination with the given ones. @throws TroupeError cli.wrong_usage */
function refuseIdle(options: SimulateOptions, isGiven: (option: keyof SimulateOptions) => boolean): void {
  const nameOf = (option: string): string => `--${option.replace(/[A-Z]/g, letter => `-${letter.toLowerCase()}`)}`
  const needs = (option: keyof SimulateOptions, other: string): TroupeError =>
    usage(`${nameOf(option)} has no effect without ${other}`)
  if (options.calibrate !== undefined) {
    const idle = ofSimulations.find(isGiven)
    if (idle !== undefined) throw usage(`${nameOf(idle)} has no effect with --calibrate: give one of the two`)
    return
  }
  if (options.trace !== undefined && options.run !== undefined)
    throw usage('--trace and --run cannot be combined: give one of them')
  if (isGiven('writeTrace')) throw needs('writeTrace', '--calibrate')
  if (options.weightsEveryMs === 0)
    throw usage('--weights-every-ms must be above 0; leave it out to simulate without weight updates')
  if (isGiven('weightsPauseMs') && options.weightsEveryMs === undefined)
    throw needs('weightsPauseMs', '--weights-every-ms')
  if (isGiven('maxBatchTokens') && (options.run === undefined || options.engineModel !== undefined)) {
    throw usage(
      '--max-batch-tokens has no effect when no engine is fitted: give it with --calibrate, or with --run and no --engine-model',
    )
  }
}

async function run(options: SimulateOptions): Promise<void> {
  readyOut(options.picture)
  const { model, trace, recorded } = options.run === undefined ? ofFiles(options) : await ofRun(options, options.run)
  const { engines, boundTokens, statusMs, weightsEveryMs, weightsPauseMs } = options
  const bound = lowerBoundMs(trace, model, engines)
  const wanted = options.policy === 'all' ? names : [options.policy]
  const results = wanted.map(policy => {
    const result = refusing(() =>
      simulate(trace, {
        model,
        engines,
        policy,
        statusMs,
        ...(boundTokens === undefined ? {} : { boundTokens }),
        ...(options.priority === undefined ? {} : { priority: options.priority === 'yes' }),
        ...(weightsEveryMs ? { weights: { everyMs: weightsEveryMs, pauseMs: weightsPauseMs } } : {}),
      }),
    )
    if (options.json) process.stdout.write(`${JSON.stringify({ ...result, lowerBoundMs: bound.ms, ...recorded })}\n`)
    return result
  })
  if (!options.json) process.stdout.write(tableOf(results, bound) + saidOf(recorded))
  if (options.picture !== undefined) writeOut(options.picture, [await svgOf(pictureOf(results, bound))])
}

interface Load {
  readonly model: EngineModel
  readonly trace: readonly TracedTrajectory[]
  readonly recorded?: Recorded
}

/** Measured durations of the recorded run itself, under the scheduling policy that it used, in ms. */
interface Recorded {
  readonly recordedMakespanMs: number
  readonly recordedTtftMsMean: number
}

const saidOf = (recorded: Recorded | undefined): string =>
  recorded === undefined
    ? ''
    : `the run itself: makespan ${(recorded.recordedMakespanMs / 1000).toFixed(1)} s, first token ${(recorded.recordedTtftMsMean / 1000).toFixed(2)} s\n`

function ofFiles({ engineModel, trace: traceFile }: SimulateOptions): Load {
  if (engineModel === undefined || traceFile === undefined)
    throw usage(
      'the simulation lacks an engine model or a load: give --engine-model F.json and --trace F.jsonl, or --run RUN',
    )
  const model = readEngineModel(engineModel)
  const { trace, empty } = readTrace(traceFile, model)
  if (empty > 0) process.stderr.write(`${empty} requests of the trace generated no tokens and are left out\n`)
  return { model, trace }
}

/** Reads a recorded run as the load of a what-if: arrivals, lengths and tool times as the log has them. */
async function ofRun(options: SimulateOptions, name: string): Promise<Load> {
  const given = options.engineModel === undefined ? undefined : readEngineModel(options.engineModel)
  const load = await loadOf(options, name)
  const { trace, makespanMs, ttftMsMean } = load
  return {
    model: given ?? fitTo(load, options, name).model,
    trace,
    recorded: { recordedMakespanMs: makespanMs, recordedTtftMsMean: ttftMsMean },
  }
}

async function loadOf({ bus }: SimulateOptions, name: string): Promise<RecordedLoad> {
  const context = await openRun(bus, name, 'read')
  return readLoad(context.journal).finally(() => context.bus.close())
}

/** Fits the engine model to a run's turns. */
function fitTo(load: RecordedLoad, { maxBatchTokens }: SimulateOptions, name: string) {
  const [joined] = load.joined
  if (joined === undefined) throw usage(`no engine model can be fitted to run '${name}': no engine joined it`)
  const fit = refusing(() => calibrate(load.measured, maxBatchTokens))
  const model: EngineModel = {
    name: `${name}-${joined.engine}`,
    ...sizesOf(joined),
    maxBatchTokens,
    stepMs: fit.stepMs,
  }
  return { fit, model }
}

/**
 * Writes the fitted engine model and prints its error: per turn, and for the whole run, which is simulated with the
 * fitted model.
 */
async function calibrateRun(options: SimulateOptions, name: string): Promise<void> {
  readyOut(options.engineModel)
  readyOut(options.writeTrace)
  const load = await loadOf(options, name)
  const { fit, model } = fitTo(load, options, name)
  const { turns, decodeError, firstTokenError } = fit
  const engines = new Set(load.measured.map(turn => turn.engine)).size
  const result = refusing(() => simulate(load.trace, { model, engines, policy: 'kv-headroom' }))
  const { makespanMs, ttftMsMean } = load
  const report = {
    ...{ run: name, engines, turns, decodeError, firstTokenError },
    ...{ makespanMs, simulatedMakespanMs: result.makespanMs, makespanError: result.makespanMs / makespanMs - 1 },
    ...{ ttftMsMean, simulatedTtftMsMean: result.ttftMsMean },
  }
  if (options.engineModel !== undefined) writeOut(options.engineModel, [`${JSON.stringify(model, null, 2)}\n`])
  if (options.writeTrace !== undefined) {
    writeOut(
      options.writeTrace,
      load.trace.map(line => `${JSON.stringify(line)}\n`),
    )
  }
  const text = [
    `${turns} turns on ${engines} engine${engines === 1 ? '' : 's'} fitted; mean error of a turn:`,
    `${percent(decodeError)} of the time of its further tokens, ${percent(firstTokenError)} of the time to its first token`,
    `makespan: recorded ${(makespanMs / 1000).toFixed(1)} s, simulated ${(result.makespanMs / 1000).toFixed(1)} s`,
    `mean time to the first token: recorded ${ttftMsMean.toFixed(0)} ms, simulated ${result.ttftMsMean.toFixed(0)} ms\n`,
  ].join('\n')
  if (options.json) process.stdout.write(`${JSON.stringify({ ...report, model })}\n`)
  else process.stdout.write(options.engineModel === undefined ? `${text}${JSON.stringify(model, null, 2)}\n` : text)
}

function usage(message: string): TroupeError {
  return new TroupeError('cli.wrong_usage', {
    boundary: 'cli',
    retriable: false,
    message,
    hint: 'see troupe simulate --help',
  })
}

/** Maps the RangeErrors of the simulator's input checks to config.invalid. */
function refusing<T>(act: () => T): T {
  try {
    return act()
  } catch (thrown) {
    if (!(thrown instanceof RangeError)) throw thrown
    const { message } = asError(thrown)
    throw new TroupeError('config.invalid', { boundary: 'cli', retriable: false, message, cause: thrown })
  }
}
