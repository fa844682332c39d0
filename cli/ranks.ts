/**
 * `troupe ranks RECIPE --node K`: runs the trainer's ranks on one host besides the learner's, for a recipe with
 * `train.nodes` above 1.
 *
 * in   the learner's recipe and overrides, the model directory
 * out  ranks that join those of the learner's host, and join again after each restart of the trainer; stderr: progress
 * Invariant: the process runs until a signal ends it, since the learner may restart its trainer at any time. It ends
 * with exit code 1 after `maxFailedStarts` failed starts in a row.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type { Command } from 'commander'
import { trainerOptionsOf } from '../backends/trainer/recipeOptions'
import { startTrainerHost } from '../backends/trainer/trainerHost'
import { type RecipeConfig, refuseWithoutRendezvous } from '../config'
import { timeoutsOf } from '../config/estimate/timeouts'
import { loadRecipe } from '../recipes/load/loadRecipe'
import { asError, TroupeError } from '../runtime/errors'
import { createLog } from '../runtime/log'
import { stopSignals } from './io/signals'
import { wholeNumber } from './options/readers'
import { repeatable } from './options/repeatable'

interface RanksOptions {
  readonly node: number
  readonly model?: string
  readonly waitMs: number
  readonly set: string[]
}

/**
 * Failed starts in a row that end the process; more than 1, since a restart of the learner's trainer fails a start too.
 */
const maxFailedStarts = 5
/** Milliseconds between the end of the ranks and their next start, in which the learner's host ends its own ranks. */
const restMs = 2000

export function registerRanks(program: Command): void {
  program
    .command('ranks <recipe>')
    .description("run the trainer's ranks of one further host (train.nodes)")
    .requiredOption('--node <k>', "number of this host, from 1; the learner's is 0", wholeNumber(1, 127))
    .option('--model <dir>', "model directory that the run begins with (default: the recipe's model.path)")
    .option(
      '--wait-ms <ms>',
      'deadline for the ranks of all hosts to meet; after it they are started again',
      wholeNumber(1000, 86_400_000),
      1_800_000,
    )
    .option('--set <path=value>', "override a field of the recipe, as for the learner's process", repeatable, [])
    .action(async (name: string, options: RanksOptions) => {
      process.exitCode = await runRanks(loadRecipe(name, options.set).config.value, options)
    })
}

async function runRanks(config: RecipeConfig, options: RanksOptions): Promise<number> {
  const { train, model } = config
  const { node } = options
  const modelDirectory = options.model ?? (model.from === 'directory' ? model.path : undefined)
  if (train.nodes === 1)
    throw invalid('train.nodes is 1: the learner starts all ranks itself', 'set train.nodes to the number of hosts')
  if (node >= train.nodes)
    throw invalid(
      `--node is ${node}, but the hosts of train.nodes ${train.nodes} are 0 to ${train.nodes - 1}`,
      `give --node from 1 to ${train.nodes - 1}`,
    )
  refuseWithoutRendezvous(config)
  if (modelDirectory === undefined)
    throw invalid(
      'the model directory is not known: the recipe begins with random weights, which the learner makes',
      'name the directory that the learner wrote: --model DIR',
    )
  const own = train.ranks / train.nodes
  const what = `ranks ${node * own} to ${(node + 1) * own - 1} of ${train.ranks}`
  const say = (text: string) => process.stderr.write(`${what}: ${text}\n`)
  const signals = stopSignals()
  const stopping = new AbortController()
  signals.stopped.then(() => stopping.abort())
  const log = createLog('troupe')
  try {
    let failedStarts = 0
    while (!stopping.signal.aborted) {
      say(`waiting for the other hosts at ${train.rendezvous}`)
      const { rankWaitMs: rankTimeoutMs } = timeoutsOf(config)
      const settings = {
        ...trainerOptionsOf(config),
        rankTimeoutMs,
        modelDirectory,
        node,
        log,
        signal: stopping.signal,
      }
      try {
        const ranks = await startTrainerHost({ ...settings, startTimeoutMs: options.waitMs })
        failedStarts = 0
        say('ready')
        const ended = await Promise.race([ranks.lost, signals.stopped])
        await ranks.close()
        if (typeof ended !== 'string') say(`ended, and are started again: ${firstLine(ended.message)}`)
      } catch (thrown) {
        const error = asError(thrown)
        if (stopping.signal.aborted) break
        failedStarts++
        if (failedStarts === maxFailedStarts) throw error
        say(`not started, and are started again: ${firstLine(error.message)}`)
      }
      await sleep(restMs, undefined, { signal: stopping.signal }).catch(() => {}) // aborted: the loop ends
    }
    return signals.exitCode()
  } finally {
    signals.release()
  }
}

const firstLine = (text: string) => text.split('\n')[0]!

const invalid = (message: string, hint: string) =>
  new TroupeError('config.invalid', { boundary: 'config', retriable: false, message, hint })
