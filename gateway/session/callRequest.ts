/**
 * A request of an agent, in the one form that all dialects are read into.
 *
 * in   a dialect's reading of a body        out  the request, and the digest by which its retries are known
 */
import { hash } from 'node:crypto'
import type { ToolSchema } from '../../config/toolSchema'
import type { Dialect } from '../../messages/facts'
import type { LabelHints } from '../conversation/label'
import { canonicalJson, type Message } from '../conversation/message'

export interface CallRequest {
  readonly dialect: Dialect
  readonly model: string
  readonly tools: readonly ToolSchema[]
  readonly messages: readonly Message[]
  /** Upper bound on the answer's tokens that the client asks for. */
  readonly maxTokens?: number
  /**
   * Further parameters of the client, which are recorded. Only evaluations outside a run apply temperature and top_p.
   */
  readonly asked: Readonly<Record<string, unknown>>
  readonly hints: Pick<LabelHints, 'said' | 'lane' | 'parentLane'>
  /** True if the client's library says that it repeats a request. */
  readonly isRetry: boolean
}

/** @param tools canonical JSON of the request's tools */
export function digestOf({ dialect, model, messages, maxTokens }: CallRequest, tools: string): string {
  return hash('sha256', canonicalJson([dialect, model, messages, maxTokens ?? null]) + tools, 'hex')
}
