/**
 * Explains why a recording cannot answer a turn: finds the first token at which the request differs from the recorded
 * turns.
 *
 * in   a context that no recorded turn was asked with
 * out  an error that names the nearest recorded turn and the token
 * The nearest turn belongs to the requested trajectory if that was recorded; else to the recorded trajectory that
 * agrees with the context for the most tokens, among at most 64: those of the requested group, then the first ones of
 * the log. So an error costs no scan of the log.
 */
import { groupOf, type TrajectoryId } from '../../../messages/ids'
import { TroupeError } from '../../../runtime/errors'
import type { RecordedTurns } from './turns'

/** Upper bound on the trajectories that are read for one error. */
const most = 64

const hint =
  'a recording answers only recorded requests: use the same recipe, data, model and seed, and tools with the same results; use a live engine for other requests'

export interface Unrecorded {
  readonly trajectory: TrajectoryId
  readonly turn?: number | undefined
  readonly context: Int32Array
}

/** Makes the error `engine.not_recorded`, with the nearest recorded turn. */
export async function notRecorded(turns: RecordedTurns, asked: Unrecorded): Promise<TroupeError> {
  let nearest: { readonly common: number; readonly said: string } | undefined
  for (const trajectory of candidates(turns, asked.trajectory)) {
    const departure = await departureFrom(turns, trajectory, asked.context)
    if (nearest === undefined || departure.common > nearest.common) nearest = departure
  }
  return unanswered(turns, asked, nearest?.said ?? 'the run holds no other trajectory')
}

export const unanswered = (turns: RecordedTurns, { trajectory, turn, context }: Unrecorded, why: string): TroupeError =>
  new TroupeError('engine.not_recorded', {
    ...{ boundary: 'engine', retriable: false, hint },
    message: `${trajectory}${turn === undefined ? '' : ` turn ${turn}`}, asked with a context of ${context.length} tokens, is not recorded in run '${turns.run}': ${why}`,
  })

function candidates(turns: RecordedTurns, asked: TrajectoryId): readonly TrajectoryId[] {
  if (turns.ofTrajectory(asked).length > 0) return [asked]
  const group = groupOf(asked)
  const ofGroup: TrajectoryId[] = []
  const first: TrajectoryId[] = []
  for (const one of turns.trajectories) {
    if (groupOf(one) === group) ofGroup.push(one)
    else if (first.length < most) first.push(one)
    if (ofGroup.length >= most) break
  }
  return [...ofGroup, ...first].slice(0, most)
}

async function departureFrom(turns: RecordedTurns, trajectory: TrajectoryId, context: Int32Array) {
  let at = 0
  let turn = 0
  let isComplete = true
  const says = (what: string) => ({ common: at, said: `the nearest recorded is ${trajectory}, ${what}` })
  for (const one of turns.ofTrajectory(trajectory)) {
    turn = one.turn
    isComplete = one.isComplete
    const { rendered, sampled } = await turns.tokensAround(one)
    const parts: readonly (readonly [string, Int32Array])[] = [
      [turn === 0 ? 'its prompt' : `what followed turn ${turn - 1}`, rendered],
      [`what was sampled in turn ${turn}`, sampled],
    ]
    for (const [place, tokens] of parts) {
      const common = commonPrefix(tokens, context.subarray(at))
      at += common
      if (at === context.length) {
        return says(
          common < tokens.length || tokens === sampled
            ? `which says the same so far but was not asked to continue here, inside ${place}`
            : `whose turn ${turn} was asked with this context and never completed`,
        )
      }
      if (common < tokens.length) {
        return says(`which departs at token ${at}, in ${place}: recorded ${tokens[common]}, asked ${context[at]}`)
      }
    }
  }
  return says(`which agrees for ${at} tokens and ends there, ${isComplete ? 'after' : 'inside'} turn ${turn}`)
}

function commonPrefix(a: Int32Array, b: Int32Array): number {
  const length = Math.min(a.length, b.length)
  for (let i = 0; i < length; i++) if (a[i] !== b[i]) return i
  return length
}
