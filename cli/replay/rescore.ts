/**
 * `troupe replay rescore G|T`: judges recorded responses again, by another rule or several times.
 *
 * in   the recorded texts and tasks        out  for each the recorded and the new rewards; how often they differ
 * Invariant: each is judged by the reward that its task names, as the recipe has it, or by the grader given. Nothing is generated and nothing of the run is changed: the same texts, another judge.
 */
import { resolve } from 'node:path'
import { type Command, Option } from 'commander'
import { opinionOn } from '../../actors/curriculum/tally'
import type { Grader } from '../../actors/verification/verifierPort'
import type { RewardConfig } from '../../config'
import { configOf } from '../../replay/log/recordedConfig'
import { resolveTarget, trajectoriesOf } from '../../replay/trajectories/resolveId'
import { type Counted, countedTrajectories, responseOf } from '../../replay/trajectories/trajectory'
import { graderDeadlineMs, gradesAtOnce, recordedGrader } from '../../replay/whatIf/recordedGrader'
import { asError, TroupeError } from '../../runtime/errors'
import { rejectOnAbort } from '../../runtime/rejectOnAbort'
import { escapeForTerminal, painter } from '../io/terminal'
import { wholeNumber } from '../options/readers'
import { jsonText } from './jsonText'
import { openRecorded, type ReadOptions, reportFaults, withRun } from './runOptions'

interface RescoreOptions extends ReadOptions {
  readonly all?: boolean
  readonly times: number
  readonly place?: RewardConfig['place']
  readonly grader?: string
  readonly recipe?: string
  readonly second?: true
  readonly changed?: true
  readonly timeoutMs?: number
  readonly json?: boolean
}

interface Rescored {
  readonly trajectory: string
  readonly recorded: number
  /** One for each time that it was judged; without any it could not be. */
  readonly rewards: readonly number[]
  readonly mean: number | null
  /** Standard deviation over the times, unbiased; 0 for one. */
  readonly deviation: number
  readonly answer: string
  readonly how: string
  readonly changed: boolean
}

export function registerRescore(replay: Command): void {
  const command = replay
    .command('rescore [target]')
    .description('judge recorded responses again: another place for the answer, a grader of your own, or several times')
    .option('--all', 'every rewarded trajectory of the run')
    .option('--times <n>', 'judge each so often', wholeNumber(1, 1000), 1)
    .addOption(
      new Option('--place <place>', "where the answer counts (default: the recipe's)").choices([
        'answer-tag',
        'anywhere',
        'response',
      ]),
    )
    .option('--grader <file>', 'a .ts or .js file that exports grade({response, truth, task}) → {reward, answer, how}')
    .option('--recipe <name|file>', "by the rewards of this recipe (default: the run's own)")
    .addOption(
      new Option(
        '--second',
        'by plain arithmetic, where answer and truth are numbers; the others are left out',
      ).conflicts(['place', 'grader', 'recipe', 'times']),
    )
    .option('--changed', 'list only those that differ from the record')
    .option('--timeout-ms <ms>', 'for one answer', wholeNumber(1, 3_600_000))
    .option('--json', 'a JSON line each, last a summary')
  withRun(command).action(rescore)
}

