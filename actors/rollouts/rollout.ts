/**
 * State of one rollout as the coordinator sees it, and the facts that change it.
 *
 * in   the facts of one trajectory        out  its state
 * Invariant: an answer to a turn or a tool call counts only for the attempt asked last (a refused call has one answer,
 * of any attempt); of several rewards the first counts. A decision of a coordinator counts only under the current epoch
 * (offset of the latest claim of the partition); the coordinator checks the epoch of `group.closed`. A fact that does
 * not count leaves the state object the same.
 */

import { deadlineOf, environmentTools, submitTool } from '../../environments/tools/schemas'
import { countAnswerTags, parseToolCalls, resolveCalls } from '../../kernels'
import type { Fact, Outcome, PastCall, RolloutRequested, ToolCompleted } from '../../messages/facts'
import type { EngineId, Epoch } from '../../messages/ids'
import { notebookTool } from '../../sandbox/tools/notebookTool'
import { evolveLed, isLedFact, type Led, notOpened } from './led'

export interface Call {
  readonly tool: string
  readonly arguments: Readonly<Record<string, unknown>>
  /** Result of a call that cannot be executed (malformed, or the tool is unknown); null for a call that can. */
  readonly refused: { readonly status: 'malformed' | 'unknown-tool'; readonly text: string } | null
  /** Number of the call's latest attempt; -1 before the first. */
  readonly attempt: number
  readonly askedAt: number
  /** The tool's answer as the model reads it; null until the answer has arrived. */
  readonly response: string | null
}

/**
 * Phase of a rollout. turn: a generation is due or running. tools: calls are due or running. append: the calls' answers
 * are being rendered. ended: no further turn follows, for the reason in `ending`. finished: `rollout.finished` is in
 * the log.
 */
type Phase = 'turn' | 'tools' | 'append' | 'ended' | 'finished'

export interface Ending {
  readonly outcome: Outcome
  readonly reason: string
}

export interface Rollout {
  readonly request: RolloutRequested
  readonly phase: Phase
  readonly turn: number
  /** Number of the current turn's latest attempt; -1 before the first. */
  readonly attempt: number
  readonly askedAt: number
  /** True once the rollout's first turn went to an engine; before that, the turn waits in the scheduler's queue. */
  readonly started: boolean
  /** True while the latest attempt of the turn has no answer. */
  readonly open: boolean
  /** Number of attempts in a row that were interrupted without a sampled token, for any reason except an abort. */
  readonly faults: number
  readonly engine: EngineId | null
  /** All tokens before the current turn, as a list of pieces. */
  readonly context: readonly Int32Array[]
  readonly contextTokens: number
  /** Tokens of the current turn that interrupted attempts have sampled. */
  readonly partial: readonly Int32Array[]
  readonly partialTokens: number
  readonly texts: readonly string[]
  readonly sampledTokens: number
  readonly calls: readonly Call[]
  /** Code of the notebook cells in calls of earlier turns, oldest first. */
  readonly cells: readonly string[]
  /** Calls that have run in the task's environment, oldest first; none for a task without one. */
  readonly past: readonly PastCall[]
  /** True once a call of `submit` in the current turn has succeeded and no step of the task follows. */
  readonly submitted: boolean
  readonly toolCalls: number
  readonly toolErrors: number
  readonly ending: Ending | null
  readonly verifyAttempt: number
  readonly rewarded: boolean
  /** Present if an agent drives the rollout, through the gateway. */
  readonly led?: Led
}

/** Value of `faults` at which the rollout fails. */
const maxFaults = 5

/** Makes the state of a new rollout. `led`: given if an agent drives the rollout from its beginning. */
export function newRollout(request: RolloutRequested, led?: Led): Rollout {
  return {
    request,
    phase: 'turn',
    turn: 0,
    attempt: -1,
    askedAt: 0,
    started: false,
    open: false,
    faults: 0,
    engine: null,
    context: [request.tokens],
    contextTokens: request.tokens.length,
    partial: [],
    partialTokens: 0,
    texts: [],
    sampledTokens: 0,
    calls: [],
    cells: [],
    past: [],
    submitted: false,
    toolCalls: 0,
    toolErrors: 0,
    ending: null,
    verifyAttempt: 0,
    rewarded: false,
    ...(led === undefined ? {} : { led }),
  }
}

/**
 * Returns the number of tokens after the prompt, those that interrupted attempts of the current turn sampled included;
 * if an agent drives the rollout, the number of its sampled tokens.
 */
