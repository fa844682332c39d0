/**
 * State that the coordinator keeps for a rollout that an agent drives through the gateway.
 *
 * in   session.opened, call.started | finished, turn.asked of one trajectory
 * out  counts and texts of the latest opening (each agent that works on the rollout opens its session anew); the
 *      numbers that the next opening begins with
 * Invariant: facts of an earlier opening, of an attempt that another replaced, and repeated facts change nothing. The
 * tokens of a call are in its own facts: `turn.completed` of an agent's call adds nothing.
 */
import type { CallFinished, CallLabel, CallStarted, Fact, SessionOpened, TurnAsked } from '../../messages/facts'

interface OpenCall {
  readonly attempt: number
  readonly label: CallLabel
}

export interface Led {
  /** Number of the latest opening of the rollout's session; -1 before the first. */
  readonly opening: number
  /** One more than the highest number of any call of the rollout so far; 0 before the first. */
  readonly nextCall: number
  /** One more than the highest number of any turn of the rollout so far; 0 before the first. */
  readonly nextTurn: number
  /** Calls of this opening that have no answer. */
  readonly calls: ReadonlyMap<number, OpenCall>
  /** Texts of the agent's own conversation, which a grader judges: answers to calls labelled main or compaction. */
  readonly graded: readonly string[]
  /** False if the reward comes from the agent or from the program `agent.check`, so that no grader is asked. */
  readonly isGraded: boolean
}

export const notOpened: Led = {
  opening: -1,
  nextCall: 0,
  nextTurn: 0,
  calls: new Map(),
  graded: [],
  isGraded: true,
}

type LedFact =
  | SessionOpened
  | CallStarted
  | CallFinished
  | TurnAsked
  | Extract<Fact, { type: 'turn.completed' | 'turn.interrupted' | 'call.delivered' }>

const types: ReadonlySet<string> = new Set<LedFact['type']>([
  ...(['session.opened', 'call.started', 'call.finished', 'call.delivered'] as const),
  ...(['turn.asked', 'turn.completed', 'turn.interrupted'] as const),
])

export const isLedFact = (fact: Fact): fact is LedFact => types.has(fact.type)

interface Counted {
  readonly led?: Led
  readonly texts: readonly string[]
  readonly sampledTokens: number
  readonly toolCalls: number
  readonly toolErrors: number
}

/** Applies a fact to a rollout that an agent drives; returns the same object if the fact does not count. */
export function evolveLed<R extends Counted & { readonly led: Led }>(rollout: R, fact: LedFact): R {
  const { led } = rollout
  switch (fact.type) {
    case 'session.opened':
      if (fact.opening <= led.opening) return rollout
      return {
        ...rollout,
        ...{ texts: [], sampledTokens: 0, toolCalls: 0, toolErrors: 0 },
        led: { ...led, opening: fact.opening, calls: new Map(), graded: [] },
      }
    case 'call.started': {
      const nextCall = Math.max(led.nextCall, fact.call + 1)
      if (fact.opening !== led.opening)
        return nextCall === led.nextCall ? rollout : { ...rollout, led: { ...led, nextCall } }
      const known = led.calls.get(fact.call)
      const isNew = fact.call >= led.nextCall
      if (!isNew && (known === undefined || known.attempt >= fact.attempt)) return rollout
      const calls = new Map(led.calls).set(fact.call, { attempt: fact.attempt, label: fact.label })
      const { results, errors } = isNew ? toolResultsIn(fact.messages) : { results: 0, errors: 0 }
      return {
        ...rollout,
        toolCalls: rollout.toolCalls + results,
        toolErrors: rollout.toolErrors + errors,
        led: { ...led, nextCall, calls },
      }
    }
    case 'call.finished': {
      const call = led.calls.get(fact.call)
      if (call === undefined || call.attempt !== fact.attempt) return rollout
      const calls = new Map(led.calls)
      calls.delete(fact.call)
      if (fact.finish === 'failed') return { ...rollout, led: { ...led, calls } }
      const isGraded = call.label === 'main' || call.label === 'compaction'
      return {
        ...rollout,
        texts: [...rollout.texts, fact.text],
        sampledTokens: rollout.sampledTokens + fact.tokens.length,
        led: { ...led, calls, graded: isGraded ? [...led.graded, fact.text] : led.graded },
      }
    }
    case 'turn.asked':
      return fact.turn < led.nextTurn ? rollout : { ...rollout, led: { ...led, nextTurn: fact.turn + 1 } }
    case 'turn.completed':
    case 'turn.interrupted':
    case 'call.delivered':
      return rollout
  }
}

/** Counts the tool results among a call's new messages, and those that the client marks as errors. */
function toolResultsIn(messages: string): { readonly results: number; readonly errors: number } {
  if (!messages.includes('"role":"tool"')) return { results: 0, errors: 0 }
  const all = JSON.parse(messages) as { readonly role: string; readonly isError?: boolean | null }[]
  const results = all.filter(one => one.role === 'tool')
  return { results: results.length, errors: results.filter(one => one.isError === true).length }
}
