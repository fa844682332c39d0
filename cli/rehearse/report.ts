/**
 * The report of a rehearsal, as text.
 *
 * in   what happened, the estimate's training time, the recipe's numbers        out  lines for a terminal
 * Invariant: for a figure that was not measured, the report says where the figure comes from. The report lists the
 * fields that differ from the recipe.
 */
import type { RecipeConfig } from '../../config'
import { duration } from '../io/terminal'
import { allParts, type MemoryPeak } from './memory'
import type { Rehearsal } from './rehearsal'
import type { Change } from './rehearsed'

/** Duration of the real run without the cold start, from simulated generation and the estimate of training. */
export interface RealRun {
  readonly stepSeconds: number
  readonly generationSeconds: number
  readonly trainingSeconds: number
  readonly evaluationSeconds: number
  readonly steps: number
  readonly evaluations: number
  readonly hours: number
}

export function realRun(config: RecipeConfig, { tallied }: Rehearsal, trainingSeconds: number): RealRun {
  const mean = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0) / Math.max(1, values.length)
  const of = (kind: 'train' | 'eval') => mean(tallied.phases.filter(p => p.kind === kind).map(p => p.seconds))
  const [generationSeconds, evaluationSeconds] = [of('train'), of('eval')]
  const { steps } = config.train
  const { problems, every } = config.evaluation
  const evaluations = problems === 0 ? 0 : 2 + (every === 0 ? 0 : Math.max(0, Math.ceil(steps / every) - 1))
  const stepSeconds = generationSeconds + trainingSeconds
  const hours = (steps * stepSeconds + evaluations * evaluationSeconds) / 3600
  return { stepSeconds, generationSeconds, trainingSeconds, evaluationSeconds, steps, evaluations, hours }
}

const mib = (bytes: number) => `${(bytes / 2 ** 20).toFixed(0)} MiB`
const number = (value: number) => value.toLocaleString('en-US', { maximumFractionDigits: value < 100 ? 1 : 0 })
const memoryOf = ({ residentMib, proportionalMib, privateMib, cpuSeconds }: MemoryPeak) =>
  `${number(residentMib)} MiB resident (PSS ${number(proportionalMib)} MiB), ${number(privateMib)} MiB of it private; ${number(cpuSeconds)} s of CPU time`
const listed = (counts: Readonly<Record<string, number>>) =>
  Object.entries(counts)
    .map(([reason, count]) => `${number(count)} × ${reason}`)
    .join(', ') || 'none'
const shown = (value: unknown) =>
  value === undefined ? '–' : typeof value === 'string' ? value : JSON.stringify(value)

export function reportOf(config: RecipeConfig, changes: readonly Change[], ran: Rehearsal, real: RealRun): string {
  const { tallied: t, clock, backlog, trained, toolCalls, log, refold } = ran
  const { rollouts, turns, groups } = t
  const all = ran.memory.find(({ part }) => part === allParts)
  const rows: readonly (readonly [string, string])[] = [
    ['outcome', `${ran.outcome}: ${ran.reason}, in ${duration(ran.seconds)}`],
    [
      'rollouts lost',
      `${number(rollouts.lost + rollouts.open)} (${listed(rollouts.lostBecause)}${rollouts.open > 0 ? `; ${number(rollouts.open)} never ended` : ''})`,
    ],
    [
      'rollouts',
      `${number(rollouts.requested)} requested, ${number(rollouts.rewarded)} rewarded, ${number(rollouts.truncated)} truncated`,
    ],
    [
      'turns',
      `${number(turns.completed)} completed, ${number(turns.askedAgain)} asked again, ${number(turns.interrupted)} interrupted`,
    ],
    [
      'tool calls',
      `${number(t.toolCalls.completed)}, ${number(t.toolCalls.failed)} failed; ${number(toolCalls.real)} ran in the sandbox, ${number(toolCalls.simulated)} took simulated time only`,
    ],
    [
      'groups',
      `${number(groups.selected)} selected; filtered: ${listed(groups.filtered)}; ${number(groups.refilled)} refilled; ${number(groups.closedByDeadline)} closed at the deadline`,
    ],
    ['steps', `${t.steps.completed} completed, ${t.steps.rejected} rejected`],
    ['stages', t.stages.join(', ') || 'none'],
    ['evaluations', `${t.evaluations}, and ${t.measurements} measurements of problems`],
    ['checkpoints', `${t.checkpoints} saved`],
    ['weights', `${t.publications} published, ${number(t.weightUpdates)} times taken by an engine`],
    ['engines that left', listed(t.enginesLeft)],
    ['alarms', listed(t.alarms)],
    ['records refused', number(t.refused)],
    [
      'trainer',
      `${number(trained.sequences)} sequences of ${number(trained.assembled)} tokens assembled; the small model computed ${number(trained.given)} of them`,
    ],
    [
      'clock',
      `${number(clock.simulatedSeconds)} simulated seconds in ${number(clock.realSeconds)} s: ${clock.meanSpeed.toFixed(1)}× real time, at most ${clock.speed}×; on average ${(100 * clock.heldShare).toFixed(0)} % below that; event loop blocked for ${number(clock.longestBlockMs)} ms at most`,
    ],
    [
      'mailboxes',
      `deepest ${backlog.deepest.messages} (${backlog.deepest.actor}), longest wait ${backlog.longestWait.seconds.toFixed(1)} s (${backlog.longestWait.actor})`,
    ],
    ['refold', `${number(refold.facts)} facts in ${refold.seconds.toFixed(1)} s`],
    [
      'log',
      `${mib(log.fileBytes)} on disk, ${mib(log.blobBytes)} of blobs; records: ${log.topics.map(({ topic, records, bytes }) => `${topic} ${number(records)} (${mib(bytes)})`).join(', ')}`,
    ],
    ...ran.memory
      .filter(({ part }) => part !== allParts)
      .map(
        one =>
          [
            `memory: ${one.part}`,
            `${memoryOf(one)}${one.processes > 1 ? `; ${one.processes} processes` : ''}`,
          ] as const,
      ),
    ['memory: at once', all === undefined ? 'not measured' : `${memoryOf(all)}; ${all.processes} processes`],
    ...t.phases.map(
      ({ step, kind, rollouts: ended, meanTokens, meanTurns, seconds }) =>
        [
          kind === 'train' ? `step ${step}` : `evaluation ${step}`,
          `${number(ended)} rollouts of ${number(meanTokens)} tokens and ${meanTurns.toFixed(1)} turns in ${number(seconds)} simulated seconds`,
        ] as const,
    ),
    [
      'a real step',
      `${number(real.stepSeconds)} s: generation ${number(real.generationSeconds)} s (simulated), training ${number(real.trainingSeconds)} s (estimate)`,
    ],
    [
      'the real run',
      `${number(real.hours)} h: ${real.steps} such steps and ${real.evaluations} evaluations of ${number(real.evaluationSeconds)} s, without the cold start`,
    ],
  ]
  return [
    `rehearsal of ${config.name}`,
    ...rows.map(([what, said]) => `  ${what.padEnd(28)} ${said}`),
    'differs from the recipe',
    ...changes.map(({ path, from, to }) => `  ${path}: ${shown(from)} → ${shown(to)}`),
    '',
  ].join('\n')
}