export const responseTokens = (rollout: Rollout): number =>
  rollout.led === undefined
    ? rollout.contextTokens + rollout.partialTokens - rollout.request.tokens.length
    : rollout.sampledTokens

/**
 * Returns the number of tokens that the rollout may still grow by, 0 or less if none; tokens that interrupted attempts
 * of the current turn sampled are already subtracted.
 */
export function tokensLeft(rollout: Rollout): number {
  const { limits } = rollout.request
  const used = rollout.contextTokens + rollout.partialTokens
  return Math.min(limits.contextTokens - used, limits.responseTokens - responseTokens(rollout))
}

const end = (rollout: Rollout, outcome: Outcome, reason: string): Rollout => ({
  ...rollout,
  phase: 'ended',
  open: false,
  ending: { outcome, reason },
})

/**
 * Decides whether tool calls or the end follow a finished generation (arXiv 2508.20722 §2.1, and the paper's released
 * code).
 */
function afterTurn(rollout: Rollout, text: string, finish: 'stop' | 'length'): Rollout {
  const { limits, tools } = rollout.request
  if (finish === 'length') return end(rollout, 'truncated', 'tokens')
  const parsed = parseToolCalls(text)
  if (parsed.calls.length === 0) return end(rollout, 'answered', parsed.unclosed ? 'unclosed-call' : 'stop')
  if (rollout.turn + 1 >= limits.turns) return end(rollout, 'truncated', 'turns')
  const unasked = { attempt: -1, askedAt: 0, response: null }
  const calls = resolveCalls(parsed.calls, tools, limits.callsPerTurn).resolved.map((call): Call => {
    if (call.kind === 'ready') return { tool: call.tool, arguments: call.arguments, refused: null, ...unasked }
    return { tool: call.tool, arguments: {}, refused: { status: call.status, text: call.text }, ...unasked }
  })
  return { ...rollout, phase: 'tools', calls }
}

function withCall(rollout: Rollout, index: number, change: Partial<Call>): Rollout {
  return { ...rollout, calls: rollout.calls.map((call, i) => (i === index ? { ...call, ...change } : call)) }
}

const isLed = (rollout: Rollout): rollout is Rollout & { readonly led: Led } => rollout.led !== undefined

