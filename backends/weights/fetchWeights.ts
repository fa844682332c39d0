/**
 * Provides published weights in a directory of this host: the learner's own if this host sees it, else one with files
 * fetched from the learner's server.
 *
 * in   the published version        out  a directory with the model's files
 * Invariant: if the weights are served, the returned directory is complete and has the published digest (the initial
 * model, digest '', is not checked), even if other files exist here under the learner's path; without a server, the
 * learner's path is returned unchecked. A fetch that was cut off resumes at its last byte within the same process
 * (ranges, RFC 9110 §14). Engines of one process share a fetch; a caller that stops waiting does not end it. The four
 * most recently used versions are kept.
 */
import { createHash } from 'node:crypto'
import { createWriteStream, existsSync } from 'node:fs'
import { mkdir, open, readdir, rename, rm, stat, utimes } from 'node:fs/promises'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import { z } from 'zod'
import { systemEffects } from '../../runtime/effects'
import { failedRequest, TroupeError } from '../../runtime/errors'
import { troupeHome } from '../../runtime/home'
import { rejectOnAbort } from '../../runtime/rejectOnAbort'
import { pathToday } from '../../runtime/runPaths'
import { knowAddress } from '../../runtime/secrets/credentials'
import { knowSecret } from '../../runtime/secrets/knownSecrets'
import { servedWeights, unchecked, type WeightDigests } from './servedWeights'
import { adapterFolder, listName, plainName, type WeightFile } from './weightList'

export interface PublishedWeights extends WeightDigests {
  /**
   * Location of the weights, copied from `url` of `weights.published`: a path relative to the run's directory, or a
   * `file:` URL. The learner wrote the directory, unless it is the initial model.
   */
  readonly url: string
  /** URL (`http:`) at which the learner's host serves the directory. */
  readonly served?: string | undefined
}

export interface FetchOptions {
  /** The run's directory, below which the learner's path is looked up. Default: the working directory. */
  readonly root?: string | undefined
  /** Directory for the fetched versions. Default: `weights` below TROUPE_HOME. */
  readonly into?: string
  /** Bearer token for the server of the weights. Default: the value of TROUPE_WEIGHTS_TOKEN. */
  readonly token?: string | undefined
  /** Milliseconds without a byte after which an attempt ends. Default: 30 s. */
  readonly silenceMs?: number
  /** Milliseconds of backoff between attempts, multiplied by the number of attempts. Default: 500. */
  readonly againMs?: number
  /** Milliseconds since the first attempt to fetch a file after which no further attempt begins. Default: 1 hour. */
  readonly fetchMs?: number
  /** Signal that ends this caller's wait, but not the fetch, since other callers may wait for it. */
  readonly signal?: AbortSignal
}

const listed = z
  .array(z.object({ name: z.string().regex(plainName), bytes: z.int().nonnegative() }))
  .min(1)
  .max(10_000)

/** File names that mark a directory of a model, or of adapters. */
const configs = ['config.json', 'adapter_config.json']

const attempts = 6
const usualFetchMs = 3_600_000
/** Number of fetched versions that stay on this host, over all runs. */
const kept = 4
/** Milliseconds without a change after which the directory of an incomplete fetch is abandoned, and so removed. */
const partsKeptMs = 3_600_000

const underWay = new Map<string, Promise<string | undefined>>()

/** Runs `act`; concurrent callers with the same key share one run. */
function shared<T extends string | undefined>(key: string, act: () => Promise<T>): Promise<T> {
  const running = (underWay.get(key) as Promise<T> | undefined) ?? act().finally(() => underWay.delete(key))
  underWay.set(key, running)
  return running
}

/** Returns the location of the adapters that were published with weights, and their digests. */
export function adapterOf(
  { url, served }: PublishedWeights,
  { digest, config }: { readonly digest: string; readonly config?: string },
): PublishedWeights {
  const below = (place: string) => `${place}/${adapterFolder}`
  return { url: below(url), ...(served === undefined ? {} : { served: below(served) }), digest, adapterConfig: config }
}

