/**
 * Checks the files that an inference server loads a model from, before the server is started.
 *
 * in   a model's directory        out  nothing, or an error with the first file that differs from its manifest.json
 * Invariant: engines that start at once, or again, share one check, as long as no file has changed its size, its time
 * or its inode. A directory without a manifest is not checked.
 */
import { readdir, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { asError, TroupeError } from '../../runtime/errors'
import { checkFiles, faultsText, manifestName, ofModel } from './manifest'

const checks = new Map<string, { readonly state: string; readonly check: Promise<void> }>()

/** Checks a model. @throws TroupeError engine.model_damaged if a file differs or the directory cannot be read */
export async function checkModelFiles(directory: string): Promise<void> {
  const state = await stateOf(directory)
  const known = checks.get(directory)
  if (known?.state === state) return known.check
  const check = compare(directory)
  checks.set(directory, { state, check })
  // A damaged model is compared again, so that a repaired one can start.
  check.catch(() => checks.get(directory)?.check === check && checks.delete(directory))
  return check
}

async function compare(directory: string): Promise<void> {
  const { faults } = await checkFiles(directory, undefined, ofModel)
  if (faults.length > 0) throw damaged(faultsText(faults))
}

/** Names, sizes, times and inodes of the files in a directory; '' if it has no manifest. */
async function stateOf(directory: string): Promise<string> {
  try {
    const names = (await readdir(directory)).sort()
    if (!names.includes(manifestName)) return ''
    const stats = await Promise.all(names.map(name => stat(join(directory, name))))
    return JSON.stringify(stats.map(({ size, mtimeMs, ino }, at) => [names[at], size, mtimeMs, ino]))
  } catch (thrown) {
    throw damaged(`${directory} cannot be read: ${asError(thrown).message}`)
  }
}

const damaged = (message: string): TroupeError =>
  new TroupeError('engine.model_damaged', {
    ...{ boundary: 'engine', retriable: false, message },
    hint: 'copy the model again from an intact copy, or start with another checkpoint',
  })