async function rescore(target: string | undefined, options: RescoreOptions): Promise<void> {
  if (target === undefined && options.all !== true) throw wrong('no trajectory and no group was named; or --all')
  const recorded = await openRecorded(options)
  const closers: (() => Promise<void>)[] = []
  try {
    const wants = target === undefined ? () => true : resolveTarget(target, await trajectoriesOf(recorded))
    const rewarded = (await countedTrajectories(recorded, wants)).filter(c => c.reward !== null)
    if (rewarded.length === 0) throw wrong('nothing there has a reward to compare with')
    const all = options.second ? rewarded.filter(c => secondOf(c) !== undefined) : rewarded
    if (all.length === 0)
      throw wrong('arithmetic can judge none of them: it needs numbers that the reward `math` had judged')
    const config = await configOf(recorded)
    const results: Rescored[] = options.second ? all.map(byArithmetic) : []
    const given = options.grader === undefined ? undefined : graderIn(options.grader)
    const grader = options.second ? undefined : (given ?? (await recordedGrader(config, options, closers)))
    // The run's own graders keep their deadline themselves; a sandbox that opens, and those before it, are not in it.
    const ownMs = options.timeoutMs ?? Math.max(graderDeadlineMs, given === undefined ? config.reward.timeoutMs : 0)
    const timeoutMs = given === undefined ? graderDeadlineMs + ownMs : ownMs
    for (let at = 0; grader !== undefined && at < all.length; at += gradesAtOnce) {
      results.push(
        ...(await Promise.all(all.slice(at, at + gradesAtOnce).map(c => judge(c, grader, options, timeoutMs)))),
      )
    }
    print(results, options)
    reportFaults(recorded)
  } finally {
    for (const close of closers) await close()
    await recorded.close()
  }
}

function graderIn(file: string): Grader {
  let loaded: { readonly grade?: unknown }
  try {
    loaded = require(resolve(file)) as { readonly grade?: unknown }
  } catch (thrown) {
    throw wrong(`--grader ${file} cannot be loaded: ${asError(thrown).message}`)
  }
  if (typeof loaded.grade !== 'function') throw wrong(`--grader ${file} exports no function 'grade'`)
  return loaded.grade as Grader
}

/** Of the answer as the record has it. */
const secondOf = ({ reward, request }: Counted) => opinionOn(reward!, request.task.truth)

function byArithmetic(counted: Counted): Rescored {
  const { reward: recorded, answer } = counted.reward!
  const reward = secondOf(counted) ? 1 : 0
  const { trajectory } = counted
  const changed = reward !== recorded
  return { trajectory, recorded, rewards: [reward], mean: reward, deviation: 0, answer, how: 'arithmetic', changed }
}

async function judge(
  counted: Counted,
  grader: Grader,
  { times }: RescoreOptions,
  timeoutMs: number,
): Promise<Rescored> {
  const { trajectory } = counted
  const { task } = counted.request
  const ask = { response: responseOf(counted), truth: task.truth, task }
  const rewards: number[] = []
  let answer = ''
  let how = ''
  for (let k = 0; k < times; k++) {
    const grade = await graded(grader, ask, timeoutMs, trajectory)
    if (grade?.reward === null) {
      if (rewards.length === 0) how = `${grade.how}: ${grade.why}`
      continue
    }
    if (!Number.isFinite(grade?.reward)) throw wrong(`the grader gave no finite reward for ${trajectory}`)
    rewards.push(grade.reward)
    answer = String(grade.answer ?? '')
    how = String(grade.how ?? '')
  }
  const { length } = rewards
  const mean = length === 0 ? null : rewards.reduce((a, b) => a + b, 0) / length
  const deviation = length < 2 ? 0 : Math.sqrt(rewards.reduce((sum, r) => sum + (r - mean!) ** 2, 0) / (length - 1))
  const recorded = counted.reward!.reward
  return { trajectory, recorded, rewards, mean, deviation, answer, how, changed: rewards.some(r => r !== recorded) }
}

/** A grader of the user's own may never answer, or throw anything. */
async function graded(grader: Grader, ask: Parameters<Grader>[0], timeoutMs: number, trajectory: string) {
  const late = new AbortController()
  const timer = setTimeout(() => late.abort(), timeoutMs)
  try {
    return await rejectOnAbort((async () => grader(ask, late.signal))(), late.signal)
  } catch (thrown) {
    const why = late.signal.aborted ? `no grade within ${timeoutMs} ms` : asError(thrown).message
    throw wrong(`${trajectory} could not be judged: ${why}`)
  } finally {
    clearTimeout(timer)
  }
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

function wrong(message: string): TroupeError {
  return new TroupeError('cli.cannot_rescore', {
    boundary: 'cli',
    retriable: false,
    message,
    hint: 'troupe replay rescore G',
  })
}
