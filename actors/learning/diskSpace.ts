/**
 * Checks at the start of training that the run's file system holds the checkpoints and weights that the recipe keeps.
 *
 * in   the run's directory, the recipe, the trainer's numbers of parameters        out  an error, or nothing
 * Invariant: files of checkpoints and weights that an earlier start of the run left count as free space, since the
 * space that the recipe needs includes theirs.
 */
import { mkdir, readdir, stat, statfs } from 'node:fs/promises'
import { join } from 'node:path'
import type { RecipeConfig } from '../../config'
import { diskNeed } from '../../config/estimate/disk'
import { gib } from '../../config/estimate/figure'
import { TroupeError } from '../../runtime/errors'

export interface TrainedNumbers {
  /** Torch device of the trainer, on which `train.publishedDtype` auto depends. */
  readonly device: string
  readonly parameters: number
  readonly trainedParameters: number
}

/**
 * Checks that the space needed is at most the free space plus that of earlier checkpoints and weights. `freeBytes`:
 * reads the free space of a directory's file system. @throws TroupeError config.disk_too_small; its message shows how
 * the space needed adds up
 */
export async function checkDisk(
  directory: string,
  train: RecipeConfig['train'],
  { parameters, trainedParameters: trainable, device }: TrainedNumbers,
  freeBytes: (directory: string) => Promise<number> = free,
): Promise<void> {
  await mkdir(directory, { recursive: true })
  const { figures, bytes } = diskNeed({ parameters, trainable }, { ...train, device })
  const used = (await sizeOf(join(directory, 'checkpoints'))) + (await sizeOf(join(directory, 'weights')))
  const room = (await freeBytes(directory)) + used
  if (bytes <= room) return
  const sum = figures.map(({ what, value, formula }) => `${what} ${value.toFixed(1)} GiB = ${formula}`).join('; ')
  throw new TroupeError('config.disk_too_small', {
    boundary: 'config',
    retriable: false,
    message: `the run keeps ${(bytes / gib).toFixed(1)} GiB in ${directory}, whose file system has room for ${(room / gib).toFixed(1)} GiB: ${sum}`,
    hint: 'lower train.keepCheckpoints or train.keepVersions, set train.publishedDtype=bfloat16, or give --dir a larger disk',
  })
}

async function free(directory: string): Promise<number> {
  const { bavail, bsize } = await statfs(directory)
  return bavail * bsize
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
