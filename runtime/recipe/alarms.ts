/**
 * Alarms: a metric of a step that stays beyond a bound. They are told as facts; `stop` ends the run.
 *
 * Some have names and bounds of their own, for `{name}` alone to be enough. Bounds are where runs that failed had been for a
 * while, not where good ones never are: set your own.
 */
import { z } from 'zod'
import { stepMetric } from './metrics'
import { positive } from './numbers'

const known: Readonly<Record<string, { metric: string; above?: number; below?: number; for: number }>> = {
  /** nats a token; a policy that no longer explores. */
  'entropy-collapse': { metric: 'entropy', below: 0.05, for: 5 },
  'reward-collapse': { metric: 'passAt1', below: 0.02, for: 5 },
  'truncated-share': { metric: 'truncatedShare', above: 0.5, for: 5 },
  /** k3 estimate, nats a token: the engine samples from another distribution than the trainer computes. */
  'engine-mismatch': { metric: 'klEngine', above: 0.05, for: 3 },
  'tool-errors': { metric: 'toolErrorRate', above: 0.5, for: 5 },
}

export const knownAlarms: readonly string[] = Object.keys(known)

export const alarmSection = z
  .strictObject({
    name: z.string().min(1),
    metric: stepMetric.optional(),
    above: z.number().optional(),
    below: z.number().optional(),
    /** Steps in a row. */
    for: positive.optional(),
    /** Ends the run, which `--resume` takes up again. */
    stop: z.boolean().default(false),
  })
  .superRefine((alarm, ctx) => {
    const { metric, above, below } = alarm
    const refuse = (path: string, message: string) => ctx.addIssue({ code: 'custom', path: [path], message })
    if (known[alarm.name] !== undefined) return
    if (metric === undefined) refuse('metric', `needed; an alarm without one is one of ${knownAlarms.join(', ')}`)
    if (above === undefined && below === undefined) refuse('above', 'needs a bound: above or below')
  })

export interface Alarm {
  readonly name: string
  readonly metric: string
  readonly above?: number | undefined
  readonly below?: number | undefined
  /** Steps in a row. */
  readonly for: number
  readonly stop: boolean
}

/** With what its name stands for. */
export function completeAlarm(alarm: z.output<typeof alarmSection>): Alarm {
  const preset = known[alarm.name]
  const bounds = alarm.above === undefined && alarm.below === undefined ? preset : alarm
  return {
    name: alarm.name,
    metric: alarm.metric ?? preset!.metric,
    above: bounds?.above,
    below: bounds?.below,
    for: alarm.for ?? preset?.for ?? 1,
    stop: alarm.stop,
  }
}
