/**
 * Imports the trajectories of a file as a new run, which replay commands can then read.
 *
 * in   JSON lines or a fixture that `replay export` wrote, a verl rollout dump, or a directory of such dumps
 * out  a new run on the bus
 * Invariant: everything is read and checked before anything is written; an existing run is never changed.
 */
import { readdirSync, readFileSync, statSync } from 'node:fs'
import { basename, join } from 'node:path'
import { recipeSchema } from '../../config'
import type { Fact } from '../../messages/facts'
import type { Message } from '../../messages/topics'
import { codeDigest, dataDigest } from '../../runtime/digests'
import { systemEffects } from '../../runtime/effects'
import { asError, TroupeError } from '../../runtime/errors'
import { openNewRun, runNamed } from '../../runtime/openRun'
import { withoutBom } from '../../runtime/settings/withoutBom'
import { badImport, type Fixture, maxImportBytes, unpackFixture } from './fixture'
import { factsOfLines, type ImportedLine } from './importedFacts'

export interface ImportOptions {
  /** Bus that the new run is written to: lmdb:DIR or kafka://HOST:PORT[,…]. */
  readonly bus: string
  /** Directory of the run's files when the bus is Kafka. */
  readonly dir?: string
  /** Name of the new run. Default: `import-` and the file's name without its extensions. */
  readonly as?: string
  /**
   * Upper bound on the files' total size, and on the unpacked size of a fixture, in bytes. Default 256 MiB: everything
   * is held in memory at once.
   */
  readonly maxBytes?: number
}

export interface Imported {
  readonly run: string
  readonly trajectories: number
  readonly facts: number
}

const appendedAtOnce = 512
const mib = 1024 * 1024

/**
 * Imports the file or directory as a new run. @throws TroupeError replay.bad_import, which names the file, line or
 * trajectory; run.exists; run.bad_name
 */
export async function importRun(path: string, options: ImportOptions): Promise<Imported> {
  const { maxBytes = maxImportBytes } = options
  const name = options.as ?? defaultName(path)
  const files = readFiles(path, maxBytes)
  const [first] = files
  const isFixture = files.length === 1 && looksLikeFixture(first!.content)
  const fixture = isFixture ? fixtureIn(first!, maxBytes) : undefined
  const facts = fixture === undefined ? wholeRun(factsOfLines(linesOf(files), systemEffects.now()), name) : []

  const context = await openNewRun(options.bus, name, options.dir)
  try {
    await context.journal.create(fixture?.partitions ?? 1)
    for (const [partition, messages] of fixture === undefined ? [] : byPartition(fixture)) {
      for (const some of chunks(messages)) await context.journal.appendTo(partition, ...some)
    }
    for (const some of chunks(facts)) await context.journal.append(some)
    const all: readonly Message[] = fixture?.records.map(r => r.message) ?? facts
    return { run: name, trajectories: all.filter(f => f.type === 'rollout.requested').length, facts: all.length }
  } finally {
    await context.bus.close()
  }
}

const defaultName = (path: string): string =>
  `import-${basename(path)
    .replace(/\.(jsonl|json|gz)/g, '')
    .replace(/[^A-Za-z0-9._-]/g, '-')}`

function* chunks<T>(all: readonly T[]): Generator<readonly T[]> {
  for (let at = 0; at < all.length; at += appendedAtOnce) yield all.slice(at, at + appendedAtOnce)
}

const byPartition = ({ partitions, records }: Fixture) =>
  Array.from(
    { length: partitions },
    (_, partition) => [partition, records.filter(r => r.partition === partition).map(r => r.message)] as const,
  )

interface ReadFile {
  readonly name: string
  readonly content: Buffer
}

/** Reads the file, or all .jsonl files of a directory, ordered by the number at the start of their names. */
function readFiles(path: string, maxBytes: number): readonly ReadFile[] {
  try {
    const names = statSync(path).isDirectory()
      ? readdirSync(path)
          .filter(name => name.endsWith('.jsonl'))
          .sort((a, b) => Number.parseInt(a, 10) - Number.parseInt(b, 10) || (a < b ? -1 : 1))
          .map(name => join(path, name))
      : [path]
    const size = names.reduce((sum, name) => sum + statSync(name).size, 0)
    if (size > maxBytes)
      throw badImport(`${path} has ${(size / mib).toFixed(1)} MiB; the limit is ${maxBytes / mib} MiB (--max-mb)`)
    if (names.length === 0) throw badImport(`the directory ${path} contains no .jsonl file`)
    return names.map(name => ({ name, content: readFileSync(name) }))
  } catch (thrown) {
    if (thrown instanceof TroupeError) throw thrown
    throw badImport(`${path} cannot be read: ${asError(thrown).message}`)
  }
}

/** Unpacks a fixture. An error names the file. */
function fixtureIn({ name, content }: ReadFile, maxBytes: number): Fixture {
  try {
    return unpackFixture(content, maxBytes)
  } catch (thrown) {
    throw thrown instanceof TroupeError ? badImport(`${basename(name)}: ${thrown.message}`) : thrown
  }
}

const looksLikeFixture = (content: Buffer): boolean =>
  (content[0] === 0x1f && content[1] === 0x8b) || content.subarray(0, 64).toString('latin1').includes('troupe-fixture')

function linesOf(files: readonly ReadFile[]): readonly ImportedLine[] {
  return files.flatMap(({ name, content }) => {
    const stem = basename(name, '.jsonl')
    const fileStep = /^\d+$/.test(stem) ? { fileStep: Number(stem) } : {}
    return withoutBom(content.toString('utf8'))
      .split('\n')
      .flatMap((text, i): ImportedLine[] => {
        if (text.trim() === '') return []
        const where = `${basename(name)} line ${i + 1}`
        return [{ where, value: objectIn(text, where), ...fileStep }]
      })
  })
}

function objectIn(text: string, where: string): object {
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch (thrown) {
    throw badImport(`${where} is not valid JSON: ${asError(thrown).message}`)
  }
  if (typeof value === 'object' && value !== null) return value
  throw badImport(`${where} is not a JSON object`)
}

/** Adds `run.started`, with a recipe named `imported`, and `run.finished`, with the reason `imported`. */
function wholeRun(facts: readonly Fact[], name: string): readonly Fact[] {
  const at = systemEffects.now()
  const run = runNamed(name)
  const recipe = recipeSchema.parse({ name: 'imported', model: { from: 'directory', path: '.' } })
  const started: Fact = {
    type: 'run.started',
    ...{ at, run, recipe, recipeDigest: dataDigest(recipe), codeDigest: codeDigest(), tokenizerDigest: '', seed: 0 },
    versions: {},
    partitions: { trajectories: 1 },
  }
  const ending = { outcome: 'stopped', reason: 'imported', steps: 0, summary: {} } as const
  return [started, ...facts, { type: 'run.finished', at, run, ...ending }]
}
