/** What a run is started with, and what comes back; the same for a process that does everything and for one with a role. */

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

/** What a process does in a run. `all`: everything, alone or with others beside it. */
export const roles = ['all', 'coordinator', 'scheduler', 'inference', 'tools', 'learner', 'verifier'] as const
export type Role = (typeof roles)[number]

export interface RunOptions {
  readonly run: RunId
  readonly recipe: Recipe
  readonly config: RecipeConfig
  /** Default `all`. */
  readonly role?: Role
  /** Of `trajectories` and of what else is shared out, when the run's topics are made. Default 1. */
  readonly partitions?: number
  /** Of the run's files: model, checkpoints, weights. With roles, all processes see the same one. */
  readonly directory: string
  readonly modelDirectory: string
  /** Of the learner: HOST:PORT under which hosts that do not see `directory` reach it for new weights. */
  readonly serveWeights?: string
  readonly bus: Bus
  readonly blobs: BlobStore
  readonly resume: boolean
  /** false: rollouts are collected from the model as it is, and nothing is trained. */
  readonly learns: boolean
  readonly acceptCode: boolean
  readonly fx: Effects
  readonly log: Log
  readonly metrics?: MetricsRegistry
  readonly versions: Readonly<Record<string, string>>
  readonly onColdStart?: (done: number, loss: number) => void
  /** A process that stands by, or has been given its part of the run. */
  readonly onStanding?: (standing: 'standing-by' | 'active') => void
  /** Engines and tools other than the recipe's: for embedding and benchmarks. */
  readonly startEngine?: (id: EngineId, modelDirectory: string) => Promise<Engine>
  readonly tools?: ReadonlyMap<string, Tool>
}

export interface Run {
  readonly journal: Journal
  /** The run's last fact. Rejects when the tree can go no further. */
  readonly finished: Promise<RunFinished>
  /** Ends gently: what runs is finished or recorded as far as it got, so that a resume, or another process, goes on from there. */
  close(): Promise<void>
}
