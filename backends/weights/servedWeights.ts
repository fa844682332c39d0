/**
 * Prepares published weights for an inference server: a directory in which all safetensors files are the model's.
 *
 * in   a published directory; the digests of its weights and of its manifest
 * out  that directory, or a view of it beside the weights
 * Invariant: only files with the published digests are passed on: the weights, and with a manifest's digest also config
 * and tokenizer. A directory is checked once in a process, and again after `unchecked`; the initial model (digest '')
 * is not checked. Checkpoints of earlier Troupe versions hold the optimizer's state as safetensors too, which a server
 * would load as the model's: the view links the model's files only.
 */
import { mkdir, readdir, symlink } from 'node:fs/promises'
import { join } from 'node:path'
import { asError, TroupeError } from '../../runtime/errors'
import { checkFiles, faultsText, ofModel, optimizerFile, sha256Of, short, weightFiles, weightsDigest } from './manifest'

const viewName = 'model-only'

/** Digests that were published with a directory of weights. */
export interface WeightDigests {
  /** sha256 over the weight files; '' for the initial model. */
  readonly digest: string
  /** sha256 of manifest.json; absent in old logs and for adapters. */
  readonly manifest?: string | undefined
  /** sha256 of adapter_config.json; for adapters only, absent in old logs. */
  readonly adapterConfig?: string | undefined
}

/** Checked digests by directory, at most `remembered` of them; engines of one process share them. */
const checked = new Map<string, string>()
const remembered = 8

/** Forgets the check of a directory that has changed or is gone. */
export const unchecked = (directory: string): boolean => checked.delete(directory)

/**
 * Checks a directory and returns it, or a view of it. @throws TroupeError engine.no_weights if it cannot be read or
 * holds no safetensors; engine.digest_differs, with the first file that differs
 */
export async function servedWeights(directory: string, digests: WeightDigests): Promise<string> {
  const files = await readdir(directory).catch(cause => {
    throw noWeights(`${directory} cannot be read: ${asError(cause).message}`, cause)
  })
  const weights = weightFiles(files)
  if (weights.length === 0) throw noWeights(`${directory} holds no safetensors`)
  await checkOnce(directory, weights, digests)
  if (!files.includes(optimizerFile)) return directory
  const view = join(directory, viewName)
  await mkdir(view, { recursive: true })
  const shown = files.filter(name => name !== optimizerFile && name !== viewName)
  // Ignores links that exist: the process of another engine may be making the same view.
  await Promise.all(shown.map(name => symlink(join('..', name), join(view, name)).catch(unlessThere)))
  return view
}

/** Checks the files, and remembers a success. @throws TroupeError engine.digest_differs */
async function checkOnce(directory: string, weights: readonly string[], digests: WeightDigests): Promise<void> {
  const { digest, manifest, adapterConfig } = digests
  const key = [digest, manifest, adapterConfig].join(' ')
  if (digest === '' || checked.get(directory) === key) return
  if (manifest === undefined) await checkWeights(directory, weights, digest)
  else await checkManifest(directory, digest, manifest)
  if (adapterConfig !== undefined) {
    const file = join(directory, 'adapter_config.json')
    const found = await sha256Of(file).catch(() => null)
    if (found !== adapterConfig) {
      const is = found === null ? 'cannot be read' : `has the digest ${short(found)}`
      throw differs(`${file} ${is}, but ${short(adapterConfig)} was published`)
    }
  }
  checked.set(directory, key)
  for (const oldest of [...checked.keys()].slice(0, -remembered)) checked.delete(oldest)
}

/** Checks every file of the model; a manifest with the published digest names the digest of the weights, too. */
async function checkManifest(directory: string, digest: string, expected: string): Promise<void> {
  const { faults, manifest } = await checkFiles(directory, expected, ofModel)
  if (faults.length > 0) throw differs(faultsText(faults))
  if (manifest?.digest !== digest) {
    throw differs(`${directory} has weights with the digest ${short(manifest?.digest ?? 'none')}, not ${short(digest)}`)
  }
}

async function checkWeights(directory: string, weights: readonly string[], digest: string): Promise<void> {
  const found = await weightsDigest(directory, weights)
  if (found !== digest) {
    throw differs(`the weights in ${directory} have the digest ${short(found)}, but ${short(digest)} was published`)
  }
}

const differs = (message: string): TroupeError =>
  new TroupeError('engine.digest_differs', {
    ...{ boundary: 'engine', retriable: false, message },
    hint: 'the files were changed or removed after they were published: copy them again from an intact copy, such as the checkpoint of the same version (`troupe replay verify` names the intact ones)',
  })

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
