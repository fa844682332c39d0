/**
 * The state of one captured session: its tree of calls, where a new request continues it, its reward and its end.
 *
 * in   facts of the session, in the log's order        out  the state
 * Invariant: the facts and the option `strippedThinking` determine the state, so a restarted gateway has the same state
 * as before. Exceptions: `told`, `exhausted` and the number of the next call, which `Sessions.adopt` sets. They matter
 * only inside a run, whose agents end with this process.
 */
import { countAnswerTags, type GrowingTree, growingTree, pathTo } from '../../kernels'
import type {
  CallFact,
  CallFinished,
  CallStarted,
  Fact,
  RewardAssigned,
  RolloutFinished,
  RolloutRequested,
} from '../../messages/facts'
import type { Epoch, TrajectoryId } from '../../messages/ids'
import { answerOf } from '../conversation/answer'
import { ConversationIndex, type ConversationIndexOptions } from '../conversation/conversationIndex'
import type { AssistantMessage, Message } from '../conversation/message'

export interface SessionState {
  readonly id: TrajectoryId
  readonly request: RolloutRequested
  readonly calls: GrowingTree
  index: ConversationIndex
  /** Latest call of each request digest. */
  readonly byDigest: Map<string, number>
  /** Calls by the id of their answer. A fork's copies have the ids of the calls that they copy. */
  readonly byAnswer: Map<string, number>
  /** First call of the latest opening; if it offers no tools, the first call with tools that continues no other. */
  first: CallStarted | null
  ended: RolloutFinished | null
  reward: RewardAssigned | null
  /** In a run, the agent's own report that it has ended: its calls are refused from then on. */
  told: { readonly outcome: SessionEnding; readonly reason: string } | null
  /** Limit of the rollout for which a call was refused (`limits.turns`, or tokens of the context); null if none was. */
  exhausted: 'turns' | 'tokens' | null
}

export type SessionEnding = 'done' | 'failed' | 'timeout' | 'cancelled'

export const newSession = (request: RolloutRequested, options: ConversationIndexOptions): SessionState => ({
  id: request.trajectory,
  request,
  calls: growingTree(),
  index: new ConversationIndex(options),
  byDigest: new Map(),
  byAnswer: new Map(),
  first: null,
  ended: null,
  reward: null,
  told: null,
  exhausted: null,
})

const sessionFacts: ReadonlySet<string> = new Set<Fact['type']>([
  ...(['session.opened', 'call.started', 'call.finished', 'call.delivered'] as const),
  ...(['reward.assigned', 'rollout.finished'] as const),
])
export type SessionFact = CallFact | RewardAssigned | RolloutFinished
export const isSessionFact = (fact: { readonly type: string }): fact is SessionFact => sessionFacts.has(fact.type)

/** Applies a fact of the session; returns false for a fact that repeats an earlier one, or does not count. */
export function applyFact(session: SessionState, fact: SessionFact, options: ConversationIndexOptions): boolean {
  switch (fact.type) {
    case 'reward.assigned':
      if (session.reward !== null) return false
      session.reward = fact
      return true
    case 'rollout.finished':
      if (session.ended !== null) return false
      session.ended = fact
      return true
    case 'session.opened':
      if (!session.calls.add(fact)) return false
      session.index = new ConversationIndex(options)
      session.byDigest.clear()
      session.byAnswer.clear()
      session.first = null
      return true
    case 'call.started': {
      const isAgain = session.calls.tree.nodes.has(fact.call)
      if (!session.calls.add(fact)) return false
      session.byDigest.set(fact.digest, fact.call)
      session.byAnswer.set(answerId(fact), fact.call)
      if (isFirst(session.first, fact)) session.first = fact
      // The prompt of a text completion is not a conversation, so no other call continues it.
      if (!isAgain && fact.dialect !== 'completions')
        session.index.addRequest(fact.call, fact.parent, toolsOf(session, fact), messagesOf(fact))
      return true
    }
    case 'call.finished':
      if (!session.calls.add(fact)) return false
      if (fact.finish === 'failed' || session.calls.tree.nodes.get(fact.call)!.started.dialect === 'completions')
        return true
      session.index.addAnswer(fact.call, answerTo(session, fact.call)!)
      return true
    case 'call.delivered':
      return session.calls.add(fact)
  }
}

/** True for an opening's first call, and, if that had no tools (a title, say), for the first root call with tools. */
const isFirst = (first: CallStarted | null, { branch, parent, tools }: CallStarted): boolean =>
  first === null ? branch === 'first' : first.tools === '[]' && parent === null && tools !== '[]'

const messagesByCall = new WeakMap<CallStarted, readonly Message[]>()

