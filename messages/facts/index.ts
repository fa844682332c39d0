/**
 * Facts: what has happened in a run, in past tense. A run's state is rebuilt only from its facts.
 * Every fact has a `type`, the time `at` (the writer's clock, ms since 1970; in `record.refused` the time of the
 * refused record) and a derived key (`factKey`): a fact that is delivered or written twice has the same key both times.
 */
import type { CallFact } from './calls'
import type { LearnerFact } from './learner'
import type { RunFact } from './run'
import type { TrajectoryFact } from './trajectory'

export * from './calls'
export * from './claims'
export * from './files'
export * from './learner'
export * from './request'
export * from './run'
export * from './trajectory'

export type Fact = TrajectoryFact | CallFact | LearnerFact | RunFact
