/**
 * Makes rollouts without Troupe: a loop over an engine, all trajectories at once.
 *
 * in   an engine, prompts, tool responses, traces    out  when each turn began and ended, and how many tokens it had
 * This is the code that one would write by hand: no events, no scheduler, no grader; contexts are concatenated in
 * place.
 */

import type { Engine } from '../../backends/engines/engine'
import type { Sampling, TurnTiming } from '../../messages/facts'
import { groupId, trajectoryId } from '../../messages/ids'
import { deriveSeed } from '../../runtime/effects'
import type { Trace } from './traces'

export interface BareRollout {
  readonly trace: Trace
  readonly prompt: Int32Array
  /** Tokens of the tool's answer, for each turn but the last. */
  readonly responses: readonly Int32Array[]
}

/** A completed turn of either arm of the benchmark. */
export interface DoneTurn {
  readonly tokens: number
  readonly cachedTokens: number
  readonly timing: TurnTiming
}

/**
 * Makes the rollouts of one round. `round` is part of the trajectories' names, under which the engine keeps their KV
 * cache.
 */
export async function bareRollouts(
  engine: Engine,
  rollouts: readonly BareRollout[],
  sampling: Sampling,
  round: number,
): Promise<readonly (readonly DoneTurn[])[]> {
  return Promise.all(
    rollouts.map(async ({ trace, prompt, responses }, index) => {
      const trajectory = trajectoryId(groupId(`bare${round}`), index)
      const done: DoneTurn[] = []
      let context = prompt
      for (const [turn, { newTokens, toolMs }] of trace.turns.entries()) {
        const generation = await engine.generate({
          requestId: `${trajectory}#${turn}`,
          trajectory,
          context,
          resumedTokens: 0,
          maxTokens: newTokens,
          sampling: { ...sampling, stopTokens: [] },
          seed: deriveSeed(round, index, turn),
          priority: index,
          keep: true,
        })
        const { tokens, cachedTokens, timing } = generation
        done.push({ tokens: tokens.length, cachedTokens, timing })
        if (turn === trace.turns.length - 1) break
        await new Promise(resolve => setTimeout(resolve, toolMs))
        context = Int32Array.of(...context, ...tokens, ...responses[turn]!)
      }
      await engine.release(trajectory)
      return done
    }),
  )
}
