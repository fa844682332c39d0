/**
 * Checks an answer of a custom, vLLM or SGLang engine: token ids within the model's vocabulary, and one logprob for
 * each token.
 *
 * in   the lists as the engine gave them        out  nothing; throws the error that `broken` makes of the fault
 * Invariant: an answer that passes can be trained on: every logprob is finite and at most 0.001 (0, and room for
 * rounding).
 */
export function checkSampled(
  tokens: unknown,
  logprobs: unknown,
  vocabulary: number,
  broken: (what: string) => Error,
): asserts tokens is ArrayLike<number> {
  const isId = (id: unknown) => Number.isInteger(id) && (id as number) >= 0 && (id as number) < vocabulary
  if (!isList(tokens) || !tokens.every(isId))
    throw broken(`expected token ids from 0 to ${vocabulary - 1}, found ${shown(tokens)}`)
  const lacks = `${tokens.length} tokens with ${isList(logprobs) ? logprobs.length : 'no'} logprobs, expected one each`
  if (!isList(logprobs) || logprobs.length !== tokens.length) throw broken(lacks)
  const isLogprob = (p: unknown) => typeof p === 'number' && Number.isFinite(p) && p <= 1e-3
  if (!logprobs.every(isLogprob)) throw broken(`invalid logprobs, expected finite numbers up to 0: ${shown(logprobs)}`)
}

type List = readonly unknown[]

const isList = (value: unknown): value is List => Array.isArray(value) || isTyped(value)
const isTyped = (value: unknown): boolean => ArrayBuffer.isView(value) && !(value instanceof DataView)

const shown = (value: unknown): string => {
  const plain = isTyped(value)
    ? Array.from(value as ArrayLike<number>, each => (Number.isFinite(each) ? each : `${each}`))
    : value
  return String(JSON.stringify(plain)).slice(0, 100)
}
