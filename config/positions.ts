/**
 * Compares a model's longest context with the contexts that a recipe asks for.
 *
 * in   a transformers config, a recipe's limits        out  tokens; fields that ask for too much, with the reason
 * Invariant: pure functions; a config that states no length refuses nothing.
 */
type Architecture = Readonly<Record<string, unknown>>

interface Contexts {
  readonly limits: { readonly contextTokens: number }
  readonly evaluation: { readonly limits?: { readonly contextTokens?: number | undefined } | undefined }
}

/**
 * Types of RoPE scaling whose `factor` multiplies the length in the config; with other types the config states the
 * scaled length already.
 */
const lengthening = ['linear', 'dynamic', 'yarn']

/**
 * Returns the longest context that the model's positions allow, in tokens; undefined if the config does not state it.
 */
export function positionsOf(architecture: Architecture): number | undefined {
  const text = { ...architecture, ...asRecord(architecture.text_config) }
  const stated = tokensIn(text.max_position_embeddings) ?? tokensIn(text.n_positions)
  if (stated === undefined) return undefined
  const scaling = { ...asRecord(text.rope_parameters), ...asRecord(text.rope_scaling) }
  const factor = scaling.factor
  if (typeof factor !== 'number' || !lengthening.includes(String(scaling.rope_type ?? scaling.type))) return stated
  return Math.max(stated, Math.floor((tokensIn(scaling.original_max_position_embeddings) ?? stated) * factor))
}

/**
 * Lists the recipe's contexts that are longer than `positions`: the path of each field, and the reason. `named`: the
 * words by which the reason says where `positions` comes from.
 */
export function contextFaults(
  { limits, evaluation }: Contexts,
  positions: number | undefined,
  named: string,
): readonly (readonly [readonly string[], string])[] {
  if (positions === undefined) return []
  const asked = [
    [['limits', 'contextTokens'], limits.contextTokens],
    [['evaluation', 'limits', 'contextTokens'], evaluation.limits?.contextTokens ?? 0],
  ] as const
  return asked
    .filter(([, tokens]) => tokens > positions)
    .map(([path, tokens]) => [path, `a context of ${tokens} is longer than the model's ${positions} (${named})`])
}

const asRecord = (value: unknown): Architecture =>
  typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Architecture) : {}

const tokensIn = (value: unknown): number | undefined => (typeof value === 'number' && value > 0 ? value : undefined)
