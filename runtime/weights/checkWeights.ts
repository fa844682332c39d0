/**
 * Published weights are what was published.
 *
 * in   a directory that engines will load, and the digest of its weights        out  nothing, or why they must not
 */
import { createHash } from 'node:crypto'
import { createReadStream } from 'node:fs'
import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { TroupeError } from '../errors'

/** Digests that were checked, by directory: engines of one process share the work. At most `remembered` of them. */
const checked = new Map<string, string>()
const remembered = 8

/** `digest` '' is a model as it came, which has none. @throws TroupeError engine.no_weights, engine.digest_differs */
export async function checkWeights(directory: string, digest: string): Promise<void> {
  const files = await readdir(directory).catch(cause => {
    throw noWeights(`${directory} cannot be read`, cause)
  })
  const weights = files.filter(name => name.endsWith('.safetensors')).sort()
  if (weights.length === 0) throw noWeights(`${directory} holds no safetensors`)
  if (digest !== '' && checked.get(directory) !== digest) await compare(directory, weights, digest)
}

/** sha256 over the weight files' bytes in the order of their names, as troupe_policy writes it. */
async function compare(directory: string, weights: readonly string[], digest: string): Promise<void> {
  const hash = createHash('sha256')
  for (const name of weights) {
    for await (const chunk of createReadStream(join(directory, name), { highWaterMark: 1 << 20 })) hash.update(chunk)
  }
  const found = hash.digest('hex')
  if (found !== digest) {
    throw new TroupeError('engine.digest_differs', {
      boundary: 'engine',
      retriable: false,
      message: `the weights in ${directory} have digest ${found.slice(0, 12)}…, ${digest.slice(0, 12)}… was published`,
      hint: 'they were changed after they were published; resume the run, which publishes them anew',
    })
  }
  checked.set(directory, digest)
  for (const oldest of [...checked.keys()].slice(0, -remembered)) checked.delete(oldest)
}

const noWeights = (message: string, cause?: unknown): TroupeError =>
  new TroupeError('engine.no_weights', {
    boundary: 'engine',
    retriable: true,
    message,
    hint: 'versions older than train.keepVersions are removed; an engine that reads them needs the same file system',
    ...(cause === undefined ? {} : { cause }),
  })
