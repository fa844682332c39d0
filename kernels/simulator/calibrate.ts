/**
 * Fits an engine's step times to measured turns. Measurements of single steps are not needed.
 *
 * in   turns with their start, first token, end and lengths, of one engine or several equal ones
 * out  the coefficients `stepMs`, and the error of the fit
 * Each round replays the turns on an engine with the coefficients found so far (replayTurns.ts), which gives the work
 * done before and after each turn's first token. A measured time is the sum of that work's amounts, each times its
 * coefficient, so non-negative least squares gives the next coefficients. The dense part of a step has a floor and then
 * a slope; several step sizes are tried for the knee between them. `decodeBase` and `prefillBase` cannot be separated
 * from the other coefficients and are 0.
 */
import type { PrefillShape, StepMs } from './engineModel'
import { leastSquares, type Row } from './leastSquares'
import { type ReplayedTurn, replayTurns } from './replayTurns'

export interface MeasuredTurn extends ReplayedTurn {
  readonly engine: string
  readonly endedMs: number
}

export interface Calibration {
  readonly stepMs: StepMs
  /** Number of turns that the fit used. */
  readonly turns: number
  /** Relative error Σ|replayed − measured| / Σ measured of the times after the first token. */
  readonly decodeError: number
  /** Relative error Σ|replayed − measured| / Σ measured of the times until the first token. */
  readonly firstTokenError: number
}

/** Minimum number of turns with two tokens or more that a fit needs. */
export const leastTurns = 20
/**
 * Upper bound on the turns in a fit: the first turns of a longer run. A fit replays them about a hundred times.
 */
const mostTurns = 4000
/** Candidates for the knee: tokens of a step at which its dense part turns from a floor to a slope; 0: no floor. */
const knees = [0, 8, 16, 32, 64, 128, 256, 512]
/** Number of rounds of a fit: the coefficients hardly change after so many. */
const rounds = 12
/**
 * Multiple of the median difference between replayed and measured times beyond which a difference counts as an outlier.
 */
const outlier = 4
/** Share of the error, compared with a fit without a knee, that a knee must remove for the fit to use it. */
const leastGain = 0.02

/**
 * Fits step times to measured turns.
 * @param maxBatchTokens upper bound on the tokens of one step
 * @throws RangeError on too few turns
 */
export function calibrate(turns: readonly MeasuredTurn[], maxBatchTokens = 8192): Calibration {
  const engines = enginesOf(turns)
  const long = engines.flat().filter(isLong).length
  if (long < leastTurns) {
    throw new RangeError(
      `cannot fit step times: ${long} turns of two tokens or more were measured, expected at least ${leastTurns}`,
    )
  }
  const [plain, ...curved] = knees.map(knee => fitted(engines, maxBatchTokens, knee))
  const best = curved.reduce((one, other) => (other.error < one.error ? other : one), {
    ...plain!,
    error: plain!.error * (1 - leastGain),
  })
  return { stepMs: best.stepMs, turns: engines.flat().length, ...best.errors }
}

/** Groups the first `mostTurns` turns by engine, each engine's turns in the order of their start. */
function enginesOf(turns: readonly MeasuredTurn[]): readonly (readonly MeasuredTurn[])[] {
  const byEngine = new Map<string, MeasuredTurn[]>()
  for (const turn of [...turns].sort((a, b) => a.startedMs - b.startedMs).slice(0, mostTurns)) {
    const known = byEngine.get(turn.engine)
    if (known === undefined) byEngine.set(turn.engine, [turn])
    else known.push(turn)
  }
  return [...byEngine.values()]
}

const isLong = ({ newTokens, firstTokenMs, endedMs }: MeasuredTurn): boolean => newTokens > 1 && endedMs > firstTokenMs

interface Fit {
  readonly stepMs: StepMs
  /** Sum of the absolute differences between replayed and measured times, ms. */
  readonly error: number
  readonly errors: Pick<Calibration, 'decodeError' | 'firstTokenError'>
}

/**
 * Returns a function that computes the work of a step: [steps, dense part, decoding sequences, KV tokens that they
 * attend to, prefilled tokens, pairs of a prefilled and an older token, decoding sequences in a step that also computes
 * prompts].
 */