/**
 * Returns a directory of this host with the weights: the learner's path, unchecked, if they are not served. @throws
 * TroupeError engine.no_weights if the server does not deliver them; engine.digest_differs if it twice delivers other
 * bytes
 */
export async function weightsHere(weights: PublishedWeights, options: FetchOptions = {}): Promise<string> {
  const { served, digest } = weights
  const directory = pathToday(options.root ?? '', weights.url)
  if (served === undefined) return directory
  const here = () => shared(`${directory} ${digest}`, () => ifSound(directory, weights))
  const fetch = () => shared(`${served} ${digest}`, () => fetched(served, weights, options))
  const running = here().then(found => found ?? fetch())
  return options.signal === undefined ? running : rejectOnAbort(running, options.signal)
}

/**
 * Returns the learner's path if it holds the published weights on this host, else undefined. The path may hold other
 * weights here: another run's, or an old copy.
 */
async function ifSound(directory: string, digests: WeightDigests): Promise<string | undefined> {
  if (!configs.some(name => existsSync(join(directory, name)))) return undefined
  return servedWeights(directory, digests).then(
    () => directory,
    () => undefined,
  )
}

async function fetched(url: string, digests: WeightDigests, options: FetchOptions): Promise<string> {
  const into = options.into ?? join(troupeHome(), 'weights')
  const whole = join(into, createHash('sha256').update(`${url} ${digests.digest}`).digest('hex').slice(0, 32))
  if (existsSync(whole) && (await isSound(whole, digests))) return whole
  // Directory of this process's incomplete fetch; other processes of this host may fetch the same version.
  const part = `${whole}.${process.pid}.part`
  // A wrong digest may come from bytes that an earlier, interrupted fetch left: fetch once more from the beginning.
  await wholeNow(part, url, options, digests).catch(async thrown => {
    if (!isOtherBytes(thrown)) throw thrown
    await wholeNow(part, url, options, digests)
  })
  await rename(part, whole).catch(async thrown => {
    if (!existsSync(whole)) throw thrown
    await rm(part, { recursive: true, force: true })
  })
  await prune(into, whole)
  return whole
}

/**
 * Completes a fetch and checks its digest. @throws TroupeError engine.no_weights, engine.digest_differs; if the check
 * fails, the incomplete directory is removed
 */
async function wholeNow(part: string, url: string, options: FetchOptions, digests: WeightDigests): Promise<void> {
  await mkdir(part, { recursive: true })
  const files = await again(url, options, () => list(`${url}/${listName}`, options))
  for (const file of files) await again(url, options, () => append(part, url, file, options))
  try {
    await servedWeights(part, digests)
  } catch (thrown) {
    await rm(part, { recursive: true, force: true })
    throw thrown
  } finally {
    unchecked(part)
  }
}

const isOtherBytes = (thrown: unknown): boolean =>
  thrown instanceof TroupeError && thrown.code === 'engine.digest_differs'

/**
 * Returns true if the directory of an earlier fetch has the expected digests. Otherwise (after a disk fault, say)
 * removes it, so that the weights are fetched again.
 */
async function isSound(whole: string, digests: WeightDigests): Promise<boolean> {
  const now = systemEffects.now() / 1000
  try {
    await servedWeights(whole, digests)
    await utimes(whole, now, now)
    return true
  } catch {
    unchecked(whole)
    await rm(whole, { recursive: true, force: true })
    return false
  }
}

async function list(url: string, options: FetchOptions): Promise<readonly WeightFile[]> {
  const { response, heard } = await get(url, options)
  const files = listed.parse(await response.json())
  heard(false)
  return files
}

