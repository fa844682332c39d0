/**
 * Computes which alarms the steps of a recorded run raise, whether or not the run itself had these alarms.
 *
 * in   a recorded run; alarms to check besides all built-in ones and those of the run's recipe
 * out  the raised alarms in the order of the steps; then those of no step: recorded alarms whose names are not among
 * the checked ones, and dead letters (records that no reader could process) that were written after the last step
 * Invariant: metrics and alarms are computed by the code of a live run (actors/curriculum/tally.ts and alarms.ts). The
 * recorded `step.tallied` facts are not used, since the run may have had other code or no alarms.
 */
import { dueAlarms, isBeyond, noAlarms, watch } from '../../actors/curriculum/alarms'
import { nextTally, noTallies, tally } from '../../actors/curriculum/tally'
import { fence } from '../../actors/ownership/fencing'
import { type Alarm, completeAlarm, stalled, stepAlarms } from '../../config'
import type { Fact, RecordRefused, StepTallied } from '../../messages/facts'
import { configOf } from '../log/recordedConfig'
import type { RecordedRun } from '../log/recordedRun'

export interface RaisedAlarm {
  readonly alarm: string
  /** Step that raised the alarm; null if the alarm belongs to no step. */
  readonly step: number | null
  /** The measured value that raised the alarm, and the alarm's advice on what to look at. */
  readonly message: string
}

export interface RaisedAlarms {
  readonly raised: readonly RaisedAlarm[]
  /** Number of alarms that were checked. */
  readonly alarms: number
  /** Number of steps whose alarms were checked. */
  readonly steps: number
  /**
   * First step that was not checked because it has an undecided group; no later step was checked either. null when all
   * steps were checked.
   */
  readonly undecidedFrom: number | null
}

/**
 * Evaluates alarm rules over the steps of a recorded run: the built-in rules, the recipe's, and those in `given`. A
 * later rule replaces the earlier one of the same name. Alarms without a rule here, such as `stalled`, are returned as
 * the log has them.
 * @throws TroupeError replay.run_empty when the log has no `run.started`; config.invalid when today's schema refuses
 * the run's recipe
 */
export async function raisedAlarms(recorded: RecordedRun, given: readonly Alarm[] = []): Promise<RaisedAlarms> {
  const { selection, alarms: own } = await configOf(recorded)
  const named = new Map<string, Alarm>()
  for (const name of stepAlarms) named.set(name, completeAlarm({ name, stop: false }))
  for (const alarm of [...own.filter(({ name }) => name !== stalled.name).map(completeAlarm), ...given])
    named.set(alarm.name, alarm)
  const plans = [...named.values()]

  const others: RaisedAlarm[] = []
  const counts = fence()
  let folded = noTallies
  let done = 0
  for (const topic of ['runs', 'trajectories', 'learner'] as const) {
    await recorded.scan(topic, entry => {
      if (!counts(entry)) return
      const fact = entry.message as Fact
      if (fact.type !== 'step.tallied') folded = tally(folded, fact)
      if (fact.type === 'step.completed' || fact.type === 'step.rejected') done = Math.max(done, fact.step)
      if (fact.type === 'alarm.raised' && !named.has(fact.alarm)) {
        others.push({ alarm: fact.alarm, step: null, message: fact.message })
      }
    })
  }
  // Older logs have dead letters without a `record.refused` fact for each.
  for (const letter of await deadLettersOf(recorded)) folded = tally(folded, letter)

  const raised: RaisedAlarm[] = []
  let state = noAlarms
  let next = nextTally(folded, done, selection.positiveAbove)
  for (; next !== undefined; next = nextTally(folded, done, selection.positiveAbove)) {
    const fact: StepTallied = { type: 'step.tallied', at: 0, ...next }
    folded = tally(folded, fact)
    state = watch(plans, state, fact)
    for (const due of dueAlarms(plans, state, recorded.run)) {
      raised.push({ ...due, step: next.step })
      state = watch(plans, state, { type: 'alarm.raised', at: 0, ...due })
    }
  }
  const letters = folded.refused.size - folded.refusedTold
  const ofNoStep = plans.filter(plan => plan.metric === 'deadLetters' && isBeyond(letters, plan))
  for (const { name, hint } of letters > 0 ? ofNoStep : []) {
    const when = folded.told === 0 ? 'before the first step was over' : `after step ${folded.told}`
    others.push({ alarm: name, step: null, message: `${letters} ${when}${hint === undefined ? '' : `: ${hint}`}` })
  }
  return {
    raised: [...raised, ...others],
    alarms: plans.length,
    steps: folded.told,
    undecidedFrom: folded.told < done ? folded.told + 1 : null,
  }
}

/** Reads the dead-letter topic as `record.refused` facts. The tally counts each dead letter once. */
async function deadLettersOf(recorded: RecordedRun): Promise<readonly RecordRefused[]> {
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
