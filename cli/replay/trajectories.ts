/**
 * Trajectories out of a run's log: what `replay ls` lists and `replay show` prints. A projection; it can be made anew
 * from the facts at any time.
 */
import type {
  GroupRejected,
  GroupSelected,
  RolloutFinished,
  RolloutRequested,
  TrajectoryFact,
} from '../../messages/facts'
import { type GroupId, groupOf, type TrajectoryId } from '../../messages/ids'
import type { Journal } from '../../runtime/journal'

export interface TrajectoryLine {
  readonly trajectory: TrajectoryId
  readonly purpose: string
  readonly step: number
  readonly task: string
  /** running until there is an outcome. */
  readonly status: 'running' | 'answered' | 'truncated' | 'failed'
  readonly reason: string
  readonly reward: number | null
  readonly turns: number
  readonly sampledTokens: number
  readonly toolCalls: number
  readonly toolErrors: number
  /** Newest policy that sampled a token of it. */
  readonly policyVersion: number | null
  readonly selection: 'kept' | 'dropped' | 'rejected' | null
  readonly advantage: number | null
  readonly at: number
}

export interface TrajectoryRecord {
  readonly requested: RolloutRequested
  readonly facts: readonly TrajectoryFact[]
  readonly line: TrajectoryLine
}

/** Reads all partitions and calls `take` with every fact, in each partition's order. */
export async function readFacts(journal: Journal, take: (fact: TrajectoryFact) => void): Promise<void> {
  const partitions = await journal.partitionsOf('trajectories')
  for (let partition = 0; partition < partitions; partition++) {
    const { oldest, next } = await journal.offsets('trajectories', partition)
    for (let at = oldest; at < next; ) {
      const entries = await journal.read('trajectories', partition, at, 1024)
      for (const { message } of entries) take(message as TrajectoryFact)
      at = entries.length === 0 ? next : entries.at(-1)!.offset + 1
    }
  }
}

export function trajectoryIndex() {
  const lines = new Map<
    TrajectoryId,
    {
      requested: RolloutRequested
      version: number | null
      turns: number
      tokens: number
      calls: number
      errors: number
      finished: RolloutFinished | null
      reward: number | null
    }
  >()
  const decided = new Map<GroupId, GroupSelected | GroupRejected>()

  return {
    take(fact: TrajectoryFact): void {
      if (fact.type === 'rollout.requested') {
        if (lines.has(fact.trajectory)) return
        const fresh = {
          requested: fact,
          version: null,
          turns: 0,
          tokens: 0,
          calls: 0,
          errors: 0,
          finished: null,
          reward: null,
        }
        lines.set(fact.trajectory, fresh)
        return
      }
      if (fact.type === 'group.selected' || fact.type === 'group.rejected') {
        if (!decided.has(fact.group)) decided.set(fact.group, fact)
        return
      }
      const line = 'trajectory' in fact ? lines.get(fact.trajectory) : undefined
      if (line === undefined) return
      switch (fact.type) {
        case 'turn.completed':
          line.turns = Math.max(line.turns, fact.turn + 1)
          line.tokens += fact.tokens.length
          line.version = Math.max(line.version ?? -1, ...fact.segments.map(s => s.policyVersion))
          break
        case 'turn.interrupted':
          line.tokens += fact.tokens.length
          break
        case 'tool.completed':
          line.calls++
          if (fact.status !== 'ok') line.errors++
          break
        case 'rollout.finished':
          line.finished ??= fact
          break
        case 'reward.assigned':
          line.reward ??= fact.reward
          break
      }
    },
    *lines(): Generator<TrajectoryLine> {
      for (const [trajectory, line] of lines) {
        const { requested, finished } = line
        const decision = decided.get(groupOf(trajectory))
        const kept =
          decision?.type === 'group.selected' ? decision.kept.find(k => k.member === requested.member) : undefined
        yield {
          trajectory,
          purpose: requested.purpose,
          step: requested.step,
          task: requested.task.id,
          status: finished?.outcome ?? 'running',
          reason: finished?.reason ?? '',
          reward: line.reward,
          turns: finished?.turns ?? line.turns,
          sampledTokens: finished?.sampledTokens ?? line.tokens,
          toolCalls: finished?.toolCalls ?? line.calls,
          toolErrors: finished?.toolErrors ?? line.errors,
          policyVersion: line.version,
          selection:
            decision === undefined ? null : decision.type === 'group.rejected' ? 'rejected' : kept ? 'kept' : 'dropped',
          advantage: kept?.advantage ?? null,
          at: requested.at,
        }
      }
    },
  }
}
