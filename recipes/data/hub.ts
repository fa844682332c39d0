/**
 * Downloads files of a data set from the Hugging Face hub, over its HTTP API.
 *
 * in   owner/name, a revision, a pattern for paths        out  files in a cache directory
 * Invariant: a file in the cache is whole. It is written under another name, its size is compared with the listing (if
 * that has one), and then it is renamed. Every wait has a deadline: a server that sends nothing for `idleMs` is an
 * error.
 */
import { createWriteStream, existsSync, statSync } from 'node:fs'
import { mkdir, rename, rm } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { Readable, Transform } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { z } from 'zod'
import { failedRequest, TroupeError } from '../../runtime/errors'
import { knowAddress } from '../../runtime/secrets/credentials'
import { knowSecret } from '../../runtime/secrets/knownSecrets'

export interface HubOptions {
  /** Name of the data set on the hub: owner/name. */
  readonly repo: string
  /** Git revision of the data set. Default: main. */
  readonly revision?: string
  /** Pattern for the paths, in the data set, of the files to download. */
  readonly paths: RegExp
  readonly cache: string
  /** Base URL of the hub. Default: HF_ENDPOINT, else https://huggingface.co */
  readonly endpoint?: string
  /** Access token of the hub, sent as a bearer token. Default: the value of HF_TOKEN. */
  readonly token?: string | undefined
  /**
   * Milliseconds after which a request is aborted: without a byte of a file, or without the whole page of a listing.
   * Default: 30,000.
   */
  readonly idleMs?: number
  readonly onFile?: (path: string, bytes: number) => void
}

const listing = z.array(z.object({ type: z.string(), path: z.string(), size: z.number().optional() }))
/** Upper bound on the pages of a listing, against a server that always names a next page. */
const maxPages = 200

/**
 * Downloads the files; resolves with their local paths.
 * @throws TroupeError data.hub_unreachable: no connection, or no answer in time. data.hub_refused: the set needs a
 * token or accepted terms. data.hub_missing: no such data set, revision or file, or no file with a wanted path.
 * data.hub_answer: another HTTP status than 2xx, 401, 403 and 404; no list of files, or one of over 200 pages; or a listed path that leads out of
 * the cache. data.hub_broken: a download ended early, or its file could not be written.
 */
export async function hubFiles(options: HubOptions): Promise<readonly string[]> {
  const wanted = (await list(options)).filter(file => file.type === 'file' && options.paths.test(file.path))
  if (wanted.length === 0) {
    throw hubError(
      'missing',
      options,
      `has no file whose path matches ${options.paths}`,
      'give the file itself: --from FILE',
    )
  }
  const files: string[] = []
  for (const { path, size } of wanted) files.push(await download(options, path, size))
  return files
}

const hubEndpoint = ({ endpoint }: Pick<HubOptions, 'endpoint'> = {}): string =>
  (endpoint ?? (process.env.HF_ENDPOINT || 'https://huggingface.co')).replace(/\/+$/, '')

const revisionOf = ({ revision = 'main' }: HubOptions) => encodeURIComponent(revision)

async function list(options: HubOptions): Promise<z.output<typeof listing>> {
  const found: z.output<typeof listing> = []
  let url: string | undefined =
    `${hubEndpoint(options)}/api/datasets/${options.repo}/tree/${revisionOf(options)}?recursive=true`
  for (let page = 0; url !== undefined && page < maxPages; page++) {
    const { response, done } = await ask(options, url)
    try {
      const read = listing.safeParse(await response.json().catch(() => undefined))
      if (!read.success) throw hubError('answer', options, 'sent no complete list of files')
      found.push(...read.data)
      const next: string | undefined = /<([^>]+)>;\s*rel="next"/.exec(response.headers.get('link') ?? '')?.[1]
      url = next === undefined ? undefined : new URL(next, url).href
    } finally {
      done()
    }
  }
  if (url !== undefined)
    throw hubError(
      'answer',
      options,
      `lists its files on more than ${maxPages} pages`,
      'give the file itself: --from FILE',
    )
  return found.sort((a, b) => (a.path < b.path ? -1 : 1))
}

