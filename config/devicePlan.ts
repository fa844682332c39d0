/**
 * Device plan: which GPUs of a host each engine and the trainer's ranks get.
 *
 * in   a recipe, the number of GPUs that the process sees, the engines and trainer ranks that the process starts
 * out  GPU indices of each engine and of the trainer
 * Invariant: pure; the same recipe and numbers give the same plan. A `hardware.plan` that needs more GPUs than the host
 * has is refused. Without a plan, engines and trainer share the GPUs if the host has too few for both; a recipe is then
 * refused only if it has more ranks than the host has GPUs, or an engine that spans more. On a host without GPUs they
 * get none.
 */
import { TroupeError } from '../runtime/errors'
import type { RecipeConfig } from './schema'
import { isLaunched } from './sections/engine'

export interface DevicePlan {
  /**
   * Kind of the plan. split: engines and trainer have separate GPUs. colocated: they use the same GPUs in turn. shared:
   * they use the same GPUs at the same time, because the recipe has no `hardware.plan` and the host has too few GPUs
   * for a split.
   */
  readonly kind: 'split' | 'colocated' | 'shared'
  /** GPU indices of each engine; empty for an engine that gets none. */
  readonly engines: readonly (readonly number[])[]
  /** GPU indices of the trainer's ranks on this host, one each. */
  readonly trainer: readonly number[]
}

export interface DeviceNeeds {
  /** Number of GPUs that the process sees. */
  readonly gpus: number
  /**
   * Number of engines that the process starts on this host: local ones, and servers of `engine.launch`. Servers that
   * somebody else started do not count.
   */
  readonly engines: number
  /** Number of the trainer's ranks on this host; 0 if the process does not train. */
  readonly ranks: number
}

/** Counts the engines and trainer ranks of a process that starts all the recipe's engines and one host's ranks. */
export const deviceNeeds = ({ engine, train }: RecipeConfig): Omit<DeviceNeeds, 'gpus'> => ({
  engines: engine.kind === 'local' || isLaunched(engine) ? engine.count : 0,
  ranks: train.ranks / train.nodes,
})

/** Number of GPUs that one engine spans; a local engine always runs on one. */
export const engineWidth = ({ engine, hardware }: RecipeConfig): number =>
  engine.kind === 'local' ? 1 : (hardware?.tensorParallel ?? 1)

