/**
 * Wraps an engine so that it samples as many tokens as a trace (planned turns of a rollout, traces.ts) states, and
 * returns the text that the trace states.
 *
 * in   an engine, the trace of a trajectory        out  the same engine, whose turns have the trace's lengths
 * The tokens are really sampled; only the number of tokens, and the text that the coordinator reads, come from the
 * trace.
 * Invariant: the turn number of a request is the number of turns of its trajectory that have ended on this engine.
 */

import type { Engine } from '../../backends/engines/engine'
import type { TrajectoryId } from '../../messages/ids'
import { type Trace, textOf } from './traces'

export function tracedEngine(engine: Engine, traceOf: (trajectory: TrajectoryId) => Trace): Engine {
  const ended = new Map<TrajectoryId, number>()
  return {
    ...engine,
    async generate(request, signal) {
      const { trajectory, sampling } = request
      const turn = ended.get(trajectory) ?? 0
      const trace = traceOf(trajectory)
      const maxTokens = trace.turns[turn]!.newTokens
      if (request.maxTokens < maxTokens)
        throw new RangeError(
          `${trajectory}: the trace's turn of ${maxTokens} tokens exceeds the request's ${request.maxTokens}`,
        )
      const forced = { ...request, maxTokens, sampling: { ...sampling, stopTokens: [] } }
      const generation = await engine.generate(forced, signal)
      if (generation.finish === 'aborted') return generation
      if (turn + 1 < trace.turns.length) ended.set(trajectory, turn + 1)
      else ended.delete(trajectory)
      return { ...generation, text: textOf(trace, turn), finish: 'stop' }
    },
  }
}
