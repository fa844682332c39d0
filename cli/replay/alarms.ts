/**
 * `troupe replay alarms`: which alarms a run would have raised, had it had them.
 *
 * in   the facts of a run; every alarm that has a name, those of its recipe, and those that are given
 * out  the alarms, with those of the run that are of no step, in the order of the steps, with what each means and what to look at; exit 1 where there is one
 * The metrics and the alarms are the run's own fold (actors/curriculum/tally.ts, actors/curriculum/alarms.ts): what is said here is what a live run says.
 */

import type { Command } from 'commander'
import { parse } from 'yaml'
import { dueAlarms, isBeyond, noAlarms, watch } from '../../actors/curriculum/alarms'
import { nextTally, noTallies, tally } from '../../actors/curriculum/tally'
import { fence } from '../../actors/ownership/fencing'
import { type Alarm, alarmSection, completeAlarm, knownAlarms } from '../../config'
import type { Fact, RecordRefused, StepTallied } from '../../messages/facts'
import { configOf } from '../../replay/log/recordedConfig'
import type { RecordedRun } from '../../replay/log/recordedRun'
import { asError, TroupeError } from '../../runtime/errors'
import { escapeForTerminal, painter } from '../io/terminal'
import { repeatable } from '../options/repeatable'
import { jsonText } from './jsonText'
import { openRecorded, type ReadOptions, reportFaults, withRun } from './runOptions'

interface AlarmsOptions extends ReadOptions {
  readonly json?: boolean
  readonly alarm: readonly string[]
}

interface Raised {
  readonly alarm: string
  /** null: it is of no step. */
  readonly step: number | null
  readonly message: string
}

export function registerAlarms(replay: Command): void {
  const command = replay
    .command('alarms')
    .description('which alarms the steps of a run raise')
    .option(
      '--alarm <alarm>',
      "another one, or another bound, as in a recipe: '{name: slow, metric: meanTokens, above: 6000, for: 3}'",
      repeatable,
      [],
    )
    .option('--json', 'a JSON line for each')
  withRun(command).action(alarms)
}

async function alarms(options: AlarmsOptions): Promise<void> {
  const given = options.alarm.map(alarmOf)
  const recorded = await openRecorded(options)
  try {
    const { selection, alarms: own } = await configOf(recorded)
    const plans = new Map<string, Alarm>()
    for (const name of knownAlarms) plans.set(name, completeAlarm({ name, stop: false }))
    for (const plan of [...own.map(completeAlarm), ...given]) plans.set(plan.name, plan)
    const { raised, steps } = await raisedBy(recorded, plans, selection.positiveAbove)
    for (const one of raised) process.stdout.write(`${options.json ? jsonText(one) : line(one)}\n`)
    process.stderr.write(`${steps} steps, ${plans.size} alarms: ${raised.length} raised\n`)
    reportFaults(recorded)
    process.exitCode = raised.length === 0 ? 0 : 1
  } finally {
    await recorded.close()
  }
}

const paint = painter(process.stdout)
const line = ({ alarm, message }: Raised) => `${paint('red', escapeForTerminal(alarm))}  ${escapeForTerminal(message)}`

/** Steps are told one after the other, as the curriculum tells them, once all that the log holds is folded. */
async function raisedBy(recorded: RecordedRun, named: ReadonlyMap<string, Alarm>, positiveAbove: number) {
  const plans = [...named.values()]
  const others: Raised[] = []
  const counts = fence()
  let folded = noTallies
  let done = 0
  for (const topic of ['runs', 'trajectories', 'learner'] as const) {
    await recorded.scan(topic, entry => {
      if (!counts(entry)) return
      const fact = entry.message as Fact
      // What the run itself told is told anew: it may have had other code, or no alarms.
      if (fact.type !== 'step.tallied') folded = tally(folded, fact)
      if (fact.type === 'step.completed' || fact.type === 'step.rejected') done = Math.max(done, fact.step)
      if (fact.type === 'alarm.raised' && !named.has(fact.alarm)) {
        others.push({ alarm: fact.alarm, step: null, message: fact.message })
      }
    })
  }
  const raised: Raised[] = []
  // Of a log that has letters and no facts of them.
  for (const letter of await lettersOf(recorded)) folded = tally(folded, letter)
  let state = noAlarms
  let told = nextTally(folded, done, positiveAbove)
  for (; told !== undefined; told = nextTally(folded, done, positiveAbove)) {
    const fact: StepTallied = { type: 'step.tallied', at: 0, ...told }
    folded = tally(folded, fact)
    state = watch(plans, state, fact)
    for (const due of dueAlarms(plans, state)) {
      raised.push({ ...due, step: told.step })
      state = watch(plans, state, { type: 'alarm.raised', at: 0, ...due })
    }
  }
  if (folded.told < done) {
    process.stderr.write(
      `step ${folded.told + 1} has groups that nobody decided; it and those after it were not looked at\n`,
    )
  }
  const letters = folded.refused.size - folded.refusedTold
  const ofNoStep = plans.filter(plan => plan.metric === 'deadLetters' && isBeyond(letters, plan))
  for (const { name, hint } of letters > 0 ? ofNoStep : []) {
    const when = folded.told === 0 ? 'before a step was over' : `after step ${folded.told}`
    others.push({ alarm: name, step: null, message: `${letters} ${when}${hint === undefined ? '' : `: ${hint}`}` })
  }
  return { raised: [...raised, ...others], steps: folded.told }
}

/** Each once for each time that it was met. */
async function lettersOf(recorded: RecordedRun): Promise<readonly RecordRefused[]> {
  const letters: RecordRefused[] = []
  await recorded.scan(
    'dead-letters',
    () => {},
    ({ origin = '', error = '' }, { timestamp: at }) => {
      letters.push({ type: 'record.refused', at, origin, error })
      return false
    },
  )
  return letters
}

function alarmOf(text: string): Alarm {
  const refuse = (message: string) =>
    new TroupeError('cli.bad_alarm', {
      boundary: 'cli',
      retriable: false,
      message: `--alarm '${text}': ${message}`,
      hint: `write {name: …, metric: …, above: …, for: …}, or the name of one: ${knownAlarms.join(', ')}`,
    })
  let value: unknown
  try {
    value = parse(text)
  } catch (thrown) {
    throw refuse(asError(thrown).message)
  }
  const parsed = alarmSection.safeParse(typeof value === 'string' ? { name: value } : value)
  if (!parsed.success) {
    throw refuse(parsed.error.issues.map(({ path, message }) => `${path.join('.')}: ${message}`).join('; '))
  }
  return completeAlarm(parsed.data)
}
