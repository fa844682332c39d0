/**
 * `troupe train RECIPE --dry-run --estimate-only`: prints what a recipe needs on its hardware, without making a step.
 *
 * in   a recipe        out  memory, tokens, time and durations, each with its formula; the reasons why it does not fit
 * Invariant: nothing of a run is loaded or started.
 */
import type { HardwareConfig, RecipeConfig } from '../../config'
import { architectureOf } from '../../config/estimate/architecture'
import { type Estimate, estimate } from '../../config/estimate/estimate'
import type { Figure } from '../../config/estimate/figure'
import { hardwareSection } from '../../config/sections/hardware'
import { roomOf } from '../io/fitColumns'

interface Estimated {
  readonly hardware: HardwareConfig
  readonly estimated: Estimate
}

/** Estimates the recipe on its own hardware, or on the default hardware. @throws TroupeError config.no_architecture */
export function estimateOf(config: RecipeConfig): Estimated {
  const hardware = config.hardware ?? hardwareSection.parse({})
  return { hardware, estimated: estimate(config, architectureOf(config), hardware) }
}

/**
 * Prints the estimate. Returns the exit code: 1 if the recipe does not fit. For a tiny model it prints no estimate,
 * except as JSON, and returns 0.
 */
export function printEstimate(config: RecipeConfig, json: boolean): number {
  const { hardware, estimated } = estimateOf(config)
  if (!json && isTiny(config, estimated)) {
    process.stdout.write(tinyText(config.name, estimated))
    return 0
  }
  const line = { type: 'estimate', recipe: config.name, hardware, estimate: estimated }
  process.stdout.write(json ? `${JSON.stringify(line)}\n` : estimateText(config.name, hardware, estimated))
  return estimated.faults.length === 0 ? 0 : 1
}

/** Number of parameters below which a model is tiny: an estimate on data-centre GPUs says nothing about it. */
const tiny = 1e8

/** True for a tiny model whose recipe has no `hardware` section: nobody trains it on the default hardware. */
export const isTiny = ({ hardware }: RecipeConfig, { parameters }: Estimate): boolean =>
  hardware === undefined && parameters < tiny

export const tinyText = (name: string, { parameters }: Estimate): string =>
  `${name}: ${(parameters / 1e6).toFixed(1)}e6 parameters, which a CPU trains; with a \`hardware\` section the dry run estimates the run on it\n`

/** Formats the estimate as text. A formula that does not fit the terminal's width is left out. */
export function estimateText(name: string, hardware: HardwareConfig, estimated: Estimate): string {
  const room = roomOf(process.stdout) ?? Number.POSITIVE_INFINITY
  const lines = (figures: readonly Figure[]) =>
    figures.map(({ what, value, unit, formula }) => {
      const figure = `  ${what.padEnd(36)} ${amount(value).padStart(16)} ${unit.padEnd(10)}`
      return `${figure} ${formula}`.length <= room ? `${figure} ${formula}` : figure.trimEnd()
    })
  return [
    `${name} on ${hardware.gpus} × ${hardware.name}, ${(estimated.parameters / 1e9).toFixed(2)}e9 parameters (estimates)`,
    'memory',
    ...lines(estimated.memory),
    'tokens',
    ...lines(estimated.tokens),
    'time',
    ...lines(estimated.time),
    'durations (deadlines and timeouts must be longer)',
    ...lines(estimated.durations),
    ...estimated.faults.map(fault => `does not fit: ${fault}`),
    '',
  ].join('\n')
}

const amount = (value: number) => value.toLocaleString('en-US', { maximumFractionDigits: value < 1000 ? 1 : 0 })
