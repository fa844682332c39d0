/**
 * Rollouts like those of the quickstart, for traced runs: calls of about thirty tokens, tools that take some tens of
 * milliseconds.
 */
import type { TraceShape } from './traces'

export const quickstartLoad = {
  groups: 16,
  groupSize: 16,
  shape: { turns: [2, 3], newTokens: [16, 44], toolMs: [20, 60] } satisfies TraceShape,
  /** `--set` overrides of the quickstart's fields. */
  set: [
    'model.config.max_position_embeddings=512',
    'engine.kvTokens=98304',
    'limits.contextTokens=512',
    'limits.responseTokens=448',
    'limits.turns=4',
  ],
}
