/**
 * Adds up the memory of each kind of GPU in the device plan (it generates, trains, or does both) and, for a colocated
 * plan, of a host.
 *
 * in   the sizes of a recipe, memory of trainer and engine
 * out  sums; a fault for each sum that exceeds the memory, and for a plan that does not fit a host's GPUs
 * A sleeping engine, and a trainer whose weights are offloaded, are assumed to keep `asleepGib` on their GPU. A split
 * has GPUs that generate and GPUs that train; a colocated GPU generates and trains in turn; a shared GPU does both at
 * once.
 */
import { TroupeError } from '../../runtime/errors'
import { deviceNeeds, devicePlan } from '../devicePlan'
import { type Figure, figure } from './figure'
import type { EngineMemory, TrainerMemory } from './memory'
import type { Sizes } from './sizes'

/**
 * GiB that a process keeps on its GPU after it freed what it can: the CUDA context and its libraries, and a server's
 * graphs and communication buffers. Assumed, not measured.
 */
const asleepGib = { engine: 2, trainer: 1 }

export interface GpuSums {
  readonly figures: readonly Figure[]
  readonly faults: readonly string[]
}

/**
 * Returns the memory that is taken on a GPU while the trainer takes `trainer` GiB of it: the sum, and its parts in
 * words.
 */
export function trainerGib(
  { placement }: Sizes,
  trainer: number,
  engine: EngineMemory,
): { readonly gib: number; readonly said: string } {
  const beside = { split: 0, colocated: asleepGib.engine, shared: engine.gpuGib }[placement.kind]
  const said =
    beside === 0 ? '' : ` + ${placement.kind === 'colocated' ? 'sleeping engine' : 'engine'} ${beside.toFixed(1)}`
  return { gib: trainer + beside, said: `trainer ${trainer.toFixed(1)}${said}` }
}

export function gpuSums(sizes: Sizes, trainer: TrainerMemory, engine: EngineMemory): GpuSums {
  const { hardware, placement } = sizes
  const { memoryGib, plan } = hardware
  const figures: Figure[] = []
  const faults: string[] = []
  const total = (what: string, parts: readonly (readonly [string, number])[], advice: string) => {
    const sum = parts.reduce((all, [, value]) => all + value, 0)
    const said = parts.map(([part, value]) => `${part} ${value.toFixed(1)}`).join(' + ')
    figures.push(figure(what, sum, 'GiB a GPU', said))
    if (sum > memoryGib) faults.push(`${what}: ${said} = ${sum.toFixed(1)} GiB, but a GPU has ${memoryGib}: ${advice}`)
  }
  const smaller = 'raise train.ranks, lower train.microBatchTokens, or set train.checkpointing or train.lora'
  const wider = 'raise hardware.tensorParallel, or lower engine.kvTokens or hardware.engineMemoryShare'
  switch (placement.kind) {
    case 'split':
      total('a GPU that generates', [['engine', engine.gpuGib]], wider)
      total('a GPU that trains', [['trainer', trainer.gpuGib]], smaller)
      break
    case 'shared':
      total(
        'a GPU that generates and trains at once',
        [['engine', engine.gpuGib], ['trainer', trainer.gpuGib]], // biome-ignore format: one thing
        'set hardware.plan.kind colocated, so that the engine sleeps while the trainer works, or split',
      )
      break
    case 'colocated': {
      const rests = plan?.kind === 'colocated' && plan.offloadTrainer ? asleepGib.trainer : trainer.restingGib
      total('a GPU while engines generate', [['engine', engine.gpuGib], ['resting trainer', rests]], `${wider}, or set hardware.plan.offloadTrainer`) // biome-ignore format: one thing
      total('a GPU while the trainer works', [['trainer', trainer.gpuGib], ['sleeping engine', asleepGib.engine]], smaller) // biome-ignore format: one thing
      onHost(sizes, trainer, engine, figures, faults)
    }
  }
  return { figures, faults: [...faults, ...placed(sizes)] }
}

/**
 * Adds up, for one host, the data that a colocated plan moves from GPUs to the host, and the trainer's copies there.
 */
function onHost(sizes: Sizes, trainer: TrainerMemory, engine: EngineMemory, figures: Figure[], faults: string[]): void {
  const { hardware, placement } = sizes
  const { plan, hostMemoryGib, gpus, gpusPerHost } = hardware
  if (plan?.kind !== 'colocated') return
  const perHost = Math.min(gpus, gpusPerHost)
  const kept = trainer.figures.filter(({ unit }) => unit === 'GiB of host a rank')
  const parts = [
    ['trainer', plan.offloadTrainer ? trainer.restingGib * Math.min(placement.ranks, perHost) : 0],
    ["trainer's copies", kept.reduce((sum, { value }) => sum + value, 0) * Math.min(placement.ranks, perHost)],
    ['sleeping engines', plan.sleepLevel === 1 ? engine.weightsGib * perHost : 0],
  ] as const
  const sum = parts.reduce((all, [, value]) => all + value, 0)
  const said = parts.filter(([, value]) => value > 0).map(([part, value]) => `${part} ${value.toFixed(1)}`).join(' + ') // biome-ignore format: one thing
  figures.push(figure('a host', sum, 'GiB', `${said === '' ? 'nothing' : said}, of ${perHost} GPUs`))
  if (hostMemoryGib === undefined || sum <= hostMemoryGib) return
  const advice = [
    ...(plan.sleepLevel === 1 ? ['set hardware.plan.sleepLevel 2'] : []),
    ...(plan.offloadTrainer ? ['set hardware.plan.offloadTrainer false'] : []),
    'set train.lora',
    'use more hosts',
  ]
  faults.push(`a host needs ${said} = ${sum.toFixed(1)} GiB, but has ${hostMemoryGib}: ${advice.join(', or ')}`)
}

/**
 * Returns why the device plan does not fit a host's GPUs, which would end the run at its start; empty if the plan fits.
 */
function placed({ config, hardware, ranks }: Sizes): readonly string[] {
  const gpus = Math.min(hardware.gpus, hardware.gpusPerHost)
  const perHost = { gpus, engines: deviceNeeds(config).engines, ranks: Math.ceil(ranks / config.train.nodes) }
  try {
    devicePlan({ ...config, hardware }, perHost)
    return []
  } catch (thrown) {
    if (thrown instanceof TroupeError && thrown.code === 'config.devices')
      return [thrown.hint === undefined ? thrown.message : `${thrown.message}: ${thrown.hint}`]
    throw thrown
  }
}
