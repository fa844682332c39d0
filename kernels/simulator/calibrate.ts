/**
 * Fits the times of an engine's steps to turns that were generated on it: least squares with no negative coefficient.
 *
 * in   turns with their beginning, first token, end and lengths, of one engine or several alike        out  stepMs, and the error
 * Steps are not recorded. A turn's n − 1 further tokens took n − 1 steps, and the others that were decoding then, their KV
 * and the prompts that were computed meanwhile follow from the other turns. From that no floor can be told from a slope:
 * the fit is linear in what a step computes, with `denseFloor`, `densePerToken`, `decodeBase` and `prefillBase` 0.
 */
import type { StepMs } from './engineModel'

export interface MeasuredTurn {
  readonly engine: string
  readonly startedMs: number
  readonly firstTokenMs: number
  readonly endedMs: number
  readonly contextTokens: number
  /** Of the context, what was in the cache. */
  readonly cachedTokens: number
  readonly newTokens: number
}

export interface Calibration {
  readonly stepMs: StepMs
  /** Turns that were fitted. */
  readonly turns: number
  /** Mean of |predicted − measured| / measured: of the time for further tokens, and of that for the first one. */
  readonly decodeError: number
  readonly firstTokenError: number
}

/** Fewer turns with two tokens or more say too little. */
export const leastTurns = 20

interface Row {
  readonly kind: 'decode' | 'first'
  /** Steps, sequences × steps, KV tokens × steps, prefilled tokens, pairs of a prefilled and an older token. */
  readonly x: readonly number[]
  readonly ms: number
}

/** @throws RangeError where there are too few turns */
export function calibrate(turns: readonly MeasuredTurn[]): Calibration {
  const byEngine = new Map<string, MeasuredTurn[]>()
  for (const turn of turns) byEngine.set(turn.engine, [...(byEngine.get(turn.engine) ?? []), turn])
  const rows = [...byEngine.values()].flatMap(rowsOf)
  const decodes = rows.filter(row => row.kind === 'decode').length
  if (decodes < leastTurns) {
    throw new RangeError(`${decodes} turns of two tokens or more were measured; ${leastTurns} are the least to fit`)
  }
  const [overhead, decodePerSequence, decodePerKvToken, prefillPerToken, prefillPerPair] = leastSquares(rows) as [
    number,
    number,
    number,
    number,
    number,
  ]
  const none = { denseFloor: 0, densePerToken: 0, decodeBase: 0, prefillBase: 0 }
  const stepMs = { overhead, ...none, decodePerSequence, decodePerKvToken, prefillPerToken, prefillPerPair }
  const found = [overhead, decodePerSequence, decodePerKvToken, prefillPerToken, prefillPerPair]
  const errorOf = (kind: Row['kind']): number => {
    const of = rows.filter(row => row.kind === kind)
    return of.reduce((sum, { x, ms }) => sum + Math.abs(dot(found, x) - ms) / ms, 0) / Math.max(1, of.length)
  }
  return { stepMs, turns: turns.length, decodeError: errorOf('decode'), firstTokenError: errorOf('first') }
}

const dot = (a: readonly number[], b: readonly number[]): number => a.reduce((sum, value, i) => sum + value * b[i]!, 0)

/** What the engine did over time, as sums up to any moment. */
function rowsOf(turns: readonly MeasuredTurn[]): Row[] {
  const changes = turns.flatMap(({ firstTokenMs, endedMs, contextTokens, newTokens }) => {
    const slope = endedMs > firstTokenMs ? (newTokens - 1) / (endedMs - firstTokenMs) : 0
    return [
      { ms: firstTokenMs, running: 1, kv: contextTokens, slope },
      { ms: endedMs, running: -1, kv: -(contextTokens + newTokens - 1), slope: -slope },
    ]
  })
  changes.sort((a, b) => a.ms - b.ms)
  const times: number[] = []
  const states: { running: number; kv: number; slope: number; runningMs: number; kvMs: number }[] = []
  let state = { running: 0, kv: 0, slope: 0, runningMs: 0, kvMs: 0 }
  let before = changes[0]?.ms ?? 0
  for (const change of changes) {
    state = { ...after(state, change.ms - before) }
    before = change.ms
    state.running += change.running
    state.kv += change.kv
    state.slope += change.slope
    times.push(change.ms)
    states.push(state)
  }
  const at = (ms: number) => {
    const index = upTo(times, ms) - 1
    return index < 0 ? { runningMs: 0, kvMs: 0 } : after(states[index]!, ms - times[index]!)
  }
  const prompts = [...turns].sort((a, b) => a.firstTokenMs - b.firstTokenMs)
  const firsts = prompts.map(turn => turn.firstTokenMs)
  const prefilled = [0]
  const pairs = [0]
  for (const { contextTokens, cachedTokens } of prompts) {
    const q = contextTokens - cachedTokens
    prefilled.push(prefilled[prefilled.length - 1]! + q)
    pairs.push(pairs[pairs.length - 1]! + q * (cachedTokens + q / 2))
  }
  const row = (kind: Row['kind'], fromMs: number, toMs: number, steps: number): Row => {
    const [from, to] = [at(fromMs), at(toMs)]
    const perMs = steps / (toMs - fromMs)
    const [low, high] = [upTo(firsts, fromMs), upTo(firsts, toMs)]
    const work = [prefilled[high]! - prefilled[low]!, pairs[high]! - pairs[low]!]
    return {
      kind,
      ms: toMs - fromMs,
      x: [steps, (to.runningMs - from.runningMs) * perMs, (to.kvMs - from.kvMs) * perMs, ...work],
    }
  }
  return turns.flatMap(({ startedMs, firstTokenMs, endedMs, newTokens }) => [
    ...(firstTokenMs > startedMs ? [row('first', startedMs, firstTokenMs, 1)] : []),
    ...(newTokens > 1 && endedMs > firstTokenMs ? [row('decode', firstTokenMs, endedMs, newTokens - 1)] : []),
  ])
}

