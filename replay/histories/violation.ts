/**
 * A breach of the rules of ownership in a log; `ViolationKind` lists the kinds.
 */

/**
 * two-owners, two-learners, two-curricula: another process than the one that made the claim wrote under its epoch.
 * two-schedulers: a replaced scheduler assigned a rollout that was asked for after its replacement.
 * unknown-epoch: a fact carries an epoch that no claim made.
 * former-answer: a decision follows from an answer, a request or a selection that does not count.
 */
export type ViolationKind =
  | 'two-owners'
  | 'two-learners'
  | 'two-curricula'
  | 'two-schedulers'
  | 'unknown-epoch'
  | 'former-answer'

export interface Violation {
  readonly kind: ViolationKind
  /**
   * Positions (topic:partition:offset): first the claim or the ignored fact, last the fact that shows the violation. A
   * violation of the kind `unknown-epoch` has no claim, so it lists only the fact.
   */
  readonly places: readonly string[]
  readonly message: string
}
