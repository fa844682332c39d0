/** Options and handle of a run, for a process that has the whole run and for one with a role. */

import type { Engine } from '../../backends/engines/engine'
import type { Recipe, RecipeConfig } from '../../config'
import type { RunFinished } from '../../messages/facts'
import type { EngineId, RunId } from '../../messages/ids'
import type { BlobStore } from '../../runtime/bus/blobs'
import type { Bus } from '../../runtime/bus/bus'
import type { Effects } from '../../runtime/effects'
import type { Journal } from '../../runtime/journal/journal'
import type { Log } from '../../runtime/log'
import type { MetricsRegistry } from '../../runtime/metrics'
import type { Tool } from '../tools/toolPort'

/** Roles of a process in a run. `all`: the whole run, alone or beside other processes. */
export const roles = ['all', 'coordinator', 'scheduler', 'inference', 'tools', 'learner', 'verifier'] as const
export type Role = (typeof roles)[number]

export interface RunOptions {
  readonly run: RunId
  readonly recipe: Recipe
  readonly config: RecipeConfig
  /** Default `all`. */
  readonly role?: Role
  /** Partitions of `trajectories` and of the other shared topics, when the run's topics are created. Default 1. */
  readonly partitions?: number
  /** Directory of the run's files: model, checkpoints, weights. With roles, all processes need the same one. */
  readonly directory: string
  readonly modelDirectory: string
  /** HOST:PORT where the learner serves new weights to hosts that do not see `directory`. */
  readonly serveWeights?: string
  readonly bus: Bus
  readonly blobs: BlobStore
  readonly resume: boolean
  /** false: rollouts are collected from the unchanged model, and nothing is trained. */
  readonly learns: boolean
  readonly acceptCode: boolean
  readonly fx: Effects
  readonly log: Log
  readonly metrics?: MetricsRegistry
  readonly versions: Readonly<Record<string, string>>
  readonly onColdStart?: (done: number, loss: number) => void
  /** Reports that the process stands by, or has got its part of the run. */
  readonly onStanding?: (standing: 'standing-by' | 'active') => void
  /** Engines and tools instead of the recipe's: for embedding and benchmarks. */
  readonly startEngine?: (id: EngineId, modelDirectory: string) => Promise<Engine>
  readonly tools?: ReadonlyMap<string, Tool>
}

export interface Run {
  readonly journal: Journal
  /** Resolves with the run's last fact. Rejects when the root of the tree takes an escalation. */
  readonly finished: Promise<RunFinished>
  /** Ends the run's part here. Running work is finished or recorded as far as it got; a resume, or another process, continues from there. */
  close(): Promise<void>
}
