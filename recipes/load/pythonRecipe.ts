/**
 * Reads a recipe from a Python file. Its dict `recipe` has the fields of a YAML recipe, and may hold functions as tools
 * and as the reward.
 *
 * in   a file        out  plain data, in which a function's name and its file stand for the function
 * Invariant: the file is imported once, within 60 s, by the Python that `troupe setup` installed, with the rights of
 * this process.
 */
import { execFileSync } from 'node:child_process'
import { TroupeError } from '../../runtime/errors'
import { failedHow, pythonPath, userCodeEnvironment } from '../../runtime/python'
import type { PlainObject } from '../../runtime/settings/resolveConfig'

const importMs = 60_000

/**
 * Imports the file and returns its dict `recipe`. @throws TroupeError config.unreadable, with the file and the line;
 * process.no_python
 */
export function pythonRecipe(file: string): PlainObject {
  const unreadable = (place: string, why: string, cause?: unknown) =>
    new TroupeError('config.unreadable', {
      ...{ boundary: 'config', retriable: false, message: `${place}: ${why}`, cause },
      hint: 'a recipe in Python is a dict named `recipe`, with the fields of a YAML recipe: recipe = {"model": …, "data": …}; docs/recipes.md shows one',
    })
  const python = pythonPath()
  let printed: string
  try {
    printed = execFileSync(python, ['-m', 'troupe_policy.functions.recipe', file], {
      encoding: 'utf8',
      timeout: importMs,
      stdio: ['ignore', 'pipe', 'pipe'],
      env: userCodeEnvironment(),
    })
  } catch (thrown) {
    throw unreadable(file, `cannot be imported: ${failedHow(thrown, importMs)}`, thrown)
  }
  const said = answerIn(printed)
  if (said === undefined) {
    const end = JSON.stringify(printed.trimEnd().slice(-200))
    throw unreadable(file, `ended the process that imports it, whose output ends with ${end}`)
  }
  if (said.recipe !== undefined) return said.recipe
  throw unreadable(said.line == null ? file : `${file}:${said.line}`, said.fault ?? 'cannot be imported')
}

interface Answer {
  readonly recipe?: PlainObject
  readonly fault?: string
  readonly line?: number | null
}

/** Returns the last answer in the output: a library, or a process of the file, may have printed other lines. */
function answerIn(printed: string): Answer | undefined {
  for (const line of printed.split('\n').reverse()) {
    if (!/^\{"(recipe|fault)": /.test(line)) continue
    try {
      return JSON.parse(line) as Answer
    } catch {
      // The line only begins like an answer.
    }
  }
  return undefined
}
