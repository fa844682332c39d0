/**
 * Traces lineage: from an optimizer step down to tool calls, and from a trajectory up to the step that trained on it.
 *
 * in   a step, a group, a trajectory, or a text
 * out  a record for each trajectory, with its calls, forks, step and version
 */
import type { StepCompleted, WeightsPublished } from '../../messages/facts'
import type { TrajectoryId } from '../../messages/ids'
import { factsOf, type RecordedRun } from '../log/recordedRun'
import { replayError } from '../replayError'
import { resolveTarget, trajectoriesOf } from '../trajectories/resolveId'
import { type ToolCallRecord, toolCallsOf } from '../trajectories/toolCalls'
import { isCaptured, readTrajectories, selectionOf, type Trajectory } from '../trajectories/trajectory'
import { forksIn } from './forks'
import { type TriedIn, triedSteps } from './learnerLog'

export interface Lineage {
  readonly trajectory: string
  readonly purpose: string
  readonly policyVersions: readonly number[]
  readonly reward: number | null
  readonly selection: string | null
  readonly advantage: number | null
  /** Optimizer step that trained on the trajectory; null when none did. */
  readonly trainedIn: number | null
  /**
   * Step with the trajectory in its batch that was rejected or has not ended; null when the trajectory was trained on,
   * or no step had it.
   */
  readonly triedIn: { readonly step: number; readonly outcome: 'rejected' | 'open' } | null
  /** Policy version that the `trainedIn` step published; null when it published none. */
  readonly publishedAs: number | null
  /** True for a captured session, which has its agent's model calls where other trajectories have turns. */
  readonly isCaptured: boolean
  /**
   * Origin of a fork; null for a trajectory that is not a fork. `run` is null when the parent is in the same run;
   * `turn` is the first turn (in a captured session, the first call) that the parent does not share.
   */
  readonly forkOf: { readonly parent: string; readonly run: string | null; readonly turn: number } | null
  /** Ids of the trajectory's forks in the same run. */
  readonly forks: readonly string[]
  readonly calls: readonly ToolCallRecord[]
}

export interface TracedLineage {
  /** Step that the query's `asked` named; null when it named none. */
  readonly step: number | null
  /** `step.completed` of the step that the query named; null when that step has not completed or no step was named. */
  readonly completed: StepCompleted | null
  readonly published: WeightsPublished | null
  readonly lineages: readonly Lineage[]
}

export interface LineageQuery {
  /**
   * Step (`3`, `step 3`), group or trajectory to trace; a group or a trajectory also by a part of its id. Default: the
   * whole run.
   */
  readonly asked?: string
  /**
   * Selects the trajectories that have a tool call with this text in its arguments or its output, and of their calls
   * only those; case does not matter.
   */
  readonly text?: string
}

/**
 * Traces what `asked` and `text` select. @throws TroupeError replay.no_match, replay.ambiguous; replay.no_step for a
 * step that never started
 */
export async function traceLineage(recorded: RecordedRun, { asked, text }: LineageQuery): Promise<TracedLineage> {
  const tried = await triedSteps(recorded)
  const step = asked === undefined ? undefined : stepOf(asked)
  const wants = await wanted(recorded, asked, step, tried)
  const learned = await factsOf(recorded, 'learner', ['step.completed', 'weights.published'])
  const versions = new Map(learned.flatMap(f => (f.type === 'step.completed' ? [[f.step, f.version] as const] : [])))
  const forks = await forksIn(recorded)
  const sought = text?.toLowerCase()
  const lineages = (await readTrajectories(recorded, wants)).map((one): Lineage => {
    const last = tried.get(one.id)
    const trainedIn = last?.outcome === 'completed' ? last.step : null
    const fork = forks.find(f => f.child === one.id)
    const { selection, advantage } = selectionOf(one)
    return {
      trajectory: one.id,
      purpose: one.request.purpose,
      policyVersions: versionsOf(one),
      reward: one.reward?.reward ?? null,
      selection,
      advantage,
      trainedIn,
      triedIn: last === undefined || last.outcome === 'completed' ? null : { step: last.step, outcome: last.outcome },
      publishedAs: trainedIn === null ? null : (versions.get(trainedIn) ?? null),
      isCaptured: isCaptured(one),
      forkOf: fork === undefined ? null : { parent: fork.parent, run: fork.parentRun, turn: fork.turn },
      forks: forks.filter(f => f.parent === one.id && f.parentRun === null).map(f => f.child),
      calls: toolCallsOf(one).filter(call => sought === undefined || holdsText(call, sought)),
    }
  })
  return {
    step: step ?? null,
    completed: learned.find((f): f is StepCompleted => f.type === 'step.completed' && f.step === step) ?? null,
    published: learned.find((f): f is WeightsPublished => f.type === 'weights.published' && f.step === step) ?? null,
    lineages: lineages.filter(l => sought === undefined || l.calls.length > 0),
  }
}

const stepOf = (asked: string): number | undefined => {
  const match = /^(?:step[ -]?)?(\d{1,9})$/.exec(asked)
  return match === null ? undefined : Number(match[1])
}

async function wanted(
  recorded: RecordedRun,
  asked: string | undefined,
  step: number | undefined,
  tried: ReadonlyMap<TrajectoryId, TriedIn>,
): Promise<(id: string) => boolean> {
  if (asked === undefined) return () => true
  if (step === undefined) return resolveTarget(asked, await trajectoriesOf(recorded))
  const members = new Set<string>([...tried].filter(([, t]) => t.step === step).map(([id]) => id))
  if (members.size > 0) return id => members.has(id)
  const steps = [...new Set([...tried.values()].map(t => t.step))].join(', ') || 'none'
  throw replayError('no_step', `step ${step} never started`, `steps of this run: ${steps}`)
}

/** Returns the policy versions that sampled the trajectory's tokens, ascending. */
function versionsOf({ entries }: Trajectory): readonly number[] {
  const versions = new Set<number>()
  for (const { message } of entries) {
    if ('segments' in message) for (const s of message.segments) versions.add(s.policyVersion)
  }
  return [...versions].sort((a, b) => a - b)
}

function holdsText(call: ToolCallRecord, text: string): boolean {
  const { arguments: args, stdout, stderr, text: shown } = call
  const texts = [JSON.stringify(args), ...Object.values(args).map(String), stdout, stderr, shown]
  return texts.some(one => one.toLowerCase().includes(text))
}
