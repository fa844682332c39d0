/**
 * Fits the times of an engine's steps to turns that were generated on it, though no step was recorded.
 *
 * in   turns with their beginning, first token, end and lengths, of one engine or several alike        out  stepMs, and the error
 * The turns are replayed on the engine as it is thought to be (replayTurns.ts): that says what was computed while each waited
 * for its first token and while it wrote the others. Its times are then a sum of those amounts, and the coefficients follow by
 * least squares, none negative; with them the turns are replayed again. Where the product with the weights turns from a floor
 * into a slope is tried at several sizes of a step. `decodeBase` and `prefillBase` cannot be told from the rest, and are 0.
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
  /** Turns that were fitted. */
  readonly turns: number
  /** Sum of |replayed − measured| over that of the measured: of turns' times for further tokens, and for the first one. */
  readonly decodeError: number
  readonly firstTokenError: number
}

/** Fewer turns with two tokens or more say too little. */
export const leastTurns = 20
/** Of a longer run the beginning is fitted: a replay is done some hundred times. */
const mostTurns = 4000
/** Tokens of a step at which its dense part turns from a floor into a slope; 0: it has no floor. */
const knees = [0, 8, 16, 32, 64, 128, 256, 512]
/** Replays after which the coefficients hardly move. */
const rounds = 12
/** In medians: a difference beyond that is far off. */
const farOff = 4
/** A knee is believed when it takes away this share of the error without one. */
const leastGain = 0.02

/**
 * @param maxBatchTokens what a step computed at most
 * @throws RangeError where there are too few turns
 */
export function calibrate(turns: readonly MeasuredTurn[], maxBatchTokens = 8192): Calibration {
  const engines = enginesOf(turns)
  const long = engines.flat().filter(isLong).length
  if (long < leastTurns) {
    throw new RangeError(`${long} turns of two tokens or more were measured; ${leastTurns} are the least to fit`)
  }
  const [plain, ...curved] = knees.map(knee => fitted(engines, maxBatchTokens, knee))
  const best = curved.reduce((one, other) => (other.error < one.error ? other : one), {
    ...plain!,
    error: plain!.error * (1 - leastGain),
  })
  return { stepMs: best.stepMs, turns: engines.flat().length, ...best.errors }
}

/** Each one's turns by their beginning. */
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
  /** Sum of the differences, ms. */
  readonly error: number
  readonly errors: Pick<Calibration, 'decodeError' | 'firstTokenError'>
}

/**
 * Steps, their dense part, decoding sequences, what those attend to, prefilled tokens, pairs of one and an older one, and
 * decoding sequences beside prompts.
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
 * A difference weighs 1 / (its time in the replay): then what is fitted sums to what was measured. Relative to the measured
 * times, the shortest of them would draw the fit to themselves. What is off by far more than most is of something else that
 * the machine did then, and weighs the less the further it is off.
 */
function weightsOf(rows: readonly Row[], found: readonly number[]): readonly number[] {
  const timed = rows.map(({ x, y }) => {
    const ms = dot(found, x)
    const weight = 1 / Math.max(ms, y / 10, 1)
    return { weight, off: Math.abs(ms - y) * Math.sqrt(weight) }
  })
  const offs = timed.map(({ off }) => off).sort((a, b) => a - b)
  const far = Math.max(1e-6, farOff * offs[offs.length >> 1]!)
  return timed.map(({ weight, off }) => weight * Math.min(1, far / off))
}

type Coefficients = readonly [number, number, number, number, number, number, number]

/** A step lasts what a token does on average, and a token of a prompt a tenth of it. */
function firstGuess(engines: readonly (readonly MeasuredTurn[])[]): Coefficients {
  const long = engines.flat().filter(isLong)
  const ms = long.reduce((sum, turn) => sum + turn.endedMs - turn.firstTokenMs, 0)
  const stepMs = ms / long.reduce((sum, { newTokens }) => sum + newTokens - 1, 0)
  return [stepMs, 0, 0, 0, stepMs / 10, 0, 0]
}

const dot = (a: readonly number[], b: ArrayLike<number>): number => a.reduce((sum, value, i) => sum + value * b[i]!, 0)