/** Plans the GPUs of one process. @throws TroupeError config.devices if the recipe does not fit the process's GPUs */
export function devicePlan(config: RecipeConfig, needs: DeviceNeeds): DevicePlan {
  const { gpus } = needs
  const asked = config.hardware?.plan
  const placed = asked !== undefined
  const engines = gpus > 0 && isPlaced(config.engine.device, 'engine.device', placed) ? needs.engines : 0
  const ranks = gpus > 0 && isPlaced(config.train.device, 'train.device', placed) ? needs.ranks : 0
  const width = engineWidth(config)
  const wide = engines * width
  const sum = `${engines} engines × ${width} GPUs`
  const rest = needs.engines - engines
  const plan = (kind: DevicePlan['kind'], ofEngines: readonly number[], trainer: readonly number[]): DevicePlan => ({
    kind,
    engines: [...sliced(ofEngines, width, engines), ...Array.from({ length: rest }, () => [])],
    trainer,
  })
  if (asked?.kind === 'split') {
    if (asked.engines === undefined && wide > gpus) throw tooMany(sum, wide, gpus)
    const own = asked.engines ?? range(0, wide)
    const trainer = asked.trainer ?? free(own, gpus).slice(0, ranks)
    inside('engines', engines > 0 ? own : [], gpus)
    inside('trainer', ranks > 0 ? trainer : [], gpus)
    const both = engines > 0 && ranks > 0 ? own.filter(index => trainer.includes(index)) : []
    if (both.length > 0)
      throw unfit(
        `hardware.plan gives GPU ${both.join(', ')} to the engines and to the trainer`,
        'name each GPU once, or set hardware.plan.kind colocated',
      )
    if (own.length < wide)
      throw unfit(
        `hardware.plan.engines names ${own.length} GPUs, but ${sum} = ${wide}`,
        'name more GPUs, or lower engine.count or hardware.tensorParallel',
      )
    if (trainer.length < ranks) {
      const fewer = 'lower engine.count or train.ranks, or set hardware.plan.kind colocated'
      if (asked.trainer !== undefined)
        throw unfit(
          `hardware.plan.trainer names ${trainer.length} GPUs, but the trainer has ${ranks} ranks on this host`,
          'name more GPUs in hardware.plan.trainer, or lower train.ranks',
        )
      if (asked.engines === undefined)
        throw unfit(`${sum} + ${ranks} ranks = ${wide + ranks} GPUs, but this host has ${gpus}`, fewer)
      throw unfit(
        `hardware.plan.engines leaves ${trainer.length} of this host's ${gpus} GPUs to the trainer, which has ${ranks} ranks here`,
        'name fewer GPUs in hardware.plan.engines, or lower train.ranks',
      )
    }
    return plan('split', own, trainer.slice(0, ranks))
  }
  if (ranks > gpus)
    throw unfit(
      `the trainer has ${ranks} ranks on this host (train.ranks / train.nodes), but the host has ${gpus} GPUs`,
      'lower train.ranks, or raise train.nodes',
    )
  if (asked?.kind === 'colocated') {
    if (config.engine.kind === 'local' && engines > 0)
      throw unfit(
        'hardware.plan is colocated, but a local engine cannot free its GPU memory while the trainer works',
        'set engine.kind vllm or sglang with engine.launch, or hardware.plan.kind split',
      )
    if (wide > gpus) throw tooMany(sum, wide, gpus)
    return plan('colocated', range(0, wide), range(0, ranks))
  }
  if (wide + ranks <= gpus) return plan('split', range(0, wide), range(wide, wide + ranks))
  if (engines > 0 && width > gpus)
    throw unfit(`an engine spans ${width} GPUs, but this host has ${gpus}`, 'lower hardware.tensorParallel')
  // The recipe has no plan and the host too few GPUs for both: the engines are spread over all GPUs, and the trainer
  // shares them.
  return plan(
    'shared',
    Array.from({ length: wide }, (_, k) => k % gpus),
    range(0, ranks),
  )
}

/**
 * True if the plan chooses the GPU of this device. False for the CPU, and for `cuda:N`, where the recipe names the GPU.
 * @throws TroupeError config.devices if the recipe has both `cuda:N` and a `hardware.plan`
 */
function isPlaced(device: string, field: string, hasPlan: boolean): boolean {
  const named = /^cuda:\d+$/.test(device)
  if (named && hasPlan)
    throw unfit(
      `${field} is ${device}, but hardware.plan chooses the GPUs`,
      `set ${field} auto, or leave hardware.plan out`,
    )
  return !named && !device.startsWith('cpu')
}

function inside(field: string, indices: readonly number[], gpus: number): void {
  const beyond = indices.filter(index => index >= gpus)
  if (beyond.length > 0)
    throw unfit(
      `hardware.plan.${field} names GPU ${beyond.join(', ')}, but this host has ${gpus}: 0 to ${gpus - 1}`,
      'name GPUs that the host has',
    )
  const twice = indices.find((index, k) => indices.indexOf(index) !== k)
  if (twice !== undefined) throw unfit(`hardware.plan.${field} names GPU ${twice} twice`, 'name each GPU once')
}

const sliced = (indices: readonly number[], width: number, count: number) =>
  Array.from({ length: count }, (_, k) => indices.slice(k * width, (k + 1) * width))
const range = (from: number, to: number) => Array.from({ length: Math.max(0, to - from) }, (_, k) => from + k)
const free = (used: readonly number[], gpus: number) => range(0, gpus).filter(index => !used.includes(index))

const tooMany = (sum: string, wide: number, gpus: number) =>
  unfit(`${sum} = ${wide} GPUs, but this host has ${gpus}`, 'lower engine.count or hardware.tensorParallel')

const unfit = (message: string, hint: string): TroupeError =>
  new TroupeError('config.devices', { boundary: 'config', retriable: false, message, hint })