/** Messages of a call's request that follow its parent and the parent's answer. */
export function messagesOf(started: CallStarted): readonly Message[] {
  const known = messagesByCall.get(started)
  if (known !== undefined) return known
  const read = JSON.parse(started.messages) as Message[]
  messagesByCall.set(started, read)
  return read
}

/** Caches messages that were just written, so that `messagesOf` need not parse them. */
export function recordMessages(started: CallStarted, written: readonly Message[]): void {
  messagesByCall.set(started, written)
}

/** Canonical JSON of the tools that the call offered. */
export function toolsOf({ calls }: Pick<SessionState, 'calls'>, started: CallStarted): string {
  for (let at = started; ; ) {
    if (at.tools !== '') return at.tools
    const parent = at.parent === null ? undefined : calls.tree.nodes.get(at.parent)
    if (parent === undefined) return '[]'
    at = parent.started
  }
}

/** Call whose ids clients know: a fork's copies keep the ids of the calls that they copy. */
const originalOf = (started: CallStarted) => started.copyOf ?? started

const plainId = (session: TrajectoryId): string => session.replace(/[^A-Za-z0-9]/g, '_')

/** Id by which a client names a tool call: it follows from the session, the call and the index, and so from the log. */
function toolUseId(started: CallStarted, index: number): string {
  const { trajectory, call } = originalOf(started)
  return `call_${plainId(trajectory).slice(-24)}_${call}_${index}`
}

/** Id of a call's answer, without its dialect's prefix. It contains the session's id, since such ids must be unique. */
export function answerId(started: CallStarted): string {
  const { trajectory, call } = originalOf(started)
  return `${plainId(trajectory)}_${call}`
}

/** Number of the answered call whose answer has this id, without its dialect's prefix; undefined if there is none. */
export function callOf({ calls, byAnswer }: Pick<SessionState, 'calls' | 'byAnswer'>, id: string): number | undefined {
  const call = byAnswer.get(id)
  return call !== undefined && calls.tree.nodes.get(call)?.finished != null ? call : undefined
}

const answers = new WeakMap<CallFinished, AssistantMessage>()

/** Reads the answer of a call; undefined if it has none. */
export function answerTo(session: Pick<SessionState, 'calls'>, call: number): AssistantMessage | undefined {
  const node = session.calls.tree.nodes.get(call)
  if (node?.finished == null) return undefined
  const { started, finished } = node
  const known = answers.get(finished)
  if (known !== undefined) return known
  const answer = answerOf(finished.text, {
    hasTools: toolsOf(session, started) !== '[]',
    opensThinking: started.opensThinking === true,
    idOf: index => toolUseId(started, index),
  })
  answers.set(finished, answer)
  return answer
}

/**
 * Returns all messages up to a call's answer, for requests that name the call instead of sending its history. The
 * instructions of the requests are left out: they do not apply to the next one.
 */
export function historyOf(session: Pick<SessionState, 'calls'>, call: number): readonly Message[] {
  return pathTo(session.calls.tree, call).flatMap(({ started, finished }) => {
    const answer = finished === null ? undefined : answerTo(session, started.call)
    const messages = messagesOf(started).slice(started.parent === null && started.asked.instructions === true ? 1 : 0)
    return [...messages, ...(answer === undefined ? [] : [answer])]
  })
}

/** Counts for `rollout.finished`: answered calls, sampled tokens, and the tool results that the agent sent back. */
export function countsOf(session: SessionState) {
  let turns = 0
  let sampledTokens = 0
  let toolCalls = 0
  let toolErrors = 0
  const texts: string[] = []
  for (const { started, finished } of session.calls.tree.nodes.values()) {
    if (finished !== null && finished.finish !== 'failed') {
      turns++
      sampledTokens += finished.tokens.length
      texts.push(finished.text)
    }
    for (const message of messagesOf(started)) {
      if (message.role !== 'tool') continue
      toolCalls++
      if (message.isError === true) toolErrors++
    }
  }
  return { turns, sampledTokens, toolCalls, toolErrors, text: texts.join('\n') }
}

/**
 * Facts of the session's end. Groups and readers count a reward only after the rollout's end: a reward that came
 * earlier is repeated after it, unchanged.
 */
export function endFacts(
  session: SessionState,
  { outcome, reason }: Pick<RolloutFinished, 'outcome' | 'reason'>,
  epoch: Epoch,
  at: number,
): readonly (RolloutFinished | RewardAssigned)[] {
  const { text, ...counts } = countsOf(session)
  const finished: RolloutFinished = {
    ...{ type: 'rollout.finished', at, trajectory: session.id, epoch, ...counts },
    ...{ outcome, reason, answerTags: countAnswerTags(text) },
  }
  return session.reward === null ? [finished] : [finished, session.reward]
}
