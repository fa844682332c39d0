/**
 * Finds or makes the model that a run begins with: a directory that `transformers` loads.
 *
 * in   the recipe's model, and for a random model demonstrations (conversations), from which its tokenizer is made
 * out  the directory and the chat template
 * Invariants: a random model is made once for a run, only from the recipe's model section, seed and demonstrations. It
 * is complete or absent, so it can be made again after a failure for lack of disk space.
 */
import { existsSync, readFileSync } from 'node:fs'
import { mkdir, writeFile } from 'node:fs/promises'
import { dirname, join, resolve } from 'node:path'
import { runPython } from '../../backends/pythonProcess'
import { contextFaults, positionsOf, type RecipeConfig } from '../../config'
import { pcg32, sampleUniform } from '../../kernels/random'
import type { ChatMessage } from '../../messages/facts'
import type { DiskPause } from '../../runtime/disk/diskPause'
import { needText } from '../../runtime/disk/freeSpace'
import { deriveSeed } from '../../runtime/effects'
import { asError, TroupeError } from '../../runtime/errors'
import { torchPythonPath } from '../../runtime/python'
import { retryKilled } from '../../sandbox/retryKilled'

export interface ModelOnDisk {
  readonly directory: string
  /** Path of a chat template to use instead of the one in the directory; undefined: the directory's own. */
  readonly template: string | undefined
}

const initDeadlineMs = 300_000
/** Text of the error with which init_model.py ends on a full disk (disk_full.py). */
const diskFullText = /the disk has no space left/

/**
 * Upper bound on the demonstrations that a tokenizer is trained on; they are drawn uniformly. Training on all 20,000 of
 * the quickstart would take 4 s and add hardly a word.
 */
const corpusConversations = 4000

/**
 * Finds the model that the recipe names, or makes the recipe's random model in `directory` unless it is there already.
 * `disk`: makes the model's files wait while the disk is full. Default: a full disk is an error.
 */
export async function modelOf(
  config: RecipeConfig,
  directory: string,
  demonstrations: () => Promise<readonly (readonly ChatMessage[])[]>,
  disk?: Pick<DiskPause, 'attempt'>,
): Promise<ModelOnDisk> {
  const { model } = config
  if (model.from === 'directory') return given(config, model)
  if (!existsSync(join(directory, 'config.json'))) {
    const make = () => makeModel(config, model, directory, demonstrations)
    await (disk === undefined ? make() : disk.attempt({ what: 'the model', directory, bytes: 0 }, make))
  }
  return { directory, template: undefined }
}

async function makeModel(
  config: RecipeConfig,
  model: Extract<RecipeConfig['model'], { from: 'random' }>,
  directory: string,
  demonstrations: () => Promise<readonly (readonly ChatMessage[])[]>,
): Promise<void> {
  const corpus = join(dirname(directory), 'corpus.jsonl')
  const spec = join(dirname(directory), 'model.json')
  await mkdir(dirname(directory), { recursive: true })
  const all = await demonstrations()
  const random = pcg32(deriveSeed('model/corpus', config.seed))
  const chosen = all.length > corpusConversations ? sampleUniform(random, all, corpusConversations) : all
  const texts = chosen.map(messages => JSON.stringify(messages.map(m => m.content)))
  await writeFile(corpus, `${texts.join('\n')}\n`)
  const { vocabulary, addedTokens, template } = model
  const asked = { config: model.config, corpus, vocabulary, seed: config.seed, chatTemplate: template, addedTokens }
  await writeFile(spec, JSON.stringify(asked))
  const python = torchPythonPath()
  try {
    const module = 'troupe_policy.model.init_model'
    const args = ['--out', directory, '--spec', `@${spec}`]
    await retryKilled(() => runPython({ module, args: () => args, python }, initDeadlineMs))
  } catch (thrown) {
    throw notMade(config.name, directory, thrown)
  }
}

/**
 * Makes the error for a model that init_model.py could not make: config.disk_full (retriable) or config.model_not_made.
 */
export function notMade(recipe: string, directory: string, thrown: unknown): TroupeError {
  const { message } = asError(thrown)
  const { signal, killed } = thrown as { readonly signal?: string | null; readonly killed?: boolean }
  const why = signal || killed ? message.split('\n')[0]! : lastLine(message)
  if (diskFullText.test(why))
    return new TroupeError('config.disk_full', {
      boundary: 'config',
      retriable: true,
      message: `the disk has no space left for the model in ${directory}, or a quota is used up: ${needText(directory)}`,
      hint: `free space on the file system of ${directory}, or raise the quota of this user, then start the run again`,
      cause: thrown,
    })
  return new TroupeError('config.model_not_made', {
    boundary: 'config',
    retriable: false,
    message: `cannot make the model of recipe '${recipe}': ${why}`,
    hint: 'check model.config and model.vocabulary in the recipe; if a signal or a deadline ended the process, check the free memory and the load of this machine',
    cause: thrown,
  })
}

/**
 * Finds the run's model without making one: the directory that the recipe names, or the random model that the learner's
 * process has made in `directory`. @throws TroupeError config.no_model (the recipe's directory has no readable
 * config.json), config.no_model_here (`directory` holds no model yet), config.invalid (the model's context is too
 * short)
 */
export function modelThere(config: RecipeConfig, directory: string): ModelOnDisk {
  const { model } = config
  if (model.from === 'directory') return given(config, model)
  if (existsSync(join(directory, 'config.json'))) return { directory, template: undefined }
  throw new TroupeError('config.no_model_here', {
    boundary: 'config',
    retriable: false,
    message: `directory '${directory}' does not hold the run's model (no config.json)`,
    hint: 'give all processes of the run the same --dir: the learner makes the model there',
  })
}

type Given = Extract<RecipeConfig['model'], { from: 'directory' }>

function given(config: RecipeConfig, { path, template }: Given): ModelOnDisk {
  const directory = resolve(path)
  checkContexts(config, directory)
  return { directory, template }
}

/**
 * Checks that no context length of the recipe, in tokens, exceeds the model's; passes if the model's config.json names
 * none. @throws TroupeError config.invalid if one does, config.no_model if config.json cannot be read
 */
export function checkContexts(config: RecipeConfig, directory: string): void {
  const [fault] = contextFaults(config, positionsIn(directory), `${join(directory, 'config.json')}`)
  if (fault === undefined) return
  const path = fault[0].join('.')
  throw new TroupeError('config.invalid', {
    boundary: 'config',
    retriable: false,
    message: `${path}: ${fault[1]}`,
    hint: `lower ${path}, or use a model with a longer context: --set model.path=DIR`,
  })
}

/**
 * Reads the model's context length, in tokens; undefined if its config.json names none. @throws TroupeError
 * config.no_model
 */
export function positionsIn(directory: string): number | undefined {
  const file = join(resolve(directory), 'config.json')
  const refuse = (why: string, cause?: unknown) =>
    new TroupeError('config.no_model', {
      boundary: 'config',
      retriable: false,
      message: `model.path: '${resolve(directory)}' ${why}`,
      hint: 'make a model with `troupe setup smollm2`, or give a directory that transformers can load: --set model.path=DIR',
      cause,
    })
  if (!existsSync(file)) throw refuse('holds no config.json')
  try {
    return positionsOf(JSON.parse(readFileSync(file, 'utf8')) ?? {})
  } catch (thrown) {
    throw refuse(`holds a config.json that cannot be read: ${asError(thrown).message}`, thrown)
  }
}

const lastLine = (text: string) => text.trim().split('\n').at(-1) ?? text
