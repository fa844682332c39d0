/**
 * Completes a recipe that an older version of Troupe recorded: adds the fields that only later versions have.
 *
 * in   the recipe of `run.started`
 * out  the same recipe; new fields whose default differs from what older versions did get the older versions' values
 * Invariant: in these fields, a run that is resumed under newer code does what it did before. A recipe that has the
 * fields is not changed.
 */
type Recorded = Readonly<Record<string, unknown>>

/**
 * Values for fields of `train` that older versions lacked: those versions removed no checkpoint, published float32, had
 * one attention kernel, and summed the gradients of ranks after each micro-batch.
 */
const oldTrain = {
  keepCheckpoints: 'all',
  publishedDtype: 'float32',
  attention: 'sdpa',
  gradientReduction: 'micro-batch',
} as const

export function recordedRecipe(recipe: Recorded): Recorded {
  const { train } = recipe
  if (typeof train !== 'object' || train === null) return recipe
  return { ...recipe, train: { ...oldTrain, ...train } }
}
