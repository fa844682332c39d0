/**
 * Draws a turn of a simulated engine: meaningless tokens of a plausible length, with their true log-probabilities.
 *
 * in   a seed, a context, the stop tokens        out  tokens, logprobs, and whether a stop token ended the turn
 * With probability h(n), the hazard of a lognormal length with the given median and sigma 0.8, token n is drawn
 * uniformly from the S stop tokens, else uniformly from the vocabulary of V tokens, which includes the stop tokens. So
 * a stop token has p = h/S + (1 − h)/V, any other (1 − h)/V. Any stop token ends the turn. Without stop tokens h is 0.
 * Temperature, top-p, top-k and min-p have no effect; at temperature 0 the seed has none either.
 * Invariant: for one vocabulary and median length, the seed, the context and the stop tokens determine the tokens; a
 * resumed turn continues with the tokens that it would have had.
 */
export interface TurnToDraw {
  readonly seed: number
  /** Tokens before the turn, followed by the `resumedTokens` tokens drawn for this turn so far. */
  readonly context: Int32Array
  readonly resumedTokens: number
  readonly maxTokens: number
  readonly stopTokens: readonly number[]
  readonly temperature: number
}

export interface DrawnTurn {
  readonly tokens: Int32Array
  readonly logprobs: Float32Array
  readonly finish: 'stop' | 'length'
}

/** Standard deviation (sigma) of the logarithm of a turn's length. */
const spread = 0.8

/** Returns a function that draws turns. @param medianTokens median length of a turn */
export function turnDrawer(vocabulary: number, medianTokens: number): (turn: TurnToDraw) => DrawnTurn {
  const hazards: number[] = []
  const hazard = (length: number): number => (hazards[length] ??= hazardOf(length, medianTokens))

  return ({ context, resumedTokens, maxTokens, temperature, seed, stopTokens }) => {
    const stops = [...new Set(stopTokens)].filter(token => token >= 0 && token < vocabulary)
    const begin = hashOf(context.subarray(0, context.length - resumedTokens))
    const key = mixed(begin ^ mixed(temperature === 0 ? 0 : seed))
    /** Returns the uniform number in [0, 1) with this index. Each token uses two indices, whatever is drawn. */
    const uniform = (number: number) => mixed(key + Math.imul(number + 1, golden)) / 2 ** 32
    const tokens = new Int32Array(maxTokens)
    const logprobs = new Float32Array(maxTokens)
    for (let n = 0; n < maxTokens; n++) {
      const at = resumedTokens + n
      const ends = stops.length === 0 ? 0 : hazard(at)
      const isEnd = uniform(2 * at) < ends
      const which = uniform(2 * at + 1)
      const token = isEnd ? stops[Math.floor(which * stops.length)]! : Math.floor(which * vocabulary)
      const isStop = stops.includes(token)
      tokens[n] = token
      logprobs[n] = Math.log((isStop ? ends / stops.length : 0) + (1 - ends) / vocabulary)
      if (isStop) return { tokens: tokens.slice(0, n + 1), logprobs: logprobs.slice(0, n + 1), finish: 'stop' }
    }
    return { tokens, logprobs, finish: 'length' }
  }
}

/** Returns the probability that a turn of `length` tokens ends with the next token. */
function hazardOf(length: number, medianTokens: number): number {
  const longer = (tokens: number) =>
    tokens === 0 ? 1 : erfc(Math.log(tokens / medianTokens) / (spread * Math.SQRT2)) / 2
  return Math.min(1, Math.max(0, 1 - longer(length + 1) / Math.max(longer(length), Number.MIN_VALUE)))
}

const erfcSeries = [
  ...[0.17087277, -0.82215223, 1.48851587, -1.13520398, 0.27886807],
  ...[-0.18628806, 0.09678418, 0.37409196, 1.00002368, -1.26551223],
]

/** Returns 1 − erf(x), with a relative error below 1.2e-7 (Numerical Recipes, 2nd edition, §6.2, erfcc). */
function erfc(x: number): number {
  const t = 1 / (1 + Math.abs(x) / 2)
  const series = erfcSeries.reduce((sum, coefficient) => sum * t + coefficient, 0)
  const tail = t * Math.exp(-x * x + series)
  return x >= 0 ? tail : 2 - tail
}

/** Hashes token ids with FNV-1a. */
const hashOf = (tokens: Int32Array): number =>
  tokens.reduce((hash, token) => Math.imul(hash ^ token, 0x01000193), 0x811c9dc5 | 0)

const golden = 0x9e3779b9

/** Mixes a uint32 with the finaliser of MurmurHash3 (A. Appleby): every input bit affects every output bit. */
function mixed(x: number): number {
  let h = x | 0
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b)
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35)
  return (h ^ (h >>> 16)) >>> 0
}
