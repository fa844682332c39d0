/**
 * Who acts: the behaviours, the ports to what they drive, and what puts them into someone's process. The public surface
 * (`troupe/actors`). Nothing here loads an engine, a sandbox or a bus before it is used.
 */
import type { Role, Run, RunOptions } from './run'

export type { RenderRequest } from './asks'
export { type CoordinatorOptions, type CoordinatorState, coordinator } from './coordinator'
export { type CurriculumPlan, curriculum, type DrawRequest } from './curriculum'
export type { CurriculumState } from './curriculumState'
export { type DispatcherOptions, type DispatcherState, dispatcher } from './dispatcher'
export { type EvaluatorState, evaluator } from './evaluator'
export { fence } from './fenced'
export { type GatheredGroup, type GrouperOptions, type GrouperState, grouper, oldestOpenGroup } from './grouper'
export { type InferenceRequest, type InferenceState, inference } from './inference'
export { type Joined, type JoinOptions, joinEngine } from './joinEngine'
export { type ExecutorOptions, type JoinedExecutor, joinExecutor } from './joinExecutor'
export { type LearnerPlan, type LearnerRequest, type LearnerState, learner } from './learner'
export { type Lifeline, type LifelineOptions, type Living, lifeline } from './lifeline'
export { type OwnerState, oldestOpen, owner } from './owner'
export { type Graders, type GradersOptions, openGraders } from './ports/graders'
export { inferenceKey, inferencePort } from './ports/inferencePort'
export { mathGrader } from './ports/mathGrader'
export { pythonToolIn } from './ports/pythonTool'
export { renderKey, renderPort } from './ports/renderPort'
export { type Tool, type ToolOutcome, toolKey, toolPort } from './ports/toolPort'
export {
  type Grade,
  type Graded,
  type Grader,
  type GraderAsk,
  type Ungraded,
  verifierKey,
  verifierPort,
} from './ports/verifierPort'
export { type RewardedOptions, type RewardedRollout, rewardedRollout } from './rewardedRollout'
export { type Role, type Run, type RunOptions, roles } from './run'
export { type SchedulerState, scheduler } from './scheduler'
export { toolExecutor } from './toolExecutor'
export { verifier } from './verifier'

/** One role of a run, in this process. */
export const joinRun = (options: RunOptions & { readonly role: Exclude<Role, 'all'> }): Promise<Run> =>
  (require('./joinRun') as typeof import('./joinRun')).joinRun(options)

/** The whole tree of a run. */
export const startRun = (options: RunOptions): Promise<Run> =>
  (require('./root') as typeof import('./root')).startRun(options)
