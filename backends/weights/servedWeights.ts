/**
 * Prepares published weights for a server that Troupe did not start: a directory with a model in it and nothing else.
 *
 * in   a published directory and the digest of its weights
 * out  that directory, or a view of it beside the weights
 * Invariant: only bytes with the published digest are handed on; the initial model (digest '') is not checked.
 * Checkpoints of earlier Troupe versions hold the optimizer's state as safetensors too, which such a server would load
 * as the model's: the view links the model's files only.
 */
import { createHash } from 'node:crypto'
import { createReadStream } from 'node:fs'
import { mkdir, readdir, symlink } from 'node:fs/promises'
import { join } from 'node:path'
import { TroupeError } from '../../runtime/errors'

/**
 * File name of the optimizer's state in checkpoints of earlier Troupe versions; today the state has a folder of its
 * own.
 */
export const optimizerFile = 'optimizer.safetensors'
const viewName = 'model-only'

/** Checked digests by directory, at most `remembered` of them; engines of one process share them. */
const checked = new Map<string, string>()
const remembered = 8

/** Forgets the check of a directory that has changed or is gone. */
export const unchecked = (directory: string): boolean => checked.delete(directory)

/**
 * Checks a directory and returns it, or a view of it. `digest` '' means the initial model, which is not checked.
 * @throws TroupeError engine.no_weights if it cannot be read or holds no safetensors; engine.digest_differs
 */
export async function servedWeights(directory: string, digest: string): Promise<string> {
  const files = await readdir(directory).catch(cause => {
    throw noWeights(`${directory} cannot be read`, cause)
  })
  const weights = files.filter(name => name.endsWith('.safetensors') && name !== optimizerFile).sort()
  if (weights.length === 0) throw noWeights(`${directory} holds no safetensors`)
  if (digest !== '' && checked.get(directory) !== digest) await check(directory, weights, digest)
  if (!files.includes(optimizerFile)) return directory
  const view = join(directory, viewName)
  await mkdir(view, { recursive: true })
  const shown = files.filter(name => name !== optimizerFile && name !== viewName)
  // Ignores links that exist: the process of another engine may be making the same view.
  await Promise.all(shown.map(name => symlink(join('..', name), join(view, name)).catch(unlessThere)))
  return view
}

/**
 * Checks sha256 over the weight files' bytes in the order of their names, as troupe_policy computes it, and remembers a
 * success. @throws TroupeError engine.digest_differs if it is not `digest`
 */
async function check(directory: string, weights: readonly string[], digest: string): Promise<void> {
  const hash = createHash('sha256')
  for (const name of weights) {
    for await (const chunk of createReadStream(join(directory, name), { highWaterMark: 1 << 20 })) hash.update(chunk)
  }
  const found = hash.digest('hex')
  if (found !== digest) {
    throw new TroupeError('engine.digest_differs', {
      boundary: 'engine',
      retriable: false,
      message: `the weights in ${directory} have the digest ${found.slice(0, 12)}…, but ${digest.slice(0, 12)}… was published`,
      hint: 'the files were changed after they were published; resume the run, which publishes them again',
    })
  }
  checked.set(directory, digest)
  for (const oldest of [...checked.keys()].slice(0, -remembered)) checked.delete(oldest)
}

function unlessThere(error: { readonly code?: string }): void {
  if (error.code !== 'EEXIST') throw error
}

const noWeights = (message: string, cause?: unknown): TroupeError =>
  new TroupeError('engine.no_weights', {
    boundary: 'engine',
    retriable: true,
    message,
    hint: 'check the path: versions older than train.keepVersions are removed, and an engine on another host needs the same file system',
    ...(cause === undefined ? {} : { cause }),
  })
