/**
 * Names of the points of a call at which a test can hold the call, or end the gateway.
 *
 * session.found: before the body is read. request.read: before the call is placed. call.placed: before call.started is
 * appended. call.started: once it is durable; an engine is asked meanwhile. tokens.streamed: at an engine's first
 * tokens; the call does not wait at this point. engine.answered: before call.finished is appended. call.finished: once
 * it is durable, before the answer is written. answer.written: before the connection has taken the answer.
 * answer.flushed: after the connection has taken it, or was closed.
 */
export const callPoints = [
  'session.found',
  'request.read',
  'call.placed',
  'call.started',
  'tokens.streamed',
  'engine.answered',
  'call.finished',
  'answer.written',
  'answer.flushed',
] as const

export type CallPoint = (typeof callPoints)[number]

/** Called at each point; the call goes on when it resolves (at tokens.streamed: at once). */
export type AtPoint = (point: CallPoint) => Promise<void> | undefined
