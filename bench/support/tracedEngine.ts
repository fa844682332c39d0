/**
 * An engine that samples as many tokens as a trace says, and is taken to have written what the trace's turn stands for.
 *
 * in   an engine, the trace of a trajectory        out  the same engine, its turns of the trace's lengths
 * The tokens are really sampled; only when it stops, and the text that the coordinator reads, come from the trace.
 * Invariant: which turn a request is follows from how many turns of its trajectory have ended here.
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
        throw new RangeError(`${trajectory}: a turn of ${maxTokens} tokens does not fit`)
      const forced = { ...request, maxTokens, sampling: { ...sampling, stopTokens: [] } }
      const generation = await engine.generate(forced, signal)
      if (generation.finish === 'aborted') return generation
      if (turn + 1 < trace.turns.length) ended.set(trajectory, turn + 1)
      else ended.delete(trajectory)
      return { ...generation, text: textOf(trace, turn), finish: 'stop' }
    },
  }
}