function workWith(knee: number) {
  return (decodes: number, kvTokens: number, chunks: readonly PrefillShape[]): Float64Array => {
    let tokens = 0
    let pairs = 0
    for (const { cachedTokens: k, tokens: q } of chunks) {
      tokens += q
      pairs += q * (k + q / 2)
    }
    const mixed = chunks.length > 0 ? decodes : 0
    return Float64Array.of(1, Math.hypot(knee, decodes + tokens), decodes, kvTokens, tokens, pairs, mixed)
  }
}

function fitted(engines: readonly (readonly MeasuredTurn[])[], maxBatchTokens: number, knee: number): Fit {
  const workOf = workWith(knee)
  const rowsWith = (found: readonly number[]): { readonly firsts: Row[]; readonly further: Row[] } => {
    const firsts: Row[] = []
    const further: Row[] = []
    for (const turns of engines) {
      const work = replayTurns(turns, maxBatchTokens, workOf, each => Math.max(dot(found, each), 1e-3))
      for (const [k, turn] of turns.entries()) {
        firsts.push({ x: work[k]!.first, y: turn.firstTokenMs - turn.startedMs })
        if (isLong(turn)) further.push({ x: work[k]!.further, y: turn.endedMs - turn.firstTokenMs })
      }
    }
    return { firsts, further }
  }
  let found: readonly number[] = firstGuess(engines)
  let best = { found, rows: rowsWith(found), error: Number.POSITIVE_INFINITY }
  for (let round = 0; round < rounds; round++) {
    const split = rowsWith(found)
    const rows = [...split.further, ...split.firsts]
    const error = rows.reduce((sum, { x, y }) => sum + Math.abs(dot(found, x) - y), 0)
    if (error < best.error) best = { found, rows: split, error }
    const solved = leastSquares(rows, weightsOf(rows, found))
    found = found.map((value, i) => (value + solved[i]!) / 2)
  }
  const c = best.found
  const [overhead, dense, decodePerSequence, decodePerKvToken, prefillPerToken, prefillPerPair, mixedPerSequence] =
    c as Coefficients
  const of = { overhead, denseFloor: dense * knee, densePerToken: dense, decodeBase: 0, prefillBase: 0 }
  const errorOf = (rows: readonly Row[]): number => {
    const off = rows.reduce((sum, { x, y }) => sum + Math.abs(dot(c, x) - y), 0)
    return off / Math.max(1, rows.reduce((sum, { y }) => sum + y, 0)) // biome-ignore format: one thing
  }
  return {
    stepMs: { ...of, decodePerSequence, decodePerKvToken, prefillPerToken, prefillPerPair, mixedPerSequence },
    error: best.error,
    errors: { decodeError: errorOf(best.rows.further), firstTokenError: errorOf(best.rows.firsts) },
  }
}

/**
 * Weighs each difference between a replayed and a measured time by 1 / (the replayed time; at least 1 ms and a tenth of
 * the measured time), so that the sum of the fitted times equals the sum of the measured ones. Weights relative to the
 * measured times would let the shortest turns dominate. Outliers come from other work of the machine; their weight
 * falls with their distance.
 */
function weightsOf(rows: readonly Row[], found: readonly number[]): readonly number[] {
  const timed = rows.map(({ x, y }) => {
    const ms = dot(found, x)
    const weight = 1 / Math.max(ms, y / 10, 1)
    return { weight, off: Math.abs(ms - y) * Math.sqrt(weight) }
  })
  const offs = timed.map(({ off }) => off).sort((a, b) => a - b)
  const far = Math.max(1e-6, outlier * offs[offs.length >> 1]!)
  return timed.map(({ weight, off }) => weight * Math.min(1, far / off))
}

type Coefficients = readonly [number, number, number, number, number, number, number]

/** Returns the first coefficients: a step lasts as long as a token on average, and a prompt token a tenth of that. */
function firstGuess(engines: readonly (readonly MeasuredTurn[])[]): Coefficients {
  const long = engines.flat().filter(isLong)
  const ms = long.reduce((sum, turn) => sum + turn.endedMs - turn.firstTokenMs, 0)
  const stepMs = ms / long.reduce((sum, { newTokens }) => sum + newTokens - 1, 0)
  return [stepMs, 0, 0, 0, stepMs / 10, 0, 0]
}

const dot = (a: readonly number[], b: ArrayLike<number>): number => a.reduce((sum, value, i) => sum + value * b[i]!, 0)
