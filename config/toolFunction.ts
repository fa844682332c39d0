/** Tools that a recipe brings as functions: what they are given, and what they may say. */

export interface ToolContext {
  /** Aborted when the call's deadline has passed, or the run ends. */
  readonly signal: AbortSignal
  readonly timeoutMs: number
  /** `group/member` of the rollout that calls: what a function keeps, it keeps for one of them. */
  readonly trajectory: string
  /** The same for every attempt of this call: an answer that was lost is asked again. Have effects outside once for a key. */
  readonly idempotencyKey: string
}

/**
 * A user's tool. Its arguments were checked against its schema. What it returns is the tool's output, as it is or as JSON; what
 * it throws is an error of the call, which the model is shown. It shares the process of the tool executor.
 */
export type ToolFunction = (args: Readonly<Record<string, unknown>>, context: ToolContext) => unknown
