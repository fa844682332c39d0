/**
 * Disk that a run's checkpoints and published weights take.
 *
 * in   the numbers of all and of trained parameters, the recipe's `train` section
 * out  one figure in GiB for each kind of file; their sum in bytes
 * Checkpoints counted: the `keepCheckpoints` newest, an older one that is kept because a step began from it, and one
 * that is being written; with `all`, every checkpoint of the run. A checkpoint includes its version's published weights.
 * Checkpoints in the middle of a step are counted only if `train.innerCheckpointEvery` is given, so a caller resolves
 * its default first.
 */
import type { RecipeConfig } from '../schema'
import { billions, type Figure, figure, gib } from './figure'
import { bytesOf } from './precision'

interface Trained {
  /** Parameters of the model. */
  readonly parameters: number
  /** Parameters that the optimizer changes: all, or those of the adapters. */
  readonly trainable: number
}

export interface DiskNeed {
  readonly figures: readonly Figure[]
  readonly bytes: number
}

/**
 * Bytes in a checkpoint for each trained parameter: its value and two moments; with a KL term also the reference. All
 * float32.
 */
const [stateBytes, referenceBytes] = [12, 4]

/** Size of one checkpoint: the state of each trained parameter, and the published weights. */
export function checkpointSize(
  { parameters, trainable }: Trained,
  { publishedDtype, klCoef, device }: RecipeConfig['train'],
): { readonly bytes: number; readonly weightBytes: number; readonly formula: string } {
  const weightBytes = bytesOf(publishedDtype, device)
  const perTrained = stateBytes + (klCoef > 0 ? referenceBytes : 0)
  return {
    bytes: perTrained * trainable + weightBytes * parameters,
    weightBytes,
    formula: `(${perTrained} bytes × ${billions(trainable)} trained + ${weightBytes} bytes × ${billions(parameters)})`,
  }
}

export function diskNeed({ parameters, trainable }: Trained, train: RecipeConfig['train']): DiskNeed {
  const { steps, checkpointEvery, keepCheckpoints, keepVersions, innerCheckpointEvery = 0 } = train
  const saves = Math.floor(steps / checkpointEvery) + 1
  const held = keepCheckpoints === 'all' ? saves : Math.min(saves, keepCheckpoints + 2)
  const { bytes: checkpoint, weightBytes, formula } = checkpointSize({ parameters, trainable }, train)
  const versions = Math.min(keepVersions, steps + 1)
  const kept = keepCheckpoints === 'all' ? `all ${saves}` : `${held} (train.keepCheckpoints ${keepCheckpoints} + 2)`
  const figures = [
    figure('disk: checkpoints', (held * checkpoint) / gib, 'GiB', `${kept} × ${formula}`),
    figure(
      'disk: published weights',
      (versions * weightBytes * parameters) / gib,
      'GiB',
      `${versions} versions × ${weightBytes} bytes × ${billions(parameters)}`,
    ),
    ...(innerCheckpointEvery > 0 ? [innerNeed(trainable, train)] : []),
  ]
  return { figures, bytes: figures.reduce((sum, { value }) => sum + value * gib, 0) }
}

/**
 * Checkpoints in the middle of a step: the newest, and the one that is being written. No weights are published in them.
 */
function innerNeed(trainable: number, { klCoef }: RecipeConfig['train']): Figure {
  const bytes = stateBytes + (klCoef > 0 ? referenceBytes : 0)
  const formula = `2 × ${bytes} bytes × ${billions(trainable)} trained (train.innerCheckpointEvery)`
  return figure('disk: checkpoints in a step', (2 * bytes * trainable) / gib, 'GiB', formula)
}
