/**
 * `troupe replay rescore TARGET|--all` (a trajectory, a group or a step): grades recorded responses again, by another
 * rule or several times, and prints the rewards.
 */
import { resolve } from 'node:path'
import { type Command, Option } from 'commander'
import type { Grader } from '../../actors/verification/verifierPort'
import type { RewardConfig } from '../../config'
import { cannotRescore, type Rescored, rescoreTrajectories } from '../../replay/whatIf/rescore'
import { asError } from '../../runtime/errors'
import { escapeForTerminal, painter } from '../io/terminal'
import { wholeNumber } from '../options/readers'
import { type ReadOptions, withLog, withRun } from './runOptions'
import { jsonText } from './text/jsonText'

interface RescoreOptions extends ReadOptions {
  readonly all?: boolean
  readonly times: number
  readonly place?: RewardConfig['place']
  readonly grader?: string
  readonly recipe?: string
  readonly literal?: true
  readonly second?: true
  readonly changed?: true
  readonly timeoutMs?: number
  readonly json?: boolean
}

export function registerRescore(replay: Command): void {
  const command = replay
    .command('rescore [target]')
    .description(
      'grade recorded responses again: with another place for the answer, a grader of your own, or several times',
    )
    .option('--all', 'grade every rewarded trajectory of the run')
    .option('--times <n>', 'grade each response this many times', wholeNumber(1, 1000), 1)
    .addOption(
      new Option('--place <place>', "part of the response that must hold the answer (default: the recipe's)").choices([
        'answer-tag',
        'anywhere',
        'hashes',
        'last-number',
        'response',
      ]),
    )
    .option(
      '--literal',
      'if the truth is an integer, accept only a number in digits, not an expression of the same value',
    )
    .option('--grader <file>', 'a .ts or .js file that exports grade({response, truth, task}) → {reward, answer, how}')
    .option('--recipe <name|file>', "grade by the rewards of this recipe (default: the run's own)")
    .addOption(
      new Option(
        '--second',
        'grade by plain arithmetic; trajectories whose answer or truth is not a number are left out',
      ).conflicts(['place', 'literal', 'grader', 'recipe', 'times']),
    )
    .option('--changed', 'list only rewards that differ from the record')
    .option('--timeout-ms <ms>', 'deadline for grading one response', wholeNumber(1, 3_600_000))
    .option('--json', 'print one JSON line for each trajectory, then a summary')
  withRun(command).action(rescore)
}

async function rescore(target: string | undefined, options: RescoreOptions): Promise<void> {
  if (target === undefined && options.all !== true)
    throw cannotRescore(
      'no trajectory, group or step was named; expected one, or --all',
      'usage: troupe replay rescore TARGET|--all; TARGET: a trajectory, a group or a step; --help lists the options',
    )
  const { grader, second, ...rest } = options
  await withLog(options, async recorded => {
    const results = await rescoreTrajectories(recorded, {
      ...rest,
      ...(target === undefined ? {} : { target }),
      ...(grader === undefined ? {} : { grader: graderIn(grader) }),
      ...(second === undefined ? {} : { arithmetic: second }),
    })
    print(results, options)
  })
}

const graderForm = 'give a .ts or .js file that exports grade({response, truth, task}) → {reward, answer, how}'

function graderIn(file: string): Grader {
  let loaded: { readonly grade?: unknown }
  try {
    loaded = require(resolve(file)) as { readonly grade?: unknown }
  } catch (thrown) {
    throw cannotRescore(`--grader ${file} cannot be loaded: ${asError(thrown).message}`, graderForm)
  }
  if (typeof loaded.grade !== 'function')
    throw cannotRescore(`--grader ${file} exports no function 'grade'`, graderForm)
  return loaded.grade as Grader
}

const paint = painter(process.stdout)

function print(results: readonly Rescored[], options: RescoreOptions): void {
  const changed = results.filter(r => r.changed)
  const shown = options.changed ? changed : results
  const mean = (values: readonly number[]) =>
    values.length === 0 ? null : values.reduce((a, b) => a + b, 0) / values.length
  const judged = results.filter(r => r.mean !== null)
  const summary = {
    type: 'summary',
    trajectories: results.length,
    times: options.times,
    changed: changed.length,
    unsteady: results.filter(r => r.deviation > 0).length,
    unjudged: results.length - judged.length,
    recordedMean: mean(judged.map(r => r.recorded)),
    rescoredMean: mean(judged.map(r => r.mean!)),
  }
  if (options.json) {
    for (const result of [...shown, summary]) process.stdout.write(`${jsonText(result)}\n`)
    return
  }
  for (const r of shown) {
    const mean = options.times === 1 ? r.mean : `${r.mean?.toFixed(3)} ± ${r.deviation.toFixed(3)}`
    const rewards = r.mean === null ? '–' : String(mean)
    const line = `${escapeForTerminal(r.trajectory).padEnd(16)}  ${String(r.recorded).padStart(5)} → ${rewards.padEnd(6)}  '${escapeForTerminal(r.answer).slice(0, 60)}' (${escapeForTerminal(r.how)})`
    process.stdout.write(`${r.changed ? paint('yellow', line) : line}\n`)
  }
  process.stdout.write(
    `${summary.changed} of ${summary.trajectories} rewards differ from the record; mean ${summary.recordedMean?.toFixed(4) ?? '–'} → ${summary.rescoredMean?.toFixed(4) ?? '–'}${options.times > 1 ? `; ${summary.unsteady} unsteady over ${options.times} times` : ''}${summary.unjudged > 0 ? `; ${summary.unjudged} could not be judged, and are in no mean` : ''}\n`,
  )
}
