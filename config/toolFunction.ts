/** Type of a tool that a recipe defines as a function, and of the context that each of its calls receives. */

export interface ToolContext {
  /** Aborted when the call's deadline passes or the call is given up, such as at the end of the run. */
  readonly signal: AbortSignal
  readonly timeoutMs: number
  /** Id `group/member` of the calling rollout; a function may keep state for one rollout only. */
  readonly trajectory: string
  /**
   * Key that is equal for every attempt of this call, since a call whose answer is lost is made again. A function
   * should apply outside effects once per key.
   */
  readonly idempotencyKey: string
}

/**
 * A user's tool. Its arguments have passed the tool's schema. Its return value, a text or JSON, is the tool's output;
 * an error that it throws becomes an error of the call, which the model reads. It runs in the process of the tool
 * executor.
 */
export type ToolFunction = (args: Readonly<Record<string, unknown>>, context: ToolContext) => unknown
