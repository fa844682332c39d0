/**
 * The recipe's alarm rules. A rule raises its alarm (a fact) when a step metric is beyond a bound in `for` consecutive
 * steps; with `stop` it also ends the run. Built-in rules are active in every recipe; `{name, off: true}` switches one
 * off.
 *
 * Built-in rules have a metric and a bound, so `{name}` alone is enough; `stalled` has minutes instead, which `above`
 * sets. The bounds are values that failed runs had reached for a while; good runs may reach them too, so set your own.
 */
import { z } from 'zod'
import { stepMetric } from './metrics'
import { positive } from './numbers'

interface Known {
  readonly metric: string
  readonly above?: number
  readonly below?: number
  readonly for: number
  readonly means: string
  /** Advice on what to inspect or change when the alarm is raised. */
  readonly look: string
  /** Command that shows what to look at first, without `npx troupe` and `--run`. */
  readonly command: string
}

const known: Readonly<Record<string, Known>> = {
  'entropy-collapse': {
    ...{ metric: 'entropy', below: 0.05, for: 5 },
    means: 'the policy no longer explores (entropy in nats a token)',
    look: '`replay entropy --all`, a higher train.clipHigh, harder problems',
    command: 'replay entropy --all',
  },
  'reward-collapse': {
    ...{ metric: 'passAt1', below: 0.02, for: 5 },
    means: 'almost no rollout is right',
    look: "`replay ls --reward '=0'`, the reward itself with `replay rescore`",
    command: "replay ls --reward '=0'",
  },
  'reward-drop': {
    ...{ metric: 'passAt1Drop', above: 0.2, for: 1 },
    means: 'the reward fell from its best five steps: a collapse after a plateau (arXiv 2508.20722 §5.3 saw one)',
    look: '`replay steps`, and resuming from an older checkpoint with a lower train.learningRate',
    command: 'replay steps',
  },
  'evaluation-drop': {
    ...{ metric: 'evaluationDrop', above: 0.1, for: 1 },
    means: 'the policy solves fewer of the problems that it is not trained on than it did, whatever the reward says',
    look: '`replay steps` for reward beside evaluation; what the reward pays for, and an older checkpoint',
    command: 'replay steps',
  },
  'truncated-share': {
    ...{ metric: 'truncatedShare', above: 0.1, for: 10 },
    means: 'many rollouts keep ending at a limit',
    look: '`replay ls --status truncated`, `replay limits`; limits.responseTokens or limits.turns',
    command: 'replay ls --status truncated',
  },
  'length-explosion': {
    ...{ metric: 'meanTokensRatio', above: 2, for: 2 },
    means: 'rollouts are twice as long as in the steps before',
    look: '`replay ls --step N`, train.overlong',
    command: 'replay steps',
  },
  'gradient-spike': {
    ...{ metric: 'gradNormRatio', above: 5, for: 1 },
    means: 'the gradient is far above that of the steps before',
    look: '`replay lineage N` for the trajectories of the step, train.maxGradNorm',
    command: 'replay steps',
  },
  'engine-mismatch': {
    ...{ metric: 'klEngine', above: 0.05, for: 3 },
    means: 'the engine samples from a different distribution than the trainer computes (in nats a token)',
    look: 'dtype and weights of the engines, `replay learn N`, train.correction',
    command: 'replay steps',
  },
  'tool-errors': {
    ...{ metric: 'toolErrorRate', above: 0.5, for: 5 },
    means: 'most tool calls fail',
    look: '`replay ls --tool-errors`, `replay show`',
    command: 'replay ls --tool-errors',
  },
  'tool-errors-despite-reward': {
    ...{ metric: 'toolErrorsDespiteReward', above: 0.1, for: 1 },
    means: 'the reward rises, but rewarded rollouts have as many failed calls as before (arXiv 2508.20722 §2.2.3)',
    look: "`replay ls --tool-errors --reward '>0'`, selection.variant, `replay roc G --explain`",
    command: "replay ls --tool-errors --reward '>0'",
  },
  'equal-groups': {
    ...{ metric: 'equalShare', above: 0.8, for: 3 },
    means: 'most groups have all answers right or all wrong, and give no gradient',
    look: 'harder or easier problems, stages with problems.maxSolved, rollout.groupSize',
    command: 'replay ls --selection rejected',
  },
  'failed-rewards': {
    ...{ metric: 'failedShare', above: 0.05, for: 3 },
    means: 'rollouts failed, or their rewards could not be computed',
    look: '`replay ls --status failed`, `replay ls --reward none`, `replay show`',
    command: 'replay ls --reward none',
  },
  'verifier-disagreement': {
    ...{ metric: 'disagreeShare', above: 0.02, for: 1 },
    means: 'plain arithmetic disagrees with the grader on numeric answers',
    look: '`replay rescore --all --second`, the truths of those problems',
    command: 'replay rescore --all --second',
  },
  'dead-letters': {
    ...{ metric: 'deadLetters', above: 0, for: 1 },
    means: 'records could not be read, or crashed their readers',
    look: '`replay verify`, which lists them; the versions of the processes of the run',
    command: 'replay verify',
  },
  preemptions: {
    ...{ metric: 'preemptionsPerTurn', above: 0.1, for: 3 },
    means: 'engines run out of KV in the middle of turns',
    look: 'engine.kvTokens, scheduler.policy, `simulate --run`',
    command: 'replay steps',
  },
  'recomputed-tokens': {
    ...{ metric: 'recomputedShare', above: 1, for: 3 },
    means: 'engines recompute as many context tokens as they sample',
    look: 'engine.kvTokens, scheduler.policy, `simulate --run`; whether the server caches prefixes',
    command: 'replay steps',
  },
  'stale-policy': {
    ...{ metric: 'staleness', above: 2, for: 3 },
    means: 'steps train on tokens that policies several versions old sampled',
    look: 'rollout.maxStaleness, `replay ls --policy V`',
    command: 'replay steps',
  },
}

