/**
 * `troupe replay import F`: trajectories of a file as a run of its own, to be looked at like any other.
 *
 * in   JSON lines or a fixture that `replay export` wrote, a verl rollout dump, a directory of them
 * out  a new run on the bus; the name of it on stdout
 * Invariant: everything is read and checked before anything is written; a run that is there already is never touched.
 */
import { readdirSync, readFileSync, statSync } from 'node:fs'
import { basename, join } from 'node:path'
import type { Command } from 'commander'
import { recipeSchema } from '../../config'
import type { Fact } from '../../messages/facts'
import { badImport, maxImportBytes, unpackFixture } from '../../replay/exchange/fixture'
import { factsOfLines, type ImportedLine } from '../../replay/exchange/importedFacts'
import { codeDigest, dataDigest } from '../../runtime/digests'
import { systemEffects } from '../../runtime/effects'
import { asError, TroupeError } from '../../runtime/errors'
import { openNewRun, runNamed } from '../../runtime/openRun'
import { withoutBom } from '../../runtime/settings/withoutBom'
import { withBus, withDirectory } from '../options/busOptions'
import { wholeNumber } from '../options/readers'
import { jsonText } from './jsonText'

interface ImportOptions {
  readonly bus: string
  readonly dir?: string
  readonly as?: string
  readonly maxMb: number
  readonly json?: boolean
}

const mib = 1024 * 1024
const appendedAtOnce = 512

export function registerImport(replay: Command): void {
  const command = replay
    .command('import <file>')
    .description(
      "a run of its own from exported JSON lines, a fixture, or verl's rollout_data_dir (a file or a directory)",
    )
    .option('--as <run>', 'name of the run (default: import-<file>)')
    .option('--max-mb <n>', 'refuse what is larger', wholeNumber(1, 4096), maxImportBytes / mib)
    .option('--json', 'one JSON object')
  withDirectory(withBus(command)).action(importRun)
}

async function importRun(file: string, options: ImportOptions): Promise<void> {
  const name =
    options.as ??
    `import-${basename(file)
      .replace(/\.(jsonl|json|gz)/g, '')
      .replace(/[^A-Za-z0-9._-]/g, '-')}`
  const bytes = readAll(file, options.maxMb * mib)
  const isFixture = bytes.length === 1 && looksLikeFixture(bytes[0]!.content)
  const fixture = isFixture ? unpackFixture(bytes[0]!.content, options.maxMb * mib) : undefined
  const facts = fixture === undefined ? runFacts(factsOfLines(linesOf(bytes), systemEffects.now()), name) : []

  const context = await openNewRun(options.bus, name, options.dir)
  try {
    await context.journal.create(fixture?.partitions ?? 1)
    for (let partition = 0; partition < (fixture?.partitions ?? 0); partition++) {
      const messages = fixture!.records.filter(r => r.partition === partition).map(r => r.message)
      for (let at = 0; at < messages.length; at += appendedAtOnce)
        await context.journal.appendTo(partition, ...messages.slice(at, at + appendedAtOnce))
    }
    for (let at = 0; at < facts.length; at += appendedAtOnce)
      await context.journal.append(facts.slice(at, at + appendedAtOnce))
    const all = fixture === undefined ? facts : fixture.records.map(r => r.message)
    const trajectories = all.filter(f => f.type === 'rollout.requested').length
    const said = { run: name, trajectories, facts: all.length }
    process.stdout.write(
      options.json ? `${jsonText(said)}\n` : `run ${name}: ${trajectories} trajectories, ${all.length} facts\n`,
    )
  } finally {
    await context.bus.close()
  }
}

interface Read {
  readonly name: string
  readonly content: Buffer
}

function readAll(path: string, maxBytes: number): readonly Read[] {
  try {
    const isDirectory = statSync(path).isDirectory()
    const names = isDirectory
      ? readdirSync(path)
          .filter(name => name.endsWith('.jsonl'))
          .sort((a, b) => Number.parseInt(a, 10) - Number.parseInt(b, 10) || (a < b ? -1 : 1))
          .map(name => join(path, name))
      : [path]
    const size = names.reduce((sum, name) => sum + statSync(name).size, 0)
    if (size > maxBytes)
      throw badImport(`${path} has ${(size / mib).toFixed(1)} MiB, over the ${maxBytes / mib} that are taken; --max-mb`)
    if (names.length === 0) throw badImport(`${path} holds no .jsonl file`)
    return names.map(name => ({ name, content: readFileSync(name) }))
  } catch (thrown) {
    if (thrown instanceof TroupeError) throw thrown
    throw badImport(`${path} cannot be read: ${asError(thrown).message}`)
  }
}

const looksLikeFixture = (content: Buffer): boolean =>
  (content[0] === 0x1f && content[1] === 0x8b) || content.subarray(0, 64).toString('latin1').includes('troupe-fixture')

function linesOf(files: readonly Read[]): readonly ImportedLine[] {
  return files.flatMap(({ name, content }) => {
    const fileStep = /^\d+$/.test(basename(name, '.jsonl')) ? Number(basename(name, '.jsonl')) : undefined
    return withoutBom(content.toString('utf8'))
      .split('\n')
      .flatMap((text, i): ImportedLine[] => {
        if (text.trim() === '') return []
        const where = `${basename(name)} line ${i + 1}`
        let value: unknown
        try {
          value = JSON.parse(text)
        } catch (thrown) {
          throw badImport(`${where} is no JSON: ${asError(thrown).message}`)
        }
        if (typeof value !== 'object' || value === null) throw badImport(`${where} is no JSON object`)
        return [{ where, value, ...(fileStep === undefined ? {} : { fileStep }) }]
      })
  })
}

/** Begins and ends the run, so that every command finds under what its facts came about: by import. */
function runFacts(facts: readonly Fact[], name: string): readonly Fact[] {
  const at = systemEffects.now()
  const run = runNamed(name)
  const recipe = recipeSchema.parse({ name: 'imported', model: { from: 'directory', path: '.' } })
  const started: Fact = {
    type: 'run.started',
    ...{ at, run, recipe, recipeDigest: dataDigest(recipe), codeDigest: codeDigest(), tokenizerDigest: '', seed: 0 },
    versions: {},
    partitions: { trajectories: 1 },
  }
  const finished: Fact = {
    type: 'run.finished',
    at,
    run,
    outcome: 'stopped',
    reason: 'imported',
    steps: 0,
    summary: {},
  }
  return [started, ...facts, finished]
}
