/** All facts, and what every one of them has: a type, a time, and a name that repeats when the fact does. */
import type { LearnerFact } from './learner'
import type { RunFact } from './run'
import type { TrajectoryFact } from './trajectory'

export * from './learner'
export * from './request'
export * from './run'
export * from './trajectory'

export type Fact = TrajectoryFact | LearnerFact | RunFact
