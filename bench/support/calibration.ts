/**
 * Calibrates the time model of a training step by one measured step, and predicts other steps with it.
 *
 * in   the work of a step's micro-batches (trainingWork.ts) with the seconds that each took, and the update's
 * out  seconds a FLOP of matrices and of attention, seconds a byte; seconds of a step
 * Invariant: rates are never negative. A term whose work the calibration step cannot tell from the others is 0, and the
 * other terms contain it.
 */
import type { MicroBatchWork } from '../../config/estimate/trainingWork'

/** Reciprocal speeds: seconds a FLOP, seconds a byte. */
export interface Rates {
  readonly matrices: number
  readonly attention: number
  readonly bytes: number
  /** Seconds a byte of an optimizer update. */
  readonly update: number
}

export interface StepWork {
  readonly micros: readonly MicroBatchWork[]
  readonly updateBytes: number
}

export interface MeasuredSeconds {
  readonly micros: readonly number[]
  readonly update: number
}

export const stepSeconds = ({ micros, updateBytes }: StepWork, rates: Rates): number =>
  micros.reduce((sum, work) => sum + microBatchSeconds(work, rates), 0) + rates.update * updateBytes

const microBatchSeconds = ({ matrices, attention, bytes }: MicroBatchWork, rates: Omit<Rates, 'update'>): number =>
  rates.matrices * matrices + rates.attention * attention + rates.bytes * bytes

const terms = ['matrices', 'attention', 'bytes'] as const

/**
 * Rates that fit one measured step: of all subsets of the three terms, the one whose least-squares solution is not
 * negative and has the smallest error. Errors are relative to each micro-batch's seconds.
 */
export function calibrated(work: StepWork, measured: MeasuredSeconds): Rates {
  const rows = work.micros.map((micro, at) => terms.map(term => micro[term] / measured.micros[at]!))
  let best: { rates: readonly number[]; error: number } | undefined
  for (let mask = 1; mask < 1 << terms.length; mask++) {
    const used = terms.map((_, at) => (mask >> at) & 1)
    const rates = leastSquares(rows, used)
    if (rates === undefined || rates.some(rate => rate < 0)) continue
    const error = rows.reduce((sum, row) => sum + (row.reduce((all, x, at) => all + x * rates[at]!, 0) - 1) ** 2, 0)
    if (best === undefined || error < best.error - 1e-12) best = { rates, error }
  }
  const [matrices = 0, attention = 0, bytes = 0] = best?.rates ?? []
  return { matrices, attention, bytes, update: measured.update / work.updateBytes }
}

/** Solves for the used terms the normal equations of `rows · rates = 1`; undefined if they are singular. */
function leastSquares(rows: readonly (readonly number[])[], used: readonly number[]): number[] | undefined {
  const at = used.flatMap((is, index) => (is === 1 ? [index] : []))
  // Columns differ by many orders of magnitude, so each is scaled to a mean square of 1.
  const scale = at.map(i => Math.sqrt(rows.reduce((sum, row) => sum + row[i]! ** 2, 0)))
  if (scale.some(size => size === 0)) return undefined
  const matrix = at.map((i, a) => [
    ...at.map((j, b) => rows.reduce((sum, row) => sum + row[i]! * row[j]!, 0) / (scale[a]! * scale[b]!)),
    rows.reduce((sum, row) => sum + row[i]!, 0) / scale[a]!,
  ])
  for (let pivot = 0; pivot < at.length; pivot++) {
    const row = matrix[pivot]!
    if (Math.abs(row[pivot]!) < 1e-9) return undefined
    for (let other = 0; other < at.length; other++) {
      if (other === pivot) continue
      const factor = matrix[other]![pivot]! / row[pivot]!
      for (let k = pivot; k <= at.length; k++) matrix[other]![k]! -= factor * row[k]!
    }
  }
  const rates = used.map(() => 0)
  for (const [a, i] of at.entries()) rates[i] = matrix[a]![at.length]! / matrix[a]![a]! / scale[a]!
  return rates
}
