/**
 * The supervision tree of a run: which supervisor has which children, and what it does when one gives up.
 *
 *   root
 *   ├─ coordination   renderer (process) · scheduler · dispatcher · verifier · owner (coordinator and grouper a partition)
 *   ├─ inference      an actor an engine (owns its process) ── the inference behaviour · token-reader (process)
 *   ├─ tools          an actor a sandbox (owns its processes) ── the tool executor
 *   └─ learning       trainer (process) · evaluator · curriculum · learner
 *
 * A role's process has root and the supervisors that it needs; `startRun` has all of them. The starters are in roles/.
 * Invariant: every actor and every outside process of a run stands in this tree. A child restarts alone, with backoff
 * (actor/restartPolicy.ts); a child that restarts too often gives up, and its supervisor acts as written here.
 */
import type { WhenGivenUp } from './escalation'
import type { SupervisorPlan } from './supervisor'

interface Branch extends Omit<SupervisorPlan, 'name'> {
  /** Children that own a process. Behaviours escalate always: nothing else does their work. */
  readonly processes: Readonly<Record<string, WhenGivenUp>>
}

export const rootPlan: SupervisorPlan = { name: 'root', childStopsWithinMs: 60_000 }

export const tree = {
  coordination: { childStopsWithinMs: 30_000, processes: { renderer: 'escalate' } },
  // Another engine takes the turns of one that rests. Without any engine the run ends.
  inference: { childStopsWithinMs: 30_000, processes: { engine: 'rest', 'token-reader': 'escalate' } },
  tools: { childStopsWithinMs: 30_000, processes: { sandbox: 'rest' } },
  // A step that runs is waited for, up to the trainer's own limit: its result is worth more than a quick end.
  learning: { childStopsWithinMs: 3_600_000, processes: { trainer: 'escalate' } },
} as const satisfies Readonly<Record<string, Branch>>

export type BranchName = keyof typeof tree
export type ProcessKind = { [B in BranchName]: keyof (typeof tree)[B]['processes'] }[BranchName]
