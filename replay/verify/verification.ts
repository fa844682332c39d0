/**
 * The result of verifying a run: counts of the facts that changed the state of their readers (accepted facts), counts
 * of the files that were compared, and each problem with its position in the log.
 */
import type { RunId, TrajectoryId } from '../../messages/ids'

export interface Problem {
  /** Position of the record, topic:partition:offset; for a damaged blob or model, the path of its file or directory. */
  readonly place: string
  /**
   * Kind of the problem, as a word for programs: gap, torn-tail, wrong-context, counted-twice, wrong-count, learner, …
   */
  readonly kind: string
  readonly message: string
}

/** Numbers of the files beside the log that were compared with their digests. */
export interface CheckedFiles {
  readonly checkpoints: number
  /** Directories of published weights. */
  readonly weights: number
  readonly blobs: number
  /** Checkpoints and published weights that are not on disk; retention removes old ones. */
  readonly removed: number
  /**
   * Checkpoints and weights on disk whose facts hold no digest of the manifest, as in old logs. Their files were
   * compared only with the manifest beside them.
   */
  readonly withoutDigest: number
}

export interface Verification {
  /** true when the verification found no problem. */
  readonly ok: boolean
  readonly run: RunId
  /** Number of facts that were read from the topics runs, trajectories and learner. */
  readonly facts: number
  readonly telemetry: number
  /**
   * Number of commands that were read. The bus drops commands after their retention time, so older ones are not
   * counted.
   */
  readonly commands: number
  /** Wall time in which the log was read, in seconds. */
  readonly seconds: number
  /** Numbers of accepted facts; a repeated fact counts once. */
  readonly counted: {
    readonly trajectories: number
    readonly turns: number
    readonly tools: number
    readonly rewards: number
    readonly groups: number
    readonly steps: number
  }
  /** Number of turn contexts that were rebuilt from the facts and compared with the digest in `turn.asked`. */
  readonly contexts: number
  /**
   * Share of the trajectories whose contexts were rebuilt, 0 to 1; 1 for a run without trajectories. Captured sessions
   * are trajectories whose contexts are not rebuilt.
   */
  readonly sampledShare: number
  /** Number of captured calls (`call.started`): their contexts are not rebuilt. */
  readonly capturedCalls: number
  /**
   * Number of `turn.…` facts by which engines answered captured calls. They change no state, and are not in `ignored`:
   * the calls' own facts hold the same tokens.
   */
  readonly turnsOfCalls: number
  /** Number of facts that changed no state, by reason. */
  readonly ignored: Readonly<Record<string, number>>
  /** Ids of the trajectories that have no `rollout.finished`. */
  readonly running: readonly TrajectoryId[]
  /** Outcome and reason of `run.finished`; null while the run has not ended. */
  readonly outcome: string | null
  readonly deadLetters: readonly { readonly origin: string; readonly error: string }[]
  /** null if the files were not read (`files: false`). */
  readonly files: CheckedFiles | null
  readonly problems: readonly Problem[]
}