async function download(options: HubOptions, path: string, size: number | undefined): Promise<string> {
  const parts = path.split('/')
  if (parts.some(part => part === '' || part === '.' || part === '..') || path.includes('\\')) {
    throw hubError('answer', options, `lists a file with the unsafe path '${path}'`)
  }
  const file = join(options.cache, ...options.repo.split('/'), options.revision ?? 'main', ...parts)
  if (existsSync(file) && (size === undefined || statSync(file).size === size)) return file
  const url = `${hubEndpoint(options)}/datasets/${options.repo}/resolve/${revisionOf(options)}/${parts.map(encodeURIComponent).join('/')}`
  const { response, alive, done } = await ask(options, url)
  const partial = `${file}.${process.pid}.part`
  try {
    await mkdir(dirname(file), { recursive: true })
    const counting = new Transform({
      transform(chunk, _encoding, next) {
        alive()
        next(null, chunk)
      },
    })
    if (response.body === null) throw new Error('the response has no body')
    await pipeline(
      Readable.fromWeb(response.body as Parameters<typeof Readable.fromWeb>[0]),
      counting,
      createWriteStream(partial),
    )
    const bytes = statSync(partial).size
    if (size !== undefined && bytes !== size) throw new Error(`received ${bytes} of ${size} bytes`)
    await rename(partial, file)
    options.onFile?.(path, bytes)
    return file
  } catch (thrown) {
    await rm(partial, { force: true })
    const hint = `try again; if the reason is an error of a file or of the disk, give ${options.cache} space and write access first`
    throw hubError('broken', options, `could not be downloaded: ${path}: ${failedRequest(thrown)}`, hint, thrown)
  } finally {
    done()
  }
}

async function ask(
  options: HubOptions,
  url: string,
): Promise<{ response: Response; alive: () => void; done: () => void }> {
  const { idleMs = 30_000 } = options
  const token = options.token ?? process.env.HF_TOKEN
  const abort = new AbortController()
  const giveUp = () => abort.abort(new Error(`no answer for ${idleMs / 1000} s`))
  let timer = setTimeout(giveUp, idleMs)
  const done = () => clearTimeout(timer)
  const alive = () => {
    clearTimeout(timer)
    timer = setTimeout(giveUp, idleMs)
  }
  let response: Response
  try {
    knowAddress(url, { isPassing: true })
    const headers = token ? { authorization: `Bearer ${knowSecret(token)}` } : {}
    response = await fetch(url, { headers, signal: abort.signal })
  } catch (thrown) {
    done()
    const hint = 'download the file on a machine with a network and give --from FILE, or name a mirror: HF_ENDPOINT=URL'
    throw hubError('unreachable', options, `cannot be reached: ${failedRequest(thrown)}`, hint, thrown)
  }
  if (response.ok) return { response, alive, done }
  done()
  await response.body?.cancel()
  if (response.status === 401 || response.status === 403) {
    const hint =
      'check the name (the hub answers 401 for a set that does not exist, too); accept the terms on its page and set HF_TOKEN, or download the file and give --from FILE'
    throw hubError('refused', options, `refused the request (HTTP ${response.status})`, hint)
  }
  if (response.status === 404)
    throw hubError(
      'missing',
      options,
      `was not found (HTTP 404): the set, its revision '${options.revision ?? 'main'}' or the file does not exist`,
      'name another data set: --from hub:OWNER/NAME',
    )
  throw hubError('answer', options, `answered with HTTP ${response.status}`, 'try again later, or give --from FILE')
}

function hubError(
  kind: 'unreachable' | 'refused' | 'missing' | 'answer' | 'broken',
  options: HubOptions,
  said: string,
  hint = 'download the file and give --from FILE',
  cause?: unknown,
): TroupeError {
  const { host } = new URL(hubEndpoint(options))
  return new TroupeError(`data.hub_${kind}`, {
    boundary: 'process',
    retriable: kind === 'unreachable' || kind === 'broken',
    message: `data set ${options.repo} on ${host} ${said}`,
    hint,
    cause,
  })
}
