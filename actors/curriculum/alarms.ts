/**
 * Watches the recipe's alarm rules. A rule has a metric, a bound and a number of steps, `for`.
 *
 * in   step.tallied, alarm.raised, run.resumed        out  alarms to raise now; why an alarm with `stop` ends the run
 * Invariant: pure. An alarm is due once the rule's metric was beyond the bound in at least `for` steps in a row. It is
 * raised once for such a series of steps, and again only after a step within the bound or a resume of the run. A step
 * without the metric is skipped: it neither lengthens nor ends the series. A metric that is NaN is beyond every bound.
 */

import type { Alarm } from '../../config'
import type { Fact } from '../../messages/facts'

/** State of one alarm rule: its steps in a row beyond the bound, and the latest step that had its metric. */
interface Watched {
  /** Number of steps in a row, up to the latest, whose metric was beyond the bound. */
  readonly steps: number
  readonly raised: boolean
  readonly step: number
  readonly value: number
}

export interface AlarmsState {
  /** State of each alarm rule, by the rule's name. */
  readonly watched: ReadonlyMap<string, Watched>
  /**
   * Reason for the end of the run: the latest raised alarm whose rule has `stop`; null if none since the last resume.
   */
  readonly stopped: string | null
}

export const noAlarms: AlarmsState = { watched: new Map(), stopped: null }
const quiet: Watched = { steps: 0, raised: false, step: 0, value: 0 }

export function isBeyond(value: number, { above, below }: Pick<Alarm, 'above' | 'below'>): boolean {
  if (Number.isNaN(value)) return true
  return (above !== undefined && value > above) || (below !== undefined && value < below)
}

export function watch(plans: readonly Alarm[], state: AlarmsState, fact: Fact): AlarmsState {
  switch (fact.type) {
    case 'step.tallied': {
      const watched = new Map(state.watched)
      for (const plan of plans) {
        const value = fact.metrics[plan.metric]
        if (value === undefined) continue
        const before = watched.get(plan.name) ?? quiet
        const steps = isBeyond(value, plan) ? before.steps + 1 : 0
        watched.set(plan.name, { steps, raised: steps > 0 && before.raised, step: fact.step, value })
      }
      return { ...state, watched }
    }
    case 'alarm.raised': {
      const plan = plans.find(({ name }) => name === fact.alarm)
      const before = state.watched.get(fact.alarm)
      if (plan === undefined || before === undefined) return state
      const watched = new Map(state.watched).set(fact.alarm, { ...before, raised: true })
      return { watched, stopped: plan.stop ? `alarm ${fact.alarm}: ${fact.message}` : state.stopped }
    }
    // A resume forgets all earlier steps: an alarm is due again after `for` further steps beyond the bound.
    case 'run.resumed':
      return noAlarms
    default:
      return state
  }
}

/**
 * Lists the alarms that are due and not yet raised, each with the name of its rule and a message. The message of a rule
 * with a `command` ends with that command for the run `run`; without `run` the command is left out.
 */
export function dueAlarms(
  plans: readonly Alarm[],
  { watched }: AlarmsState,
  run?: string,
): readonly { readonly alarm: string; readonly message: string }[] {
  return plans.flatMap(plan => {
    const { steps, raised, step, value } = watched.get(plan.name) ?? quiet
    if (raised || steps < plan.for) return []
    const bound =
      plan.above !== undefined && !(plan.below !== undefined && value < plan.below)
        ? `above ${plan.above}`
        : `below ${plan.below}`
    const hint = plan.hint === undefined ? '' : `: ${plan.hint}`
    const message = `${plan.metric} is ${Number(value.toPrecision(4))}, ${bound} for ${steps} ${steps === 1 ? 'step' : 'steps'}, at step ${step}${hint}${commandOf(plan, run)}`
    return [{ alarm: plan.name, message }]
  })
}

const commandOf = ({ command }: Alarm, run: string | undefined): string =>
  command === undefined || run === undefined ? '' : `: npx troupe ${command} --run ${run}`
