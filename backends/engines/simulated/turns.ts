/** Turns that a simulated engine samples: a function of the request. By default they are meaningless (turnDrawer). */
import { type DrawnTurn, turnDrawer } from '../../../kernels'
import type { GenerateRequest } from '../engine'

/** Draws a turn of at most `maxTokens` tokens, to follow the `resumedTokens` that earlier attempts sampled. */
export type DrawTurn = (request: GenerateRequest, maxTokens: number) => DrawnTurn

export function meaninglessTurns(vocabulary: number, medianTokens: number): DrawTurn {
  const draw = turnDrawer(vocabulary, medianTokens)
  return ({ seed, context, resumedTokens, sampling: { stopTokens, temperature } }, maxTokens) =>
    draw({ seed, context, resumedTokens, maxTokens, stopTokens, temperature })
}