function after<S extends { running: number; kv: number; slope: number; runningMs: number; kvMs: number }>(
  s: S,
  ms: number,
) {
  return {
    ...s,
    kv: s.kv + s.slope * ms,
    runningMs: s.runningMs + s.running * ms,
    kvMs: s.kvMs + s.kv * ms + (s.slope * ms * ms) / 2,
  }
}

/** How many of the ascending values are at most `value`. */
function upTo(values: readonly number[], value: number): number {
  let low = 0
  let high = values.length
  while (low < high) {
    const middle = (low + high) >> 1
    if (values[middle]! <= value) low = middle + 1
    else high = middle
  }
  return low
}

/**
 * Non-negative least squares of relative errors, exactly: of every subset of the coefficients the unconstrained solution,
 * and of those without a negative one the best.
 */
function leastSquares(rows: readonly Row[]): readonly number[] {
  const size = rows[0]!.x.length
  const scale = Array.from({ length: size }, (_, i) => Math.max(...rows.map(row => row.x[i]! / row.ms), 1e-300))
  const gram = Array.from({ length: size }, () => new Array<number>(size).fill(0))
  const right = new Array<number>(size).fill(0)
  for (const { x, ms } of rows) {
    const scaled = x.map((value, i) => value / ms / scale[i]!)
    for (let i = 0; i < size; i++) {
      right[i]! += scaled[i]!
      for (let j = 0; j < size; j++) gram[i]![j]! += scaled[i]! * scaled[j]!
    }
  }
  let best = new Array<number>(size).fill(0)
  let least = 0
  for (let subset = 1; subset < 1 << size; subset++) {
    const chosen = right.map((_, i) => i).filter(i => (subset >> i) & 1)
    const solution = solve(
      chosen.map(i => chosen.map(j => gram[i]![j]!)),
      chosen.map(i => right[i]!),
    )
    if (solution === null || solution.some(value => value < 0)) continue
    // The squared error less that of all zeros: −2·xᵀr + xᵀGx = −xᵀr at the solution.
    const error = -solution.reduce((sum, value, k) => sum + value * right[chosen[k]!]!, 0)
    if (error >= least) continue
    least = error
    best = new Array<number>(size).fill(0)
    chosen.forEach((i, k) => {
      best[i] = solution[k]! / scale[i]!
    })
  }
  return best
}

/** Gaussian elimination with pivots; null for a matrix that is (nearly) singular. */
function solve(matrix: number[][], right: number[]): readonly number[] | null {
  const n = right.length
  const rows = matrix.map((row, i) => [...row, right[i]!])
  for (let column = 0; column < n; column++) {
    let pivot = column
    for (let i = column + 1; i < n; i++) {
      if (Math.abs(rows[i]![column]!) > Math.abs(rows[pivot]![column]!)) pivot = i
    }
    if (Math.abs(rows[pivot]![column]!) < 1e-12) return null
    ;[rows[column], rows[pivot]] = [rows[pivot]!, rows[column]!]
    for (let i = 0; i < n; i++) {
      if (i === column) continue
      const factor = rows[i]![column]! / rows[column]![column]!
      for (let j = column; j <= n; j++) rows[i]![j]! -= factor * rows[column]![j]!
    }
  }
  return rows.map((row, i) => row[n]! / row[i]!)
}