/** Fetches the missing rest of the file and syncs it to the disk. */
async function append(part: string, url: string, { name, bytes }: WeightFile, options: FetchOptions): Promise<void> {
  const path = join(part, name)
  const has = existsSync(path) ? (await stat(path)).size : -1
  if (has === bytes) return
  const from = has > bytes ? 0 : Math.max(0, has)
  const { response, heard } = await get(`${url}/${name}`, options, from > 0 ? { Range: `bytes=${from}-` } : {})
  const flags = response.status === 206 ? 'a' : 'w'
  const watched = async function* (source: AsyncIterable<Uint8Array>) {
    for await (const chunk of source) {
      heard()
      yield chunk
    }
  }
  try {
    if (response.body !== null) {
      await pipeline(Readable.fromWeb(response.body as never), watched, createWriteStream(path, { flags }))
    }
  } finally {
    heard(false)
  }
  const file = await open(path)
  try {
    await file.sync()
    const { size } = await file.stat()
    if (size !== bytes) throw new Error(`${name} has ${size} bytes, expected ${bytes}`)
  } finally {
    await file.close()
  }
}

/**
 * Requests a file. The caller calls `heard()` after each chunk, which renews the timeout, and `heard(false)` at the
 * end.
 */
async function get(
  url: string,
  { token = process.env.TROUPE_WEIGHTS_TOKEN, silenceMs = 30_000 }: FetchOptions,
  headers: Record<string, string> = {},
) {
  const silence = new AbortController()
  const late = () => silence.abort(new Error(`no byte arrived for ${silenceMs} ms`))
  let timer = setTimeout(late, silenceMs)
  const heard = (more = true) => {
    clearTimeout(timer)
    if (more) timer = setTimeout(late, silenceMs)
  }
  knowAddress(url, { isPassing: true })
  const bearer = (token ?? '') === '' ? {} : { Authorization: `Bearer ${knowSecret(token!)}` }
  try {
    const response = await fetch(url, { headers: { ...headers, ...bearer }, signal: silence.signal })
    if (response.ok) return { response, heard }
    await response.body?.cancel()
    throw new Error(`${url} answers ${response.status}`)
  } catch (thrown) {
    heard(false)
    throw thrown
  }
}

async function again<T>(
  url: string,
  { againMs = 500, fetchMs = usualFetchMs }: FetchOptions,
  act: () => Promise<T>,
): Promise<T> {
  const begun = systemEffects.elapsed()
  for (let attempt = 1; ; attempt++) {
    try {
      return await act()
    } catch (thrown) {
      if (attempt < attempts && systemEffects.elapsed() - begun < fetchMs) {
        await sleep(againMs * attempt)
        continue
      }
      throw new TroupeError('engine.no_weights', {
        boundary: 'engine',
        retriable: true,
        message: `cannot fetch the weights at ${url}: ${failedRequest(thrown)}`,
        hint: 'check that the learner still runs: it serves weights while it runs (--serve-weights), and removes those older than train.keepVersions; if the server answers 401, check TROUPE_WEIGHTS_TOKEN; if the error names a file, check this disk',
        cause: thrown,
      })
    }
  }
}

async function prune(into: string, newest: string): Promise<void> {
  const names = (await readdir(into)).filter(name => join(into, name) !== newest)
  // A version that another process removed meanwhile counts as the oldest.
  const ageOf = async (path: string) => ({ path, at: (await stat(path).catch(() => undefined))?.mtimeMs ?? 0 })
  const aged = (await Promise.all(names.map(name => ageOf(join(into, name))))).sort((a, b) => b.at - a.at)
  const isPart = ({ path }: { readonly path: string }) => path.endsWith('.part')
  const abandoned = aged.filter(one => isPart(one) && one.at < systemEffects.now() - partsKeptMs)
  const old = aged.filter(one => !isPart(one)).slice(kept - 1)
  for (const { path } of [...old, ...abandoned]) {
    unchecked(path)
    await rm(path, { recursive: true, force: true })
  }
}