/** Built-in alarm rule without a metric: a timer raises the alarm when the run has written no fact for `minutes`. */
export const stalled = {
  name: 'stalled',
  minutes: 30,
  hint: 'the run writes no fact any more; see what it waits for, and on whom',
} as const

/** Names of the built-in alarm rules on step metrics. */
export const stepAlarms: readonly string[] = Object.keys(known)
/** Names of all built-in alarm rules: those on step metrics, and `stalled`. */
export const knownAlarms: readonly string[] = [...stepAlarms, stalled.name]

export const alarmSection = z
  .strictObject({
    name: z.string().min(1),
    metric: stepMetric.optional(),
    above: z.number().optional(),
    below: z.number().optional(),
    /** Number of consecutive steps beyond the bound after which the alarm is raised. */
    for: positive.optional(),
    /** true: the alarm ends the run, and `--resume` continues it. */
    stop: z.boolean().default(false),
    /** true: the built-in rule of this name is switched off; the other built-in rules stay active. */
    off: z.boolean().optional(),
  })
  .superRefine((alarm, ctx) => {
    const { metric, above, below } = alarm
    const refuse = (path: string, message: string) => ctx.addIssue({ code: 'custom', path: [path], message })
    if (alarm.off === true && !knownAlarms.includes(alarm.name))
      refuse('off', `only a built-in alarm is switched off by name: ${knownAlarms.join(', ')}`)
    if (alarm.name === stalled.name && alarm.stop)
      refuse('stop', `'${stalled.name}' cannot stop a run: the process that would stop it may be the one that hangs`)
    if (knownAlarms.includes(alarm.name)) return
    if (metric === undefined)
      refuse('metric', `missing; only a built-in alarm needs no metric: ${knownAlarms.join(', ')}`)
    if (above === undefined && below === undefined) refuse('above', 'needs a bound: above or below')
  })

export interface Alarm {
  readonly name: string
  readonly metric: string
  readonly above?: number | undefined
  readonly below?: number | undefined
  /** Number of consecutive steps beyond the bound after which the alarm is raised. */
  readonly for: number
  readonly stop: boolean
  /** Meaning of the alarm, and what to look at next. */
  readonly hint?: string
  /** Command that shows what the alarm is about, without `npx troupe` and `--run`. */
  readonly command?: string
}

type Stated = z.output<typeof alarmSection>

/** Returns a run's alarm rules on step metrics: the built-in ones that the recipe does not switch off, and its own. */
export function activeAlarms(alarms: readonly Stated[]): readonly Alarm[] {
  const own = new Map(alarms.map(alarm => [alarm.name, alarm]))
  const usual = stepAlarms.filter(name => !own.has(name)).map(name => ({ name, stop: false }))
  return [...alarms.filter(({ off, name }) => off !== true && name !== stalled.name), ...usual].map(completeAlarm)
}

/** Returns the minutes without a fact after which `stalled` is raised; undefined if the recipe switches it off. */
export function stalledMinutes(alarms: readonly Stated[]): number | undefined {
  const own = alarms.find(({ name }) => name === stalled.name)
  return own?.off === true ? undefined : (own?.above ?? stalled.minutes)
}

/**
 * Returns the recipe's alarm rules, and switches off each built-in rule that the recipe does not name: for runs whose
 * model or engines are stand-ins.
 */
export const withoutUsual = (alarms: readonly Stated[]): readonly Stated[] => [
  ...alarms,
  ...knownAlarms
    .filter(name => !alarms.some(alarm => alarm.name === name))
    .map(name => ({ name, stop: false, off: true })),
]

/**
 * Fills in the fields that an alarm rule leaves out, from the built-in rule of the same name: metric, bounds (if the
 * rule has neither `above` nor `below`) and number of steps. If there is no such built-in rule, the number of steps is
 * 1.
 */
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
    ...(preset === undefined || (alarm.metric ?? preset.metric) !== preset.metric
      ? {}
      : { hint: `${preset.means}; look at ${preset.look}`, command: preset.command }),
  }
}
