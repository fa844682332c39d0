/**
 * Makes the facts of a call: `call.started`, and `call.finished` for its answer or its failure.
 *
 * in   a request at its place; what an engine generated        out  `call.started`, `call.finished`
 * A fact is one plain literal, unless it has `opensThinking` or `entropies`: V8 gives an object that grows after a spread
 * a hidden class of its own, which takes microseconds and about 500 bytes for each call, and slows every later access.
 */
import type { CallFinished, CallStarted } from '../../messages/facts'
import { engineId } from '../../messages/ids'
import { deriveSeed } from '../../runtime/effects'
import { type LabelContext, labelOf } from '../conversation/label'
import type { PoolGeneration } from '../engines/enginePool'
import type { CallRequest } from './callRequest'
import type { Placed } from './placement'
import type { SessionState } from './session'

const noTiming = { queuedAt: 0, startedAt: 0, firstTokenAt: 0, endedAt: 0 }

/** Makes `call.started`. @param given fields that session and request lack; `tools`: those offered, canonical JSON */
export function startedFact(
  session: SessionState,
  request: CallRequest,
  { parent, branch, messages, tokens, context }: Placed,
  given: Pick<CallStarted, 'at' | 'digest' | 'tools' | 'sampling' | 'maxTokens'> & { readonly opensThinking: boolean },
): CallStarted {
  const { tree } = session.calls
  const { lane } = request.hints
  const started: CallStarted = {
    type: 'call.started',
    at: given.at,
    trajectory: session.id,
    opening: tree.opened!.opening,
    call: tree.nextCall,
    attempt: 0,
    dialect: request.dialect,
    model: request.model,
    label: labelIn(session, request, parent, branch),
    parent,
    branch,
    digest: given.digest,
    messages: JSON.stringify(messages),
    tools: parent === null ? given.tools : '',
    tokens,
    contextTokens: context.length,
    sampling: given.sampling,
    seed: deriveSeed(session.request.seed, tree.nextCall),
    maxTokens: given.maxTokens,
    asked: lane === undefined ? request.asked : { ...request.asked, 'x-session-id': lane },
  }
  return given.opensThinking ? { ...started, opensThinking: true } : started
}

function labelIn(
  { calls, first }: SessionState,
  { hints, model, tools, messages }: CallRequest,
  parent: number | null,
  branch: CallStarted['branch'],
): CallStarted['label'] {
  const lane = first?.asked['x-session-id']
  const context: LabelContext = {
    branch,
    ...(parent === null ? {} : { continued: calls.tree.nodes.get(parent)!.started.label }),
    ...(first === null
      ? {}
      : { first: { hasTools: first.tools !== '[]', ...(typeof lane === 'string' ? { lane } : {}) } }),
  }
  return labelOf({ ...hints, model, hasTools: tools.length > 0, messages: messages.length }, context)
}

/** Makes `call.finished` of an answered call. @param text text of the whole answer, over all attempts */
export function answeredFact(
  { trajectory, call, attempt }: CallStarted,
  { engine, tokens, logprobs, entropies, finish, segments, cachedTokens, preemptions, timing }: PoolGeneration,
  text: string,
  at: number,
): CallFinished {
  const finished: CallFinished = {
    type: 'call.finished',
    at,
    trajectory,
    call,
    attempt,
    engine,
    tokens,
    logprobs,
    text,
    finish,
    error: '',
    segments,
    cachedTokens,
    preemptions,
    timing,
  }
  return entropies === undefined ? finished : { ...finished, entropies }
}

export function failedFact({ trajectory, call, attempt }: CallStarted, error: string, at: number): CallFinished {
  return {
    type: 'call.finished',
    at,
    trajectory,
    call,
    attempt,
    engine: engineId('none'),
    tokens: new Int32Array(),
    logprobs: new Float32Array(),
    text: '',
    finish: 'failed',
    error,
    segments: [],
    cachedTokens: 0,
    preemptions: 0,
    timing: noTiming,
  }
}
