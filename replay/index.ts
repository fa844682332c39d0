/**
 * Public exports of `troupe/replay`: functions that answer questions about the log of a run, and return data.
 *
 * `openLog` opens a log for reading; the functions that read a run take the opened log. Reading never changes a run,
 * and a live run can be read. `forkTrajectory` and `importRun` write new runs. `troupe replay` prints the results of
 * these functions.
 */
export { type ExportedCall, type ExportedRow, exportedRows } from './exchange/exportedRows'
export { type ExportedTrajectory, exportedTrajectory } from './exchange/exportedTrajectory'
export { type Fixture, fixtureOf, packFixture } from './exchange/fixture'
export { type Imported, type ImportOptions, importRun } from './exchange/importRun'
export { type SftConversation, type SftSelection, sftConversations } from './exchange/sftConversations'
export type { ChangedCell } from './fork/changedCells'
export { type ForkResult, forkResults, type TurnValue, turnValue } from './fork/forkResults'
export { type ForkedTrajectory, type ForkObserver, forkTrajectory } from './fork/forkTrajectory'
export type { ForkOptions, ForkPart, ForkPlan } from './fork/planForks'
export { checkHistory } from './histories/checkHistory'
export type { Violation as HistoryViolation, ViolationKind as HistoryViolationKind } from './histories/violation'
export type { LearnedStep } from './learning/learnedStep'
export { type TriedIn, triedSteps } from './learning/learnerLog'
export { type Lineage, type LineageQuery, type TracedLineage, traceLineage } from './learning/lineage'
export { type RaisedAlarm, type RaisedAlarms, raisedAlarms } from './learning/raisedAlarms'
export { type CheckedStep, type RelearnOptions, relearn } from './learning/relearn'
export { runProgress, stepsAndEvaluations } from './learning/runProgress'
export type { Fault as LogFault, FaultKind as LogFaultKind } from './log/faults'
export { type FollowRunOptions, followRun } from './log/followRun'
export { type Place as LogPlace, placeOf, placeText } from './log/place'
export { configOf } from './log/recordedConfig'
export { factsOf, type OpenLogOptions, openLog, type RecordedRun } from './log/recordedRun'
export { type ActorNode, type SupervisionTree, supervisionTrees } from './log/supervisionTrees'
export { type Condition as BreakCondition, conditionOf } from './rerun/breakpoint'
export { type Observer as ReplayObserver, type ReplayOptions, replayRun, replayTarget } from './rerun/replayRun'
export type { Divergence, Rerun, Stepped } from './rerun/rerunPartition'
export { type MeasuredTokens, measuredTokens } from './tokens/measuredTokens'
export { type SampledToken, type TopTable, topTable } from './tokens/topTokens'
export { diffTrajectories } from './trajectories/diffTrajectories'
export { listTrajectories, type TrajectoryFilter } from './trajectories/filter'
export { resolveId, resolveTarget, trajectoriesOf } from './trajectories/resolveId'
export { type ShownEntry, type ShownTrajectory, showTrajectory, trajectoryAt } from './trajectories/showTrajectory'
export type { TrajectorySummary } from './trajectories/summaries'
export { readTrajectories, readTrajectory, type Trajectory } from './trajectories/trajectory'
export type { Problem as VerificationProblem, Verification } from './verify/verification'
export { type VerifyOptions, verifyRun } from './verify/verifyRun'
export {
  explainSelection,
  type SelectionReport,
  type Variant as ExplainedVariant,
  type VariantResult as ExplainedResult,
} from './whatIf/explainSelection'
export { type Rescored, type RescoreOptions, rescoreTrajectories } from './whatIf/rescore'
export { type LimitedLine, type LimitsReport, whatIfLimits } from './whatIf/whatIfLimits'
export type { Link as WhyLink } from './why/answerers'
export type { Wait } from './why/chains'
export { type Explanation, explain, type SummedWait } from './why/explain'
export { gatherEvidence } from './why/gatherEvidence'
export type { Outcome as WhyOutcome } from './why/outcome'
export { whyRun } from './why/whyRun'
