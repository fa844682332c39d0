/**
 * Verifies the model that a run made at its start, from which a resume takes config and tokenizer.
 *
 * in   its directory; a checkpoint of the run whose files are as the log says
 * out  a problem for each file that differs from the manifest beside it or, weights excepted, from the checkpoint's
 *      file of that name
 * Invariant: reads only. A missing directory is no problem: the run makes the model again. Fields of the config that
 * only one side has are not compared, since versions of transformers write different ones.
 */
import { existsSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { isDeepStrictEqual } from 'node:util'
import { checkFiles, digestOf, type Manifest, ofModel } from '../../backends/weights/manifest'
import { pathKind, unreadable } from '../../runtime/disk/pathKind'
import type { Problem } from './verification'

/** Config fields that are not compared, as in troupe_policy/model/same_config.py: the model computes the same. */
const ignored = new Set(['_name_or_path', 'architectures', 'dtype', 'torch_dtype', 'transformers_version', 'use_cache'])

export interface SoundCheckpoint {
  readonly directory: string
  readonly manifest: Manifest
}

export async function checkModel(directory: string, checkpoint?: SoundCheckpoint): Promise<readonly Problem[]> {
  if (pathKind(directory).kind === 'nothing') return []
  const why = unreadable(directory, 'directory')
  if (why !== undefined) return [{ place: directory, kind: 'model-damaged', message: `${directory} ${why}` }]
  const { faults } = await checkFiles(directory, undefined)
  const messages = faults.map(({ message }) => message)
  if (messages.length === 0 && checkpoint !== undefined) messages.push(...(await differences(directory, checkpoint)))
  return messages.map(message => ({ place: directory, kind: 'model-damaged', message }))
}

async function differences(directory: string, { directory: other, manifest }: SoundCheckpoint): Promise<string[]> {
  const found: string[] = []
  for (const [name, { sha256 }] of Object.entries(manifest.files ?? {})) {
    if (!ofModel(name) || /\.safetensors(\.index\.json)?$/.test(name)) continue
    const [mine, theirs] = [join(directory, name), join(other, name)]
    const why = pathKind(mine).kind === 'nothing' ? undefined : unreadable(mine, 'file')
    if (why !== undefined) found.push(`${mine} ${why}`)
    else if (name === 'config.json') {
      const fields = await differentFields(mine, theirs)
      if (fields.length > 0) found.push(`${mine} differs from ${theirs} in ${fields.join(', ')}`)
    } else if (existsSync(mine)) {
      const read = await digestOf(mine)
      if (read.why !== undefined) found.push(`${mine} ${read.why}`)
      else if (read.sha256 !== sha256) found.push(`${mine} differs from ${theirs}`)
      // transformers writes generation_config.json into checkpoints of a model that has none.
    } else if (name !== 'generation_config.json') found.push(`${mine} is missing, and the run trained with ${theirs}`)
  }
  return found
}

async function differentFields(mine: string, theirs: string): Promise<readonly string[]> {
  const [one, other] = await Promise.all([mine, theirs].map(fieldsOf))
  if (one === undefined || other === undefined) return ['its form: it is missing, or no JSON object']
  return [...one.keys()].filter(path => other.has(path) && !isDeepStrictEqual(one.get(path), other.get(path)))
}

/** Reads the fields of a config by their paths, such as `text_config.rope_theta`. */
async function fieldsOf(path: string): Promise<ReadonlyMap<string, unknown> | undefined> {
  try {
    const parsed: unknown = JSON.parse(await readFile(path, 'utf8'))
    return isObject(parsed) ? new Map(flat(parsed, '')) : undefined
  } catch {
    return undefined
  }
}

const isObject = (value: unknown): value is object =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

function flat(fields: object, below: string): readonly (readonly [string, unknown])[] {
  return Object.entries(fields)
    .filter(([name]) => !ignored.has(name))
    .flatMap(([name, value]) => (isObject(value) ? flat(value, `${below}${name}.`) : [[`${below}${name}`, value]]))
}
