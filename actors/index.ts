/**
 * The public surface of the actors (`troupe/actors`): the behaviours, their ports, and functions that host them in a
 * process. Importing this file loads no engine, sandbox or bus; each is loaded when it is first used.
 */
import type { Role, Run, RunOptions } from './run/run'

export { type CurriculumPlan, curriculum, type DrawRequest } from './curriculum/curriculum'
export { type EvaluatorState, evaluator } from './curriculum/evaluator'
export type { CurriculumState } from './curriculum/state'
export { type InferenceRequest, type InferenceState, inference } from './inference/inference'
export { inferenceKey, inferencePort } from './inference/inferencePort'
export { type Joined, type JoinOptions, joinEngine } from './inference/joinEngine'
export { type LearnerPlan, type LearnerRequest, type LearnerState, learner } from './learning/learner'
export { fence } from './ownership/fencing'
export { type CoordinatorOptions, type CoordinatorState, coordinator } from './rollouts/coordinator'
export {
  type GatheredGroup,
  type GrouperOptions,
  type GrouperState,
  grouper,
  oldestOpenGroup,
} from './rollouts/grouper'
export type { RenderRequest } from './rollouts/nextActions'
export { type OwnerState, oldestOpen, owner } from './rollouts/owner'
export { renderKey, renderPort } from './rollouts/renderPort'
export { type RewardedOptions, type RewardedRollout, rewardedRollout } from './rollouts/rewardedRollout'
export { type Lifeline, type LifelineOptions, type Living, lifeline } from './run/lifeline'
export { type Role, type Run, type RunOptions, roles } from './run/run'
export { type SchedulerState, scheduler } from './scheduling/scheduler'
export { type DispatcherOptions, type DispatcherState, dispatcher } from './tools/dispatcher'
export { type ExecutorOptions, type JoinedExecutor, joinExecutor } from './tools/joinExecutor'
export { pythonToolIn } from './tools/pythonTool'
export { toolExecutor } from './tools/toolExecutor'
export { type Tool, type ToolOutcome, toolKey, toolPort } from './tools/toolPort'
export { type Graders, type GradersOptions, openGraders } from './verification/graders'
export { mathGrader } from './verification/mathGrader'
export { verifier } from './verification/verifier'
export {
  type Grade,
  type Graded,
  type Grader,
  type GraderAsk,
  type Ungraded,
  verifierKey,
  verifierPort,
} from './verification/verifierPort'

/** Runs one role of a run (such as `learner` or `inference`) in this process; other processes run the other roles. */
export const joinRun = (options: RunOptions & { readonly role: Exclude<Role, 'all'> }): Promise<Run> =>
  (require('./run/joinRun') as typeof import('./run/joinRun')).joinRun(options)

/** Runs a whole run in this process: its supervision tree with the actors of all roles. */
export const startRun = (options: RunOptions): Promise<Run> =>
  (require('./run/root') as typeof import('./run/root')).startRun(options)
