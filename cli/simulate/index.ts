/**
 * `troupe simulate`: what a load would take on a fleet of engines, under each scheduling policy (DESIGN §9).
 *
 * in   an engine model and a trace        out  a JSON line a policy, or a table
 * The policies are those that run live; nothing is read from the clock, so the same files give the same figures.
 */
import { type Command, InvalidArgumentError, Option } from 'commander'
import { lowerBoundMs, type PolicyName, policies, simulate } from '../../kernels'
import { asError, TroupeError } from '../../runtime/errors'
import { wholeNumber } from '../wholeNumber'
import { readEngineModel, readTrace } from './inputs'
import { tableOf } from './table'

interface SimulateOptions {
  readonly engineModel: string
  readonly trace: string
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
  program
    .command('simulate')
    .description('predict what a load takes on a fleet of engines under each scheduling policy')
    .requiredOption('--engine-model <file>', 'JSON: sizes, rules and step times of the engine')
    .requiredOption('--trace <file>', 'JSON lines: a trajectory each')
    .addOption(
      new Option('--policy <policy>', 'the scheduling policy, or all of them')
        .choices([...names, 'all'])
        .default('all'),
    )
    .option('--engines <n>', 'how many engines', wholeNumber(1, 65_536), 1)
    .option(
      '--bound-tokens <n>',
      'what a context may grow to (default: the longest of the trace)',
      wholeNumber(1, 2 ** 31),
    )
    .option('--status-ms <ms>', 'engines report their KV this often; 0: never', atLeastZero, 1000)
    .addOption(
      new Option(
        '--priority <which>',
        'engines heed the start order of trajectories (default: for kv-headroom on vllm)',
      ).choices(['yes', 'no']),
    )
    .option('--weights-every-ms <ms>', 'new weights come this often', atLeastZero)
    .option('--weights-pause-ms <ms>', 'and pause every engine for so long', atLeastZero, 0)
    .option('--json', 'a JSON line for each policy')
    .action((options: SimulateOptions) => run(options))
}

function run(options: SimulateOptions): void {
  const model = readEngineModel(options.engineModel)
  const trace = readTrace(options.trace, model)
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
    if (options.json) process.stdout.write(`${JSON.stringify({ ...result, lowerBoundMs: bound.ms })}\n`)
    return result
  })
  if (!options.json) process.stdout.write(tableOf(results, bound))
}

/** What the kernel refuses is wrong usage. */
function refusing<T>(act: () => T): T {
  try {
    return act()
  } catch (thrown) {
    if (!(thrown instanceof RangeError)) throw thrown
    const { message } = asError(thrown)
    throw new TroupeError('config.invalid', { boundary: 'cli', retriable: false, message, cause: thrown })
  }
}

function atLeastZero(text: string): number {
  const value = Number(text)
  if (text.trim() !== '' && Number.isFinite(value) && value >= 0) return value
  throw new InvalidArgumentError('It must be a number of ms from 0.')
}
