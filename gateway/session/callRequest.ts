/**
 * An agent's request in the canonical form into which every dialect is parsed.
 *
 * in   a body that a dialect has parsed        out  the request, and the digest by which its retries are recognised
 */
import type { ToolSchema } from '../../config/toolSchema'
import type { Dialect } from '../../messages/facts'
import type { LabelHints } from '../conversation/label'
import { digestOf, type Message } from '../conversation/message'

export interface CallRequest {
  readonly dialect: Dialect
  readonly model: string
  readonly tools: readonly ToolSchema[]
  readonly messages: readonly Message[]
  /** Upper bound on the answer's tokens that the client asks for. */
  readonly maxTokens?: number | undefined
  /**
   * Further parameters of the client, which are recorded. Only evaluations outside a run apply temperature and top_p.
   */
  readonly asked: Readonly<Record<string, unknown>>
  readonly hints: Pick<LabelHints, 'said' | 'lane' | 'parentLane'>
  /** True if the client's library says that it repeats a request. */
  readonly isRetry: boolean
}

/** Returns the digest by which a request's retries are recognised. @param digests of its tools and messages, joined */
export function requestDigest({ dialect, model, maxTokens }: CallRequest, digests: string): string {
  return digestOf(JSON.stringify([dialect, model, maxTokens ?? null, digests]))
}
