/** Options of `troupe train`, which `troupe rollout` and `troupe eval` share. */
import type { Role } from '../../actors/run/run'
import type { ListenAddress } from '../options/readers'
import type { RunView, TrainViewOptions } from './view'

export interface TrainOptions {
  readonly bus: string
  readonly dir?: string
  readonly role?: Role
  readonly partitions?: number
  readonly set: readonly string[]
  readonly engine?: readonly string[]
  readonly json?: boolean
  readonly run?: string
  readonly resume?: string
  readonly fromCheckpoint?: string
  readonly serveWeights?: string
  readonly steps?: number
  readonly stopOn?: readonly string[]
  readonly dryRun?: boolean
  readonly estimateOnly?: boolean
  readonly acceptCode?: boolean
  readonly metrics?: ListenAddress
  /** Port of the page over the run; true: the default port. */
  readonly dashboard?: number | true
  /** False for `troupe rollout` and `troupe eval`, which do not train. */
  readonly learns?: boolean
  /** Creates the view that prints the run. Default: the learning curve. */
  readonly view?: (options: TrainViewOptions) => RunView
}
