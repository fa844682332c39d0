/**
 * Arguments that make a quickstart small enough for seconds a step; groups of equal reward are kept, since an unschooled
 * model is mostly wrong.
 */
export const smallRun = (demonstrations: number): readonly string[] =>
  [
    ['coldStart.demonstrations', demonstrations],
    ['coldStart.epochs', 1],
    ['rollout.groupSize', 4],
    ['rollout.groupsPerStep', 4],
    ['selection.keep', 2],
    ['selection.minPositive', 1],
    ['selection.minNegative', 1],
    ['selection.rejectEqual', false],
    ['evaluation.problems', 8],
    ['limits.responseTokens', 96],
  ].flatMap(([path, value]) => ['--set', `${path}=${value}`])
