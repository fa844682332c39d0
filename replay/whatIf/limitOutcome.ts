/**
 * A recorded trajectory under other limits: how far the record answers for it, and how it would have ended.
 *
 * in   a trajectory that counts, limits over its own        out  as it was | cut earlier | to be generated anew from a turn
 * The coordinator's own fold runs over the recorded facts with the limits changed. A smaller limit cuts what was sampled: the
 * same seed samples the same tokens up to there. Where the model would have been shown something else, or would have gone on,
 * the record has no answer, and that is what is said.
 * Invariant: nothing is guessed: what is `same` or `cut` follows from recorded tokens, texts and tool results alone.
 */
import { answerTags, evolveRollout, newRollout, type Rollout, tokensLeft } from '../../actors/rollouts/rollout'
import { parseToolCalls, resolveCalls } from '../../kernels'
import type { RolloutFinished, RolloutRequested, ToolCompleted, TurnCompleted } from '../../messages/facts'
import { epoch } from '../../messages/ids'
import type { TokenTexts } from '../tokens/tokenTexts'
import { factsIn, type Trajectory } from '../trajectories/trajectory'

export type Limits = RolloutRequested['limits']

export type LimitOutcome =
  | { readonly kind: 'same' }
  | { readonly kind: 'running' }
  | {
      readonly kind: 'cut'
      readonly finished: RolloutFinished
      readonly texts: readonly string[]
      /** false: the last text was cut, and what its tokens say is not known here; it stands whole. */
      readonly textKnown: boolean
    }
  | { readonly kind: 'generate'; readonly fromTurn: number; readonly why: string }

type Ended = Extract<LimitOutcome, { kind: 'cut' | 'generate' }>

/** `change`: limits that are other than the recorded ones. `tokens`: what single tokens say, for a text that is cut. */
export function limitOutcome(trajectory: Trajectory, change: Partial<Limits>, tokens: TokenTexts): LimitOutcome {
  const { request, finished } = trajectory
  const { limits: was } = request
  const limits: Limits = { ...was, ...change }
  if (request.tokens.length + 1 > limits.contextTokens) {
    return { kind: 'generate', fromTurn: 0, why: 'its prompt does not fit the context' }
  }
  let rollout = newRollout({ ...request, limits })
  let textKnown = true
  for (const fact of factsIn(trajectory)) {
    if (rollout.phase === 'ended' || fact.type === 'rollout.finished') break
    const shown = fact.type === 'turn.completed' ? cutTo(fact, tokensLeft(rollout), tokens) : undefined
    if (shown !== undefined && !shown.textKnown) textKnown = false
    const other = fact.type === 'tool.completed' ? otherAnswer(fact, was, limits) : undefined
    if (other !== undefined) return { kind: 'generate', fromTurn: rollout.turn + 1, why: other }
    if (fact.type === 'turn.interrupted' && fact.tokens.length > tokensLeft(rollout)) {
      // It had sampled more than there is to spend now; what that says was never decoded.
      rollout = endedByTokens(rollout, tokensLeft(rollout))
      textKnown = false
      break
    }
    const next = shown?.fact ?? fact
    rollout = evolveRollout(rollout, next, 'epoch' in next && next.epoch !== undefined ? next.epoch : epoch(-1))
    if (fact.type !== 'turn.completed' || rollout.phase !== 'tools') continue
    const otherCalls = callsDiffer(fact, request, was, limits)
    if (otherCalls) return { kind: 'generate', fromTurn: rollout.turn + 1, why: 'other calls of a turn are made' }
  }
  // A turn that may sample nothing is not asked for.
  if (rollout.phase === 'turn' && tokensLeft(rollout) < 1) rollout = endedByTokens(rollout, 0)
  return (
    ended(trajectory, rollout, textKnown, was, limits) ?? (finished === null ? { kind: 'running' } : { kind: 'same' })
  )
}

/** How it ends under these limits, where that is otherwise than recorded. */
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
    return { kind: 'generate', fromTurn, why: `it goes on: ${finished.reason} ended it` }
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
    return wider ? { kind: 'generate', fromTurn: rollout.turn, why: 'it goes on: tokens ended it' } : undefined
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

/** A turn that may sample `most` tokens: what of it is sampled all the same. */
function cutTo(
  fact: TurnCompleted,
  most: number,
  tokens: TokenTexts,
): { fact: TurnCompleted; textKnown: boolean } | undefined {
  if (fact.tokens.length <= most) return undefined
  const kept = Math.max(0, most)
  const whole = [...fact.tokens].map(token => tokens(token))
  // Token by token a text is only known where all of them together say what was recorded.
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

/** Why the model would have been shown another answer of the tool. */
function otherAnswer(fact: ToolCompleted, was: Limits, now: Limits): string | undefined {
  const length = [...fact.text].length
  const wasCut = length > was.toolResponseChars
  if (now.toolResponseChars < was.toolResponseChars && length > now.toolResponseChars) {
    return `a tool's answer of ${wasCut ? `over ${was.toolResponseChars}` : length} characters is cut`
  }
  if (now.toolResponseChars > was.toolResponseChars && wasCut) return "a tool's answer was cut"
  if (fact.executor === null || now.toolTimeoutMs === was.toolTimeoutMs) return undefined
  if (fact.status === 'timeout')
    return now.toolTimeoutMs > was.toolTimeoutMs ? 'a call ran into its deadline' : 'a deadline is told to the model'
  return fact.wallMs > now.toolTimeoutMs ? `a call took ${Math.round(fact.wallMs)} ms` : undefined
}

/** Whether another number of a turn's calls is made. */
function callsDiffer(fact: TurnCompleted, { tools }: RolloutRequested, was: Limits, now: Limits): boolean {
  if (was.callsPerTurn === now.callsPerTurn) return false
  const { calls } = parseToolCalls(fact.text)
  const made = (limits: Limits) => resolveCalls(calls, tools, limits.callsPerTurn).resolved.length
  return made(was) !== made(now)
}
