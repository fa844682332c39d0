/**
 * Compares the files of a checkpoint or of published weights with their manifest, and the manifest with the log.
 *
 * in   a directory, the sha256 of its manifest.json that a fact has
 * out  the faults of its files; none if it is sound
 * Invariant: nothing is changed. Each file is read once. A file beside the model's that the manifest does not name is a
 * fault if a library would load it.
 */
import { createHash } from 'node:crypto'
import { createReadStream } from 'node:fs'
import { readdir, readFile, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { z } from 'zod'
import { pathKind, unreadable } from '../../runtime/disk/pathKind'
import { asError } from '../../runtime/errors'

export const manifestName = 'manifest.json'
/**
 * File name of the optimizer's state in checkpoints of earlier Troupe versions; today the state has a folder of its
 * own.
 */
export const optimizerFile = 'optimizer.safetensors'
/** Highest manifest `format` (layout of the directory) that this version reads (troupe_policy/model/manifest.py). */
export const manifestFormat = 2

/** A file that is not what its manifest, or the log, says. */
export interface FileFault {
  readonly file: string
  /** sha256 that was expected, in hex. */
  readonly expected: string
  /** sha256 that the file has; null if the file is missing. */
  readonly found: string | null
  /** The fault in words, with the file's path. */
  readonly message: string
}

/** Text of the first fault, and the number of the others. */
export function faultsText([first, ...others]: readonly FileFault[]): string {
  const message = first?.message ?? ''
  return others.length === 0 ? message : `${message}; and ${others.length} more files differ`
}

const shape = z.object({
  digest: z.string().optional(),
  files: z.record(z.string(), z.object({ sha256: z.string(), bytes: z.number() })).optional(),
})

export type Manifest = z.infer<typeof shape>

/** Result of a check. `manifest`: null if there is none, or if it cannot be used. */
export interface Checked {
  readonly faults: readonly FileFault[]
  readonly manifest: Manifest | null
  readonly files: number
  readonly bytes: number
}

/** Names of files beside config.json that transformers and inference servers load if they are there (manifest.py). */
const loaded =
  /^(.*\.safetensors(\.index\.json)?|pytorch_model.*\.bin(\.index\.json)?|.*\.jinja|.*\.tiktoken|.*config\.json|tokenizer\.(json|model)|special_tokens_map\.json|added_tokens\.json|vocab\.(json|txt)|merges\.txt|chat_template\.json)$/

/** True for the files of the model itself: the trainer's state and adapters lie in folders. */
export const ofModel = (name: string): boolean => !name.includes('/')

/**
 * Checks a directory. `expected`: sha256 that manifest.json must have; undefined if the log has none, and then a
 * directory without a manifest, or with another program's, has no faults. `wanted`: selects the files to read; default:
 * all that the manifest names. If manifest.json is missing, differs or is invalid, that is the only fault, and no other
 * file is read.
 */
export async function checkFiles(
  directory: string,
  expected: string | undefined,
  wanted: (name: string) => boolean = () => true,
): Promise<Checked> {
  const path = join(directory, manifestName)
  const content = await readWhole(path)
  const refused = (found: string | null, message: string): Checked => {
    return { faults: [{ file: path, expected: expected ?? '', found, message }], manifest: null, files: 1, bytes: 0 }
  }
  if (content === null) {
    if (expected === undefined) return { faults: [], manifest: null, files: 0, bytes: 0 }
    return refused(null, `${path} is missing; the log has its digest ${short(expected)}`)
  }
  if (typeof content === 'string') return refused(null, `${path} ${content}`)
  const found = createHash('sha256').update(content).digest('hex')
  if (expected !== undefined && found !== expected) {
    return refused(found, `${path} has the digest ${short(found)}, but the log says ${short(expected)}`)
  }
  const json = jsonOf(content.toString('utf8'))
  if (expected === undefined && json !== undefined && !isOurs(json))
    return { faults: [], manifest: null, files: 0, bytes: 0 }
  const parsed = shape.safeParse(json)
  if (!parsed.success) return refused(found, `${path} is not a valid manifest of a checkpoint or of published weights`)
  const manifest = parsed.data
  const faults: FileFault[] = []
  if (manifest.files !== undefined) faults.push(...(await unnamed(directory, manifest.files)))
  let [files, bytes] = [1, content.length]
  for (const [name, described] of Object.entries(manifest.files ?? {})) {
    if (!wanted(name)) continue
    const fault = await faultOf(join(directory, name), described)
    if (fault !== undefined) faults.push(fault)
    files++
    bytes += described.bytes
  }
  return { faults, manifest, files, bytes }
}

/** False for a file of this name that another program wrote. */
function isOurs(json: unknown): boolean {
  const { format, digest } = (json ?? {}) as { readonly format?: unknown; readonly digest?: unknown }
  return typeof format === 'number' || typeof digest === 'string'
}

/** Finds files beside the model's that a library would load although the manifest does not name them. */
async function unnamed(directory: string, named: object): Promise<readonly FileFault[]> {
  const entries = await readdir(directory, { withFileTypes: true })
  const faults: FileFault[] = []
  for (const { name } of entries.filter(one => !one.isDirectory() && !one.name.startsWith('.'))) {
    if (name === manifestName || Object.hasOwn(named, name) || !loaded.test(name)) continue
    const file = join(directory, name)
    const message = `${file} would be loaded, but the manifest beside it does not name it: remove that file`
    faults.push({ file, expected: '', found: null, message })
  }
  return faults
}

/** Compares one file with its entry in the manifest. Returns undefined if they agree. */
async function faultOf(
  path: string,
  { sha256, bytes }: { readonly sha256: string; readonly bytes: number },
): Promise<FileFault | undefined> {
  const read = await digestOf(path)
  if (read.why !== undefined) {
    const message = `${path} ${read.why}; the manifest has its digest ${short(sha256)}`
    return { file: path, expected: sha256, found: null, message }
  }
  if (read.sha256 === sha256) return undefined
  const size = read.bytes === bytes ? '' : ` (${read.bytes} bytes instead of ${bytes})`
  const message = `${path} has the digest ${short(read.sha256)}${size}, but the manifest says ${short(sha256)}`
  return { file: path, expected: sha256, found: read.sha256, message }
}

/** Reads a file; null if it is missing. If it cannot be read, returns why, as words to follow the file's path. */
async function readWhole(path: string): Promise<Buffer | string | null> {
  if (pathKind(path).kind === 'nothing') return null
  return unreadable(path, 'file') ?? (await readFile(path).catch(failedRead))
}

const failedRead = (thrown: unknown): string => `cannot be read: ${asError(thrown).message}`

/** Sha256 and size of a file; if it cannot be read, `why`: words to follow the file's path. */
export type ReadDigest =
  | { readonly sha256: string; readonly bytes: number; readonly why?: undefined }
  | { readonly why: string }

/** Reads a file and returns its digest, or says why it cannot be read; never throws. */
export async function digestOf(path: string): Promise<ReadDigest> {
  const why = unreadable(path, 'file')
  if (why !== undefined) return { why }
  try {
    return { sha256: await sha256Of(path), bytes: (await stat(path)).size }
  } catch (thrown) {
    return { why: failedRead(thrown) }
  }
}

/** Returns the sha256 of a file, in hex. */
export async function sha256Of(path: string): Promise<string> {
  const hash = createHash('sha256')
  for await (const chunk of createReadStream(path, { highWaterMark: 1 << 20 })) hash.update(chunk)
  return hash.digest('hex')
}

/** Names of the weight files in a directory, sorted; without the optimizer.safetensors of earlier Troupe versions. */
export const weightFiles = (names: readonly string[]): readonly string[] =>
  names.filter(name => name.endsWith('.safetensors') && name !== optimizerFile).sort()

/**
 * Returns the sha256 over the bytes of weight files in the order of their names, in hex, as troupe_policy computes it.
 * @throws Error with the path of a file that cannot be read
 */
export async function weightsDigest(directory: string, names: readonly string[]): Promise<string> {
  const hash = createHash('sha256')
  for (const name of names) {
    const path = join(directory, name)
    const why = unreadable(path, 'file')
    if (why !== undefined) throw new Error(`${path} ${why}`)
    for await (const chunk of createReadStream(path, { highWaterMark: 1 << 20 })) hash.update(chunk)
  }
  return hash.digest('hex')
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

export const short = (digest: string): string => `${digest.slice(0, 12)}…`
