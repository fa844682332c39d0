/**
 * Translates single token ids to text for people, by the tokenizer.json of a run's model.
 *
 * in   directories that may have a tokenizer.json        out  the text of a token id, or undefined when it is not known
 * Invariant: the texts are for display, and for cutting a recorded text between two tokens (`replay limits`). Training
 * uses the recorded ids; nothing is ever tokenised here.
 */
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { pathToday } from '../../runtime/runPaths'
import { factsOf, type RecordedRun } from '../log/recordedRun'

export type TokenTexts = (token: number) => string | undefined

interface TokenizerFile {
  readonly model?: { readonly vocab?: Readonly<Record<string, number>> }
  readonly added_tokens?: readonly { readonly id: number; readonly content: string }[]
}

/** Directories that may hold the run's tokenizer: its own model, the recipe's model, the weights that it published. */
export async function modelDirectories(recorded: RecordedRun): Promise<readonly string[]> {
  const published = await factsOf(recorded, 'learner', ['weights.published'])
  const { recipe } = await recorded.started()
  const model = recipe.model as { readonly path?: unknown } | undefined
  const weights = new Set(published.map(p => pathToday(recorded.files.root, p.url)))
  return [recorded.files.model, ...(typeof model?.path === 'string' ? [model.path] : []), ...weights]
}

/** Uses the first directory whose tokenizer.json maps texts to ids; without one, every text is undefined. */
export function tokenTexts(directories: readonly string[]): TokenTexts {
  for (const directory of directories) {
    const path = join(directory, 'tokenizer.json')
    if (!existsSync(path)) continue
    const file = JSON.parse(readFileSync(path, 'utf8')) as TokenizerFile
    const vocabulary = file.model?.vocab
    if (vocabulary === undefined || Array.isArray(vocabulary)) continue
    const bytes = byteOf()
    const texts = new Map<number, string>()
    for (const [text, id] of Object.entries(vocabulary)) texts.set(id, plain(text, bytes))
    for (const { id, content } of file.added_tokens ?? []) texts.set(id, content)
    return token => texts.get(token)
  }
  return () => undefined
}

/**
 * Decodes a vocabulary entry. Byte-level BPE writes bytes as printable characters (GPT-2's table); entries of other
 * vocabularies are returned unchanged.
 */
function plain(text: string, bytes: ReadonlyMap<string, number>): string {
  const values: number[] = []
  for (const character of text) {
    const value = bytes.get(character)
    if (value === undefined) return text
    values.push(value)
  }
  return Buffer.from(values).toString('utf8')
}

function byteOf(): ReadonlyMap<string, number> {
  const isPrintable = (b: number) => (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174
  const map = new Map<string, number>()
  let next = 256
  for (let b = 0; b < 256; b++) map.set(String.fromCodePoint(isPrintable(b) ? b : next++), b)
  return map
}
