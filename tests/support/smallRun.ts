/**
 * Arguments that shrink the quickstart so that a step takes seconds. Its model learns too little to be ever right, so
 * the reward is the parity of the response's length (parity.py): groups have both rewards, and gradients are not 0.
 */
import { join } from 'node:path'

export const smallRun = (demonstrations: number): readonly string[] =>
  [
    ['coldStart.demonstrations', demonstrations],
    ['coldStart.epochs', 1],
    // Two torch threads wait for each other at every barrier: while other processes need the cores, a cold start of 75
    // updates took 90 s of CPU time instead of 4 s.
    ['train.threads', 1],
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