/** Applies one fact of this trajectory; returns the same state object if the fact does not count. */
export function evolveRollout(rollout: Rollout, fact: Fact, epoch: Epoch): Rollout {
  if (isLedFact(fact) && (rollout.led !== undefined || fact.type === 'session.opened')) {
    if (rollout.phase !== 'turn') return rollout
    return evolveLed(isLed(rollout) ? rollout : { ...rollout, led: notOpened }, fact)
  }
  switch (fact.type) {
    case 'turn.asked': {
      const fits = rollout.phase === 'turn' && fact.turn === rollout.turn && fact.attempt > rollout.attempt
      if (!fits || fact.epoch !== epoch) return rollout
      return { ...rollout, attempt: fact.attempt, askedAt: fact.at, open: true }
    }
    case 'rollout.started':
      // `turnTimeoutMs` of the first turn counts from its assignment, not from the request, which may wait in a queue.
      return rollout.started || rollout.phase !== 'turn'
        ? rollout
        : { ...rollout, started: true, askedAt: Math.max(rollout.askedAt, fact.at) }
    case 'turn.interrupted': {
      if (!rollout.open || fact.turn !== rollout.turn || fact.attempt !== rollout.attempt) return rollout
      const partial = fact.tokens.length > 0 ? [...rollout.partial, fact.tokens] : rollout.partial
      const fault = fact.reason !== 'aborted' && fact.tokens.length === 0
      const next: Rollout = {
        ...rollout,
        open: false,
        faults: fault ? rollout.faults + 1 : 0,
        engine: fact.reason === 'aborted' ? fact.engine : null,
        partial,
        partialTokens: rollout.partialTokens + fact.tokens.length,
        sampledTokens: rollout.sampledTokens + fact.tokens.length,
      }
      // Another attempt would be refused for the same reason, so the rollout fails at once.
      if (fact.reason === 'too-long' || fact.reason === 'not-recorded')
        return end(next, 'failed', `engine: ${fact.error}`)
      return next.faults >= maxFaults ? end(next, 'failed', `engine: ${fact.error}`) : next
    }
    case 'turn.completed': {
      if (!rollout.open || fact.turn !== rollout.turn || fact.attempt !== rollout.attempt) return rollout
      const grown: Rollout = {
        ...rollout,
        open: false,
        faults: 0,
        engine: fact.engine,
        context: [...rollout.context, ...rollout.partial, fact.tokens],
        contextTokens: rollout.contextTokens + rollout.partialTokens + fact.tokens.length,
        partial: [],
        partialTokens: 0,
        texts: [...rollout.texts, fact.text],
        sampledTokens: rollout.sampledTokens + fact.tokens.length,
      }
      return afterTurn(grown, fact.text, fact.finish)
    }
    case 'tool.asked': {
      const call = rollout.calls[fact.call]
      const fits = rollout.phase === 'tools' && fact.turn === rollout.turn && call?.response === null
      if (!fits || fact.epoch !== epoch || fact.attempt <= call.attempt) return rollout
      return withCall(rollout, fact.call, { attempt: fact.attempt, askedAt: fact.at })
    }
    case 'tool.completed': {
      const call = rollout.calls[fact.call]
      if (rollout.phase !== 'tools' || fact.turn !== rollout.turn || call?.response !== null) return rollout
      if (call.refused === null && fact.attempt !== call.attempt) return rollout
      const answered = withCall(rollout, fact.call, { response: fact.text })
      const next: Rollout = {
        ...answered,
        past: actsOnFiles(rollout, call) ? [...rollout.past, pastCall(call, fact)] : rollout.past,
        submitted: rollout.submitted || (isSubmit(rollout, call) && fact.status === 'ok' && fact.step?.over !== false),
        toolCalls: rollout.toolCalls + 1,
        toolErrors: rollout.toolErrors + (fact.status === 'ok' ? 0 : 1),
      }
      if (next.calls.some(({ response }) => response === null)) return next
      return next.submitted ? end(next, 'answered', submitTool.name) : { ...next, phase: 'append' }
    }
    case 'context.appended': {
      if (rollout.phase !== 'append' || fact.turn !== rollout.turn || fact.epoch !== epoch) return rollout
      const next: Rollout = {
        ...rollout,
        phase: 'turn',
        turn: rollout.turn + 1,
        attempt: -1,
        calls: [],
        cells: [...rollout.cells, ...cellsOf(rollout.calls)],
        context: [...rollout.context, fact.tokens],
        contextTokens: rollout.contextTokens + fact.tokens.length,
      }
      return tokensLeft(next) < 1 ? end(next, 'truncated', 'tokens') : next
    }
    case 'group.closed':
      return rollout.phase === 'finished' || rollout.phase === 'ended'
        ? rollout
        : end(rollout, 'failed', 'group-closed')
    case 'rollout.finished':
      if (rollout.phase === 'finished' || fact.epoch !== epoch) return rollout
      return {
        ...rollout,
        phase: 'finished',
        ending: { outcome: fact.outcome, reason: fact.reason },
        context: [],
        partial: [],
        askedAt: fact.at,
      }
    case 'reward.assigned':
    case 'reward.failed':
      return rollout.rewarded || rollout.phase !== 'finished' ? rollout : { ...rollout, rewarded: true, texts: [] }
    default:
      return rollout
  }
}

/** Lists the code of those `calls` that run in the notebook and were not refused, in their order. */
export const cellsOf = (calls: readonly Call[]): readonly string[] =>
  calls.flatMap(({ tool, refused, arguments: { code } }) =>
    tool === notebookTool.name && refused === null && typeof code === 'string' ? [code] : [],
  )

/** Returns true for a call that runs in the task's environment. Such calls of a turn run one after the other. */
export const actsOnFiles = ({ request }: Pick<Rollout, 'request'>, { tool, refused }: Call): boolean =>
  request.task.environment !== undefined &&
  refused === null &&
  (environmentTools.has(tool) || (tool === submitTool.name && request.task.environment.steps !== undefined))

/** Time in ms that the call may take: the limit `toolTimeoutMs`; for `submit` in a task with steps, the task's own. */
export const callTimeoutMs = ({ request: { limits, task } }: Pick<Rollout, 'request'>, { tool }: Call): number =>
  deadlineOf(task.environment, tool, limits.toolTimeoutMs)

const pastCall = ({ tool, arguments: args }: Call, { files, step }: ToolCompleted): PastCall => ({
  tool,
  arguments: args,
  snapshot: files?.snapshot ?? null,
  ...(step === undefined ? {} : { step }),
})

const isSubmit = ({ request }: Rollout, { tool, refused }: Call): boolean =>
  request.task.environment !== undefined && refused === null && tool === submitTool.name

export const answerTags = (rollout: Rollout): number => countAnswerTags(rollout.texts.join('\n'))
