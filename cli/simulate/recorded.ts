/**
 * Converts a run's facts into a simulation's inputs: the load as a trace, and its turns as measurements of the engine.
 *
 * in   a run's log
 * out  trajectories with arrivals, lengths and tool times; turns with their timing; the engine's sizes
 * A trajectory arrives when its first turn is requested. A tool's time runs from a turn's end to the request of the
 * next turn: it covers the tool, the bus, and rendering.
 */
import type { EngineModel, MeasuredTurn, TracedTrajectory, TracedTurn } from '../../kernels'
import type {
  EngineJoined,
  RunFact,
  TrajectoryFact,
  TurnAsked,
  TurnCompleted,
  TurnInterrupted,
} from '../../messages/facts'
import type { TrajectoryId } from '../../messages/ids'
import { groupOf } from '../../messages/ids'
import { readFacts } from '../../replay/trajectories/summaries'
import type { Journal } from '../../runtime/journal/journal'

export interface RecordedLoad {
  readonly trace: readonly TracedTrajectory[]
  readonly measured: readonly MeasuredTurn[]
  /** Milliseconds from the request of the run's first turn to the end of its last turn. */
  readonly makespanMs: number
  /** Mean milliseconds from a turn's request to its first token, over uninterrupted turns; 0 when there are none. */
  readonly ttftMsMean: number
  readonly joined: readonly EngineJoined[]
}

type Sizes = Pick<EngineModel, 'family' | 'kvTokens' | 'blockTokens' | 'maxSequences' | 'prefixSharing'>

export async function readLoad(journal: Journal): Promise<RecordedLoad> {
  const facts = new Map<TrajectoryId, TrajectoryFact[]>()
  await readFacts(journal, fact => {
    if (!('trajectory' in fact)) return
    const known = facts.get(fact.trajectory)
    if (known === undefined) facts.set(fact.trajectory, [fact])
    else known.push(fact)
  })
  const joined: EngineJoined[] = []
  const { oldest, next } = await journal.offsets('runs', 0)
  for await (const entries of journal.readTo('runs', 0, oldest, next)) {
    for (const { message } of entries)
      if ((message as RunFact).type === 'engine.joined') joined.push(message as EngineJoined)
  }
  const read = [...facts.values()].flatMap(rolloutOf)
  const first = read.reduce((least, { arrivedAt }) => Math.min(least, arrivedAt), Number.POSITIVE_INFINITY)
  const last = read.reduce((most, { endedAt }) => Math.max(most, endedAt), 0)
  const waits = read.flatMap(({ ttftMs }) => ttftMs)
  return {
    trace: read.map(({ line, arrivedAt }) => ({ ...line, arrivalMs: arrivedAt - first })),
    measured: read.flatMap(({ measured }) => measured),
    makespanMs: last - first,
    ttftMsMean: waits.reduce((sum, ms) => sum + ms, 0) / Math.max(1, waits.length),
    joined,
  }
}

/**
 * Sizes of an engine for the simulator, as the engine reported them on joining; for vLLM less one block of KV cache,
 * since vLLM never assigns its first block to a sequence (v1/core/block_pool.py, null_block).
 */
export function sizesOf({ kind, kvTokens: said, blockTokens, maxSequences, prefixSharing }: EngineJoined): Sizes {
  const kvTokens = kind === 'vllm' ? Math.max(blockTokens, said - blockTokens) : said
  return { family: kind === 'sglang' ? 'sglang' : 'vllm', kvTokens, blockTokens, maxSequences, prefixSharing }
}

/**
 * Reads a rollout with at least one turn from its facts. A turn that was interrupted or preempted is not measured, but
 * it counts for the load.
 * The time of a turn that was requested again counts from its first request; of two answers to an attempt the first
 * counts, as in the coordinator.
 */
function rolloutOf(facts: readonly TrajectoryFact[]) {
  const requested = facts.find(fact => fact.type === 'rollout.requested')
  if (requested === undefined) return []
  const turns: TracedTurn[] = []
  const measured: MeasuredTurn[] = []
  const ttftMs: number[] = []
  let arrivedAt = requested.at
  let asked: TurnAsked | null = null
  let open = false
  let askedAt = 0
  let partialTokens = 0
  let endedAt = 0
  let toolTokens = 0
  const answers = ({ turn, attempt }: TurnCompleted | TurnInterrupted) =>
    open && asked?.turn === turn && asked.attempt === attempt
  for (const fact of facts) {
    switch (fact.type) {
      case 'turn.asked': {
        const isAgain = asked?.turn === fact.turn
        if (fact.turn !== turns.length || (isAgain && fact.attempt <= asked!.attempt)) break
        asked = fact
        open = true
        if (isAgain) break
        askedAt = fact.at
        const before = turns.pop()
        if (before === undefined) arrivedAt = fact.at
        else turns.push({ ...before, toolMs: Math.max(0, fact.at - endedAt), toolTokens })
        break
      }
      case 'turn.interrupted':
        if (!answers(fact)) break
        open = false
        partialTokens += fact.tokens.length
        break
      case 'context.appended':
        if (fact.turn === turns.length - 1) toolTokens = fact.tokens.length
        break
      case 'turn.completed': {
        if (!answers(fact) || fact.tokens.length + partialTokens === 0) break
        turns.push({ newTokens: fact.tokens.length + partialTokens, toolMs: 0, toolTokens: 0 })
        endedAt = fact.at
        const { queuedAt, firstTokenAt, endedAt: endedMs } = fact.timing
        if (partialTokens === 0) ttftMs.push(firstTokenAt - askedAt)
        if (partialTokens === 0 && fact.preemptions === 0) {
          measured.push({
            engine: fact.engine,
            startedMs: queuedAt,
            firstTokenMs: firstTokenAt,
            endedMs,
            contextTokens: asked!.contextTokens,
            cachedTokens: fact.cachedTokens,
            newTokens: fact.tokens.length,
          })
        }
        open = false
        partialTokens = 0
        break
      }
    }
  }
  if (turns.length === 0) return []
  const { trajectory, tokens } = requested
  const line = { trajectoryId: trajectory, groupId: groupOf(trajectory), promptTokens: tokens.length, turns }
  return [{ line, measured, ttftMs, arrivedAt, endedAt }]
}
