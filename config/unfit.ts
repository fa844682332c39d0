/**
 * Finds why a recipe does not fit the hardware that it names: GPUs, memory of a GPU and a host, deadlines and timeouts.
 *
 * in   a resolved recipe        out  its faults by the estimate, each with the sum that shows it
 * Invariant: a recipe without a `hardware` section, or whose model's transformers config cannot be read, has none: an
 * estimate for default hardware says nothing about the machine of the run. GPUs and memory are counted only if engines
 * and trainer run on GPUs, and the run starts its engines or has a plan that says where they are: the GPUs of other
 * servers are unknown.
 */
import { TroupeError } from '../runtime/errors'
import { deviceNeeds } from './devicePlan'
import { architectureIfKnown } from './estimate/architecture'
import { deadlineFaults } from './estimate/deadlineFaults'
import { sizeFaults } from './estimate/estimate'
import { partsOf } from './estimate/parts'
import type { RecipeConfig } from './schema'

export interface Unfit {
  readonly code: 'config.does_not_fit' | 'config.deadline_too_short'
  /** Path of the field, or of the section that the fault is about. */
  readonly field: string
  readonly why: string
}

export function unfitFaults(config: RecipeConfig): readonly Unfit[] {
  const { hardware } = config
  const architecture = hardware === undefined ? undefined : architectureIfKnown(config)
  if (hardware === undefined || architecture === undefined) return []
  const parts = partsOf(config, architecture, hardware)
  const sizes = isCounted(config) ? sizeFaults(config, parts) : []
  return [
    ...sizes.map(why => ({ code: 'config.does_not_fit', field: 'hardware', why }) as const),
    ...deadlineFaults(config, parts.durations).map(
      why => ({ code: 'config.deadline_too_short', field: why.split(' ')[0]!, why }) as const,
    ),
  ]
}

/** Refuses to begin a run that does not fit. @throws TroupeError config.does_not_fit, config.deadline_too_short */
export function refuseUnfit(config: RecipeConfig): void {
  const faults = unfitFaults(config)
  const [first] = faults
  if (first === undefined) return
  throw new TroupeError(first.code, {
    boundary: 'config',
    retriable: false,
    message: `recipe ${config.name}: ${faults.map(({ why }) => why).join('\n  ')}`,
    hint: unfitHint,
  })
}

export const unfitHint = '`troupe train RECIPE --dry-run --estimate-only` prints all sums and durations'

/**
 * True if the GPUs of the recipe's `hardware` hold its engines and its trainer. False if either is on a CPU. Local
 * engines in a colocated plan count as on a CPU, since devicePlan.ts refuses that plan on GPUs.
 */
function isCounted(config: RecipeConfig): boolean {
  const { engine, train, hardware } = config
  if (engine.device.startsWith('cpu') || train.device.startsWith('cpu')) return false
  if (hardware?.plan?.kind === 'colocated' && engine.kind === 'local') return false
  return hardware?.plan !== undefined || deviceNeeds(config).engines > 0
}
