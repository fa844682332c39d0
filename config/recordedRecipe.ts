/**
 * Reads a recipe as a run recorded it, which may be older than fields that the schema has today.
 *
 * in   the recipe of `run.started`        out  the same recipe, with values for new fields whose default is not what
 * older versions did
 * Invariant: a run that goes on under newer code does what it did before; a recipe that has the fields is not changed.
 */
type Recorded = Readonly<Record<string, unknown>>

/** Values for fields of `train` that older versions lacked: those versions removed no checkpoint and published float32. */
const oldTrain = { keepCheckpoints: 'all', publishedDtype: 'float32' } as const

export function recordedRecipe(recipe: Recorded): Recorded {
  const { train } = recipe
  if (typeof train !== 'object' || train === null) return recipe
  return { ...recipe, train: { ...oldTrain, ...train } }
}
