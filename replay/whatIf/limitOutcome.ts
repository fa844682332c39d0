/**
 * Determines how a recorded trajectory would have ended under other limits, as far as the record can tell.
 *
 * in   a trajectory's accepted facts, the changed limits, texts of single tokens
 * out  same: it ends as recorded. running: it has not ended. cut: it ends earlier, or for another reason. generate: the
 * record has no answer from a turn on
 *
 * The code by which a run decides each next turn (`evolveRollout`) is applied to the recorded facts with other limits.
 * A smaller limit cuts what was sampled: the same seed samples the same tokens up to the cut. If the model would have
 * been shown something else, or would have continued, the record has no answer, and the outcome is `generate`.
 * Invariant: nothing is guessed: `same` and `cut` follow only from recorded tokens, texts and tool results. The one
 * exception is the text of a cut turn, which may be too long; `textKnown` is then false.
 */
import { answerTags, evolveRollout, newRollout, type Rollout, tokensLeft } from '../../actors/rollouts/rollout'
import { deadlineOf } from '../../environments/tools/schemas'
import { parseToolCalls, resolveCalls } from '../../kernels'
import type { RolloutFinished, RolloutRequested, ToolCompleted, TurnCompleted } from '../../messages/facts'
import { epoch } from '../../messages/ids'
import type { TokenTexts } from '../tokens/tokenTexts'
import { factsIn, isCaptured, type Trajectory } from '../trajectories/trajectory'

export type Limits = RolloutRequested['limits']

export type LimitOutcome =
  | { readonly kind: 'same' }
  | { readonly kind: 'running' }
  | {
      readonly kind: 'cut'
      readonly finished: RolloutFinished
      readonly texts: readonly string[]
      /**
       * false: the last turn was cut, but the text of its single tokens is unknown, so `texts` holds the turn's whole
       * text.
       */
      readonly textKnown: boolean
    }
  | { readonly kind: 'generate'; readonly fromTurn: number; readonly why: string }

type Ended = Extract<LimitOutcome, { kind: 'cut' | 'generate' }>

/**
 * Computes the outcome. `change`: limits that differ from the recorded ones. `tokens`: texts of single tokens, to cut a
 * text.
 */
export function limitOutcome(trajectory: Trajectory, change: Partial<Limits>, tokens: TokenTexts): LimitOutcome {
  const { request, finished } = trajectory
  const { limits: was } = request
  const limits: Limits = { ...was, ...change }
  if (request.tokens.length + 1 > limits.contextTokens) {
    return { kind: 'generate', fromTurn: 0, why: 'its prompt does not fit the context under the new limit' }
  }
  if (isCaptured(trajectory))
    return { kind: 'generate', fromTurn: 0, why: 'only the agent of this session decides which calls follow' }
  let rollout = newRollout({ ...request, limits })
  let textKnown = true
  for (const fact of factsIn(trajectory)) {
    if (rollout.phase === 'ended' || fact.type === 'rollout.finished') break
    const shown = fact.type === 'turn.completed' ? cutTo(fact, tokensLeft(rollout), tokens) : undefined
    if (shown !== undefined && !shown.textKnown) textKnown = false
    const other = fact.type === 'tool.completed' ? otherAnswer(fact, request, was, limits) : undefined
    if (other !== undefined) return { kind: 'generate', fromTurn: rollout.turn + 1, why: other }
    if (fact.type === 'turn.interrupted' && fact.tokens.length > tokensLeft(rollout)) {
      // The interrupted turn sampled more than the new budget allows; the text of these tokens was never decoded.
      rollout = endedByTokens(rollout, tokensLeft(rollout))
      textKnown = false
      break
    }
    const next = shown?.fact ?? fact
    rollout = evolveRollout(rollout, next, 'epoch' in next && next.epoch !== undefined ? next.epoch : epoch(-1))
    if (fact.type !== 'turn.completed' || rollout.phase !== 'tools') continue
    const otherCalls = callsDiffer(fact, request, was, limits)
    if (otherCalls) return { kind: 'generate', fromTurn: rollout.turn + 1, why: 'a turn would make other calls' }
  }
  // The coordinator does not ask for a turn without any tokens left to sample: the rollout ends.
  if (rollout.phase === 'turn' && tokensLeft(rollout) < 1) rollout = endedByTokens(rollout, 0)
  return (
    ended(trajectory, rollout, textKnown, was, limits) ?? (finished === null ? { kind: 'running' } : { kind: 'same' })
  )
}

