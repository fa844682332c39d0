/** Options and handle of a run, for a process that has the whole run and for a process with one role. */

import type { Engine } from '../../backends/engines/engine'
import type { TrainerProcess, TrainerProcessOptions } from '../../backends/trainer/trainerProcess'
import type { Recipe, RecipeConfig } from '../../config'
import type { RunFinished } from '../../messages/facts'
import type { EngineId, RunId } from '../../messages/ids'
import type { BlobStore } from '../../runtime/bus/blobs'
import type { Bus } from '../../runtime/bus/bus'
import type { Effects } from '../../runtime/effects'
import type { Journal } from '../../runtime/journal/journal'
import type { Log } from '../../runtime/log'
import type { MetricsRegistry } from '../../runtime/metrics'
import type { StartAgents } from '../rollouts/agents'
import type { Tool } from '../tools/toolPort'

/** Roles of a process in a run. `all`: the process has every role; other processes may share the work of some. */
export const roles = ['all', 'coordinator', 'scheduler', 'inference', 'tools', 'learner', 'verifier'] as const
export type Role = (typeof roles)[number]

export interface RunOptions {
  readonly run: RunId
  readonly recipe: Recipe
  readonly config: RecipeConfig
  /** Role of this process. Default: `all`. `startRun` sets it to `all`. */
  readonly role?: Role
  /**
   * Number of partitions of each new topic that may have several (`trajectories`, `verifications`, `assignments`,
   * `inboxes`). Default: 1.
   */
  readonly partitions?: number
  /**
   * Directory of the run's files: model, checkpoints, weights. Processes that share a file system need the same one;
   * hosts that cannot read the learner's directory get new weights over `serveWeights`.
   */
  readonly directory: string
  readonly modelDirectory: string
  /** HOST:PORT at which the learner serves new weights to hosts that cannot read `directory`. */
  readonly serveWeights?: string
  readonly bus: Bus
  readonly blobs: BlobStore
  readonly resume: boolean
  /** True to train. False to collect rollouts from the unchanged model only. */
  readonly learns: boolean
  readonly acceptCode: boolean
  /** Name of the checkpoint from which a resumed run continues; newer ones are ignored. Default: the newest. */
  readonly fromCheckpoint?: string
  /** Name of the recipe or path of its file, for the log. */
  readonly source?: string
  readonly fx: Effects
  readonly log: Log
  readonly metrics?: MetricsRegistry
  readonly versions: Readonly<Record<string, string>>
  /**
   * Aborted when the run is told to end while it starts, so that it does not wait for disk space; `startRun` or
   * `joinRun` then fails. `Run.close` ends a run that has started.
   */
  readonly stop?: AbortSignal
  /** Called for elected roles (learner, scheduler): when the process stands by, and when it starts its role. */
  readonly onStanding?: (standing: 'standing-by' | 'active') => void
  /** Starts an engine in place of the recipe's engines, for embedding and benchmarks. */
  readonly startEngine?: (id: EngineId, modelDirectory: string) => Promise<Engine>
  /** Tools by name, in place of the recipe's tools, for embedding and benchmarks. */
  readonly tools?: ReadonlyMap<string, Tool>
  /** Names of the GPUs that this process leases to its engines and its trainer. Default: those that torch sees. */
  readonly devices?: readonly string[]
  /** Starts the gateway, then the agents of a recipe with the section `agent`. */
  readonly startAgents?: StartAgents
  /** Starts a trainer in place of the recipe's, with the options that the recipe's would get. */
  readonly startTrainer?: (options: TrainerProcessOptions) => Promise<TrainerProcess>
}

export interface Run {
  readonly journal: Journal
  /** Resolves with `run.finished`. Rejects with the first failure from which this process cannot recover. */
  readonly finished: Promise<RunFinished>
  /**
   * Ends this process's part of the run. Running work is finished, recorded as far as it got, or aborted; a resume, or
   * another process, continues from there.
   */
  close(): Promise<void>
}
