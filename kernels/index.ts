/** Exports the kernels: computations without clock or I/O. Randomness comes only from a given seed. */

export { type CallRow, callRows, trainedLabels } from './calls/callRows'
export {
  type CallNode,
  type CallTree,
  callTree,
  counts,
  emptyTree,
  type GrowingTree,
  growingTree,
  isCallFact,
  pathTo,
} from './calls/callTree'
export { expectedBest } from './expectedBest'
export { FairQueue } from './fairQueue'
export {
  equalIgnoringBlanks,
  /** @deprecated renamed to `equalIgnoringBlanks` */
  equalIgnoringBlanks as areSameBesideBlanks,
  hasAdjacentNumbers,
  /** @deprecated renamed to `hasAdjacentNumbers` */
  hasAdjacentNumbers as areSideBySide,
} from './grading/adjacentNumbers'
export {
  type AnswerPlace,
  answerText,
  countAnswerTags,
  extractAnswer,
  lastAnswer,
  type TextPlace,
  withoutSpecialTokens,
} from './grading/answerExtraction'
export {
  checkByArithmetic,
  /** @deprecated renamed to `checkByArithmetic` */
  checkByArithmetic as secondOpinion,
  sameNumber,
} from './grading/arithmeticCheck'
export { type NamedChoice, namedChoice } from './grading/choiceAnswer'
export { formatFault } from './grading/formatFault'
export { normalizeInteger, sameInteger } from './grading/integers'
export { isNumberLiteral } from './grading/numberLiteral'
export {
  equalBasedNumerals,
  /** @deprecated renamed to `equalBasedNumerals` */
  equalBasedNumerals as sameBased,
} from './grading/numeralBases'
export { numericValue } from './grading/numericValue'
export {
  normalizeUnicode,
  /** @deprecated renamed to `normalizeUnicode` */
  normalizeUnicode as inOneForm,
} from './grading/unicodeNormalization'
export {
  normalizeUnits,
  /** @deprecated renamed to `normalizeUnits` */
  normalizeUnits as inOneUnit,
} from './grading/unitNormalization'
export {
  compareWords,
  /** @deprecated renamed to `compareWords` */
  compareWords as sameWords,
} from './grading/wordComparison'
export { quantile } from './quantile'
export * from './random'
export * from './scheduling/contract'
export { GroupLengths, type GrowthOptions } from './scheduling/groupLengths'
export type { EngineAccount, EngineSpec, Holding, HoldingState, KvReport } from './scheduling/kvAccount'
export { kvHeadroom } from './scheduling/kvHeadroom'
export { leastRequests } from './scheduling/leastRequests'
export * from './scheduling/ledger'
export * from './scheduling/policy'
export * from './scheduling/scheduler'
export { staticPolicy } from './scheduling/static'
export { staticAsync } from './scheduling/staticAsync'
export * from './selection/advantages'
export { type OverlongOptions, overlongPunishment, overlongWithin } from './selection/overlong'
export * from './selection/roc'
export * from './simulator/calibrate'
export { type DrawnTurn, type TurnToDraw, turnDrawer } from './simulator/drawTurn'
export * from './simulator/engineModel'
export { baseLoad, h100, type Load, sweepLoads } from './simulator/loads'
export { type LowerBound, lowerBoundMs } from './simulator/lowerBound'
export type { History, TurnRequest } from './simulator/sequence'
export { type SchedulerEvent, type SimulationOptions, type SimulationResult, simulate } from './simulator/simulate'
export { type EndedTurn, SimulatedEngine } from './simulator/simulatedEngine'
export * from './simulator/trace'
export { baseShape, type WorkloadShape, workload } from './simulator/workload'
export { standardError } from './standardError'
export { parseExactJson, withNumbers } from './toolCalls/exactJson'
export * from './toolCalls/toolCalls'
export * from './toolCalls/toolText'
export * from './trainingSequence'