/** Returns how the trajectory ends under the new limits; undefined when it ends as recorded. */
function ended(
  trajectory: Trajectory,
  rollout: Rollout,
  textKnown: boolean,
  was: Limits,
  limits: Limits,
): Ended | undefined {
  const { finished } = trajectory
  const { ending } = rollout
  if (ending === null) {
    if (finished?.outcome !== 'truncated') return undefined
    const fromTurn = rollout.phase === 'turn' ? rollout.turn : rollout.turn + 1
    return { kind: 'generate', fromTurn, why: `it would go on: the limit on ${finished.reason} ended it` }
  }
  if (finished?.outcome === 'failed' && ending.outcome === 'failed') return undefined
  const counts = {
    turns: rollout.texts.length,
    sampledTokens: rollout.sampledTokens,
    toolCalls: rollout.toolCalls,
    toolErrors: rollout.toolErrors,
    answerTags: answerTags(rollout),
  }
  const sameEnd =
    finished !== null &&
    finished.outcome === ending.outcome &&
    finished.reason === ending.reason &&
    finished.turns === counts.turns &&
    finished.sampledTokens === counts.sampledTokens
  if (sameEnd) {
    const wider = ending.outcome === 'truncated' && roomier(was, limits) && tokensLeft(rollout) > 0
    return wider
      ? { kind: 'generate', fromTurn: rollout.turn, why: 'it would go on: the limit on tokens ended it' }
      : undefined
  }
  const { id } = trajectory
  const how = { outcome: ending.outcome, reason: ending.reason }
  const made = {
    type: 'rollout.finished',
    at: finished?.at ?? 0,
    trajectory: id,
    epoch: epoch(-1),
    ...how,
    ...counts,
  } as const
  return { kind: 'cut', finished: made, texts: rollout.texts, textKnown }
}

const roomier = (was: Limits, now: Limits) =>
  now.contextTokens > was.contextTokens || now.responseTokens > was.responseTokens

/** Cuts a recorded turn to its first `most` tokens; undefined when it has no more than that. */
function cutTo(
  fact: TurnCompleted,
  most: number,
  tokens: TokenTexts,
): { fact: TurnCompleted; textKnown: boolean } | undefined {
  if (fact.tokens.length <= most) return undefined
  const kept = Math.max(0, most)
  const whole = [...fact.tokens].map(token => tokens(token))
  // A text can be cut between tokens only if the texts of its single tokens join to the recorded text.
  const known = whole.every(text => text !== undefined) && whole.join('') === fact.text
  const text = known ? whole.slice(0, kept).join('') : fact.text
  const cut = { tokens: fact.tokens.slice(0, kept), logprobs: fact.logprobs.slice(0, kept) }
  return { fact: { ...fact, ...cut, text, finish: 'length' }, textKnown: known }
}

const endedByTokens = (rollout: Rollout, sampled: number): Rollout => ({
  ...rollout,
  phase: 'ended',
  sampledTokens: rollout.sampledTokens + sampled,
  ending: { outcome: 'truncated', reason: 'tokens' },
})

/** Returns the reason why the model would have been shown another tool result; undefined when it would be the same. */
function otherAnswer(fact: ToolCompleted, { task }: RolloutRequested, was: Limits, now: Limits): string | undefined {
  const length = [...fact.text].length
  const wasCut = length > was.toolResponseChars
  if (now.toolResponseChars < was.toolResponseChars && length > now.toolResponseChars) {
    return `a tool's answer of ${wasCut ? `over ${was.toolResponseChars}` : length} characters would be cut`
  }
  if (now.toolResponseChars > was.toolResponseChars && wasCut) return "a tool's answer was cut"
  const [wasMs, nowMs] = [was, now].map(limits => deadlineOf(task.environment, fact.tool, limits.toolTimeoutMs)) as [
    number,
    number,
  ]
  if (fact.executor === null || nowMs === wasMs) return undefined
  if (fact.status === 'timeout')
    return nowMs > wasMs ? 'a call ran into its deadline' : 'the model would be told the new deadline'
  return fact.wallMs > nowMs ? `a call took ${Math.round(fact.wallMs)} ms, over the new deadline` : undefined
}

/** True when the turn would make a different number of tool calls under the new limits. */
function callsDiffer(fact: TurnCompleted, { tools }: RolloutRequested, was: Limits, now: Limits): boolean {
  if (was.callsPerTurn === now.callsPerTurn) return false
  const { calls } = parseToolCalls(fact.text)
  const made = (limits: Limits) => resolveCalls(calls, tools, limits.callsPerTurn).resolved.length
  return made(was) !== made(now)
}
