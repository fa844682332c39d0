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
  /** All that did, ascending. */
  readonly policyVersions: readonly number[]
  readonly selection: 'kept' | 'dropped' | 'rejected' | null
  readonly advantage: number | null
  /** ms since 1970, when it was asked for. */
  readonly at: number
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

interface Line {
  readonly requested: RolloutRequested
  readonly versions: Set<number>
  turns: number
  tokens: number
  calls: number
  errors: number
  finished: RolloutFinished | null
  reward: number | null
  hasText: boolean
}

/** With `text`, only trajectories in whose task, turns, calls or results it stands (in lower case). */
export function trajectoryIndex(text?: string) {
  const lines = new Map<TrajectoryId, Line>()
  const decided = new Map<GroupId, GroupSelected | GroupRejected>()

  const has = (...texts: readonly string[]) => text === undefined || texts.some(one => one.toLowerCase().includes(text))

  return {
    take(fact: TrajectoryFact): void {
      if (fact.type === 'rollout.requested') {
        if (lines.has(fact.trajectory)) return
        const hasText = has(...fact.task.messages.map(m => m.content))
        const counts = { turns: 0, tokens: 0, calls: 0, errors: 0 }
        lines.set(fact.trajectory, {
          requested: fact,
          versions: new Set(),
          finished: null,
          reward: null,
          hasText,
          ...counts,
        })
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
          for (const segment of fact.segments) line.versions.add(segment.policyVersion)
          line.hasText ||= has(fact.text)
          break
        case 'turn.interrupted':
          line.tokens += fact.tokens.length
          for (const segment of fact.segments) line.versions.add(segment.policyVersion)
          break
        case 'tool.completed':
          line.hasText ||= has(fact.text, fact.stdout, fact.stderr)
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
        const { requested, finished, hasText } = line
        if (!hasText) continue
        const policyVersions = [...line.versions].sort((a, b) => a - b)
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
          policyVersion: policyVersions.at(-1) ?? null,
          policyVersions,
          selection:
            decision === undefined ? null : decision.type === 'group.rejected' ? 'rejected' : kept ? 'kept' : 'dropped',
          advantage: kept?.advantage ?? null,
          at: requested.at,
        }
      }
    },
  }
}
