/**
 * Alarms: a step's metric that stays beyond its bound.
 *
 * in   step.tallied, alarm.raised, run.resumed        out  alarms that are due, and whether one of them stopped the run
 * Invariant: pure. An alarm is due once its metric was beyond the bound for `for` steps in a row; it is raised once for
 * that stretch of steps, and may be raised again after a resume. A step without the metric changes nothing; a metric
 * that is NaN is beyond every bound.
 */

import type { Alarm } from '../../config'
import type { Fact } from '../../messages/facts'

interface Watched {
  readonly steps: number
  readonly raised: boolean
  readonly step: number
  readonly value: number
}

export interface AlarmsState {
  readonly watched: ReadonlyMap<string, Watched>
  /** Reason why an alarm ends the run; null while no such alarm was raised. */
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
    // A resume resets all alarms: each is raised only after its metric was beyond the bound for `for` further steps.
    case 'run.resumed':
      return noAlarms
    default:
      return state
  }
}

/**
 * Lists the alarms whose metric has been beyond its bound for `for` steps in a row or more and that were not raised for
 * these steps yet, with their messages. `run`: named in the command that the message ends with; no command without it.
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
