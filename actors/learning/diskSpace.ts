/**
 * Checks at the start of training that the run's file system holds the checkpoints and weights that the recipe keeps.
 *
 * in   the run's directory, the recipe, the trainer's numbers of parameters        out  an error, a warning, or nothing
 * Invariants: files of checkpoints and weights that an earlier start of the run left count as free space, since the
 * space that the recipe needs includes theirs. A run that left such files is refused only if the needed space is larger
 * than the whole file system: if the disk is only full, the run's writes wait for room (writeRoom.ts).
 */
import { mkdir, readdir, stat } from 'node:fs/promises'
import { join } from 'node:path'
import type { RecipeConfig } from '../../config'
import { diskNeed } from '../../config/estimate/disk'
import { gib } from '../../config/estimate/figure'
import type { DiskPause } from '../../runtime/disk/diskPause'
import { type Space, spaceIn } from '../../runtime/disk/freeSpace'
import { TroupeError } from '../../runtime/errors'
import type { Log } from '../../runtime/log'

export interface TrainedNumbers {
  /** Torch device of the trainer, on which `train.publishedDtype` auto depends. */
  readonly device: string
  readonly parameters: number
  readonly trainedParameters: number
}

export interface DiskCheckOptions {
  /** Makes the check of a new run wait while the disk is full. */
  readonly disk: Pick<DiskPause, 'room'>
  readonly log: Log
  /** Reads the space of a directory; undefined: unknown, and then nothing is checked. Default: the file system's. */
  readonly spaceOf?: (directory: string) => Space | undefined
}

/**
 * Checks that the space needed is at most the free space plus that of earlier checkpoints and weights. @throws
 * TroupeError config.disk_too_small; its message shows how the space needed adds up
 */
export async function checkDisk(
  directory: string,
  train: RecipeConfig['train'],
  { parameters, trainedParameters: trainable, device }: TrainedNumbers,
  { disk, log, spaceOf = spaceIn }: DiskCheckOptions,
): Promise<void> {
  const used = (await sizeOf(join(directory, 'checkpoints'))) + (await sizeOf(join(directory, 'weights')))
  const hasBegun = used > 0
  if (!hasBegun) await disk.room({ what: 'checkpoints and weights', directory, bytes: 0 })
  await mkdir(directory, { recursive: true })
  const space = spaceOf(directory)
  if (space === undefined) return
  const { figures, bytes } = diskNeed({ parameters, trainable }, { ...train, device })
  const room = space.freeBytes + used
  if (bytes <= room) return
  const sum = figures.map(({ what, value, formula }) => `${what} ${value.toFixed(1)} GiB = ${formula}`).join('; ')
  const message = `the run keeps ${(bytes / gib).toFixed(1)} GiB in ${directory}, whose file system has room for ${(room / gib).toFixed(1)} GiB: ${sum}`
  if (hasBegun && bytes <= space.bytes)
    return log.warn({ path: directory }, `${message}; the run will pause when the disk is full`)
  throw new TroupeError('config.disk_too_small', {
    boundary: 'config',
    retriable: false,
    message,
    hint: 'lower train.keepCheckpoints or train.keepVersions, set train.publishedDtype=bfloat16, or give --dir a larger disk',
  })
}

/** Bytes of the files below a directory; a file with several hard links counts once. 0 if the directory is missing. */
async function sizeOf(directory: string, seen = new Set<number>()): Promise<number> {
  let bytes = 0
  for (const entry of await readdir(directory, { withFileTypes: true }).catch(() => [])) {
    const path = join(directory, entry.name)
    if (entry.isDirectory()) bytes += await sizeOf(path, seen)
    else if (entry.isFile()) {
      const { size, ino } = await stat(path).catch(() => ({ size: 0, ino: -1 }))
      if (!seen.has(ino)) bytes += size
      seen.add(ino)
    }
  }
  return bytes
}
