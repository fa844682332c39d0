/**
 * Estimates how many GPUs generate and how many train, over all hosts.
 *
 * in   a recipe and its hardware        out  the plan's kind, engines, GPUs that each side uses, hosts
 * The kind is that of `hardware.plan`; without a plan, `split` if the GPUs of all hosts together suffice for engines
 * and ranks, else `shared`. A run decides the same for each host by itself (devicePlan.ts). Engines that the run starts
 * are counted by `engine.count` on each host; servers that somebody else started are assumed to fill the GPUs that
 * generate.
 */
import { deviceNeeds, engineWidth } from '../devicePlan'
import type { RecipeConfig } from '../schema'
import type { HardwareConfig } from '../sections/hardware'

export interface EstimatedPlacement {
  readonly kind: 'split' | 'colocated' | 'shared'
  readonly hosts: number
  readonly engines: number
  /** Number of GPUs on which one engine is spread. */
  readonly width: number
  /** Number of the trainer's ranks; each is on a GPU of its own. */
  readonly ranks: number
}

export function placementOf(config: RecipeConfig, hardware: HardwareConfig): EstimatedPlacement {
  const { gpus, gpusPerHost, plan } = hardware
  const hosts = Math.ceil(gpus / gpusPerHost)
  const ranks = Math.max(1, Math.min(config.train.ranks, gpus))
  const width = config.engine.kind === 'local' ? 1 : engineWidth({ ...config, hardware })
  const own = deviceNeeds(config).engines * hosts
  const isSplit = plan === undefined ? (own > 0 ? own * width : width) + ranks <= gpus : plan.kind === 'split'
  const kind = isSplit ? 'split' : (plan?.kind ?? 'shared')
  const named = plan?.kind === 'split' ? plan.engines?.length : undefined
  const generating = kind === 'split' ? (named === undefined ? gpus - ranks : named * hosts) : gpus
  const engines = own > 0 ? own : Math.floor(generating / width)
  return { kind, hosts, width, ranks, engines: Math.max(1, engines) }
}
