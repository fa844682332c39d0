/**
 * The places of a call at which it waits for something outside of it, by name, so that a test can end the gateway at each.
 *
 * session.found: before the body is read. request.read: before the call is placed. call.placed: before call.started is
 * appended. call.started: once it is durable, before an engine is asked. tokens.streamed: after an engine's first tokens.
 * engine.answered: before call.finished is appended. call.finished: once it is durable, before the answer is written.
 * answer.written: before the connection has taken it. answer.flushed: after that.
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

/** Called at each point; the call goes on when it resolves. */
export type AtPoint = (point: CallPoint) => Promise<void> | undefined
