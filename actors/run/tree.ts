/**
 * The supervision tree of a run: which supervisor has which children, and what it does when one gives up.
 *
 *   root
 *   ├─ coordination   renderer (process) · scheduler · dispatcher · verifier · owner (coordinator and grouper)
 *   ├─ inference      token-reader (process) · an actor per engine (owns its process) ── the inference behaviour
 *   ├─ tools          an actor per sandbox (owns its processes) ── the tool executor
 *   └─ learning       trainer (process) · evaluator · curriculum · learner
 *
 * A process with one role has the root and the supervisors that the role needs; `startRun` has all of them. The
 * functions that start the children are in roles/.
 * Invariant: every actor of a run is in this tree, and so is every lasting outside process except those that judge
 * answers (the verifier's sandbox, Python rewards), which the verifier owns. A child restarts without its siblings,
 * with backoff (runtime/actor/restartPolicy.ts). A child that restarts too often, or fails with an error that no
 * restart can help, gives up, and its supervisor acts as written here.
 */
import type { WhenGivenUp } from './escalation'
import type { SupervisorPlan } from './supervisor'

interface Branch extends Omit<SupervisorPlan, 'name'> {
  /**
   * Action when a child that owns a process gives up, by the kind of the process; `rest` needs a sibling that can take
   * the work (escalation.ts). A behaviour that is the supervisor's own child always escalates: nothing else does its
   * work.
   */
  readonly processes: Readonly<Record<string, WhenGivenUp>>
}

export const rootPlan: SupervisorPlan = { name: 'root', childStopsWithinMs: 60_000 }

export const tree = {
  coordination: { childStopsWithinMs: 30_000, processes: { renderer: 'escalate' } },
  // While one engine pauses, the other engines get its turns. Without any engine the run ends.
  inference: { childStopsWithinMs: 30_000, processes: { engine: 'rest', 'token-reader': 'escalate' } },
  tools: { childStopsWithinMs: 30_000, processes: { sandbox: 'rest' } },
  // Stopping waits for a running step as long as the recipe gives it (timeouts.stepMs; roles/scope.ts).
  learning: { childStopsWithinMs: 3_600_000, processes: { trainer: 'escalate' } },
} as const satisfies Readonly<Record<string, Branch>>

export type BranchName = keyof typeof tree
export type ProcessKind = { [B in BranchName]: keyof (typeof tree)[B]['processes'] }[BranchName]
