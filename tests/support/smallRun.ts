/**
 * Arguments that make a quickstart small enough for seconds a step. Its model is unschooled and never right, so the reward
 * is of another kind (parity.py): groups are mixed and gradients are not 0.
 */
import { join } from 'node:path'

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
    ['reward.name', 'python'],
    ['reward.file', join(__dirname, 'parity.py')],
    ['evaluation.problems', 8],
    ['limits.responseTokens', 96],
  ].flatMap(([path, value]) => ['--set', `${path}=${value}`])
