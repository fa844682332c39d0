/**
 * Makes the learner's writes (weights, checkpoints, demonstrations) wait for disk space.
 *
 * in   sizes estimated from the model's parameters, sizes of the latest writes        out  writes that wait for room
 * Invariant: a write that failed for lack of space is made again when there is room, however long that takes; it never
 * counts as a failure of the trainer.
 */
import type { DiskPause, Need } from '../../runtime/disk/diskPause'

/** Sizes, in bytes, of the files that a step writes. */
export interface WrittenSizes {
  readonly weights: number
  /** Size of a checkpoint with the weights in it. */
  readonly checkpoint: number
}

export type Written = 'weights' | 'checkpoint' | 'demonstrations'

const names: Readonly<Record<Written, string>> = {
  weights: 'the published weights',
  checkpoint: 'a checkpoint',
  demonstrations: 'the demonstrations',
}
const folders: Readonly<Record<Written, string>> = {
  weights: 'weights',
  checkpoint: 'checkpoints',
  demonstrations: 'demonstrations',
}

export interface WriteRoomOptions {
  readonly disk: DiskPause
  /** Root directory of checkpoints and weights. */
  readonly directory: string
  /**
   * Returns the sizes estimated from the model's number of parameters. Default: none; then a size is taken as 0 until
   * the first write of its kind.
   */
  readonly sizes?: (() => WrittenSizes | undefined) | undefined
}

export function writeRoom({ disk, directory, sizes = () => undefined }: WriteRoomOptions) {
  const last = new Map<Written, number>()
  const bytesOf = (what: Written) =>
    Math.max(last.get(what) ?? 0, what === 'demonstrations' ? 0 : (sizes()?.[what] ?? 0))
  const needOf = (what: Written, bytes: number): Need => ({
    ...{ what: names[what], directory: `${directory}/${folders[what]}`, bytes },
  })
  return {
    /** Resolves when there is room for a step's weights and, if `hasCheckpoint`, for its checkpoint. */
    forStep(hasCheckpoint: boolean): Promise<void> {
      const what = hasCheckpoint ? 'checkpoint' : 'weights'
      return disk.room(needOf(what, bytesOf('weights') + (hasCheckpoint ? bytesOf('checkpoint') : 0)))
    },
    attempt: <T>(what: Written, work: () => Promise<T>): Promise<T> => disk.attempt(needOf(what, bytesOf(what)), work),
    /** Records the size of the latest write of a kind. */
    wrote: (what: Written, bytes: number): void => void last.set(what, bytes),
  }
}
