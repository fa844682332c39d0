/**
 * `troupe init [DIR]`: makes a small project of the user's own that `troupe train` runs at once.
 *
 * in   a directory, the language        out  recipe, problems, conversations, a tool, a reward, a test, a README
 * Invariant: no existing file is changed: if one of the files exists already, nothing is written.
 */
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join, relative, resolve } from 'node:path'
import type { Command } from 'commander'
import { TroupeError } from '../../runtime/errors'
import { demonstrationLines, problemLines } from './demonstrations'
import { type Language, readme } from './readme'

interface Options {
  readonly yaml?: boolean
  readonly python?: boolean
  readonly ts?: boolean
}

const templates = join(__dirname, '../../recipes/starter')

export function registerInit(program: Command): void {
  program
    .command('init [directory]')
    .description('make a small project of your own: recipe, problems, tool, reward, test')
    .option('--yaml', 'a recipe in YAML, tool and reward in Python (default)')
    .option('--python', 'recipe, tool and reward in one Python file')
    .option('--ts', 'recipe, tool and reward in TypeScript')
    .action((directory: string | undefined, options: Options) => {
      process.stdout.write(init(directory ?? '.', languageOf(options)))
    })
}

function languageOf(options: Options): Language {
  const [first = 'yaml', ...others] = (['yaml', 'python', 'ts'] as const).filter(name => options[name])
  if (others.length === 0) return first
  throw new TroupeError('cli.wrong_usage', {
    boundary: 'cli',
    retriable: false,
    message: `--${first} and --${others[0]} exclude each other`,
    hint: 'give one of --yaml, --python and --ts',
  })
}

/** Writes the project. Returns what to print. @throws TroupeError cli.file_exists */
export function init(directory: string, language: Language): string {
  const files = filesOf(language)
  const there = [...files.keys()].filter(name => existsSync(join(directory, name)))
  if (there.length > 0)
    throw new TroupeError('cli.file_exists', {
      boundary: 'cli',
      retriable: false,
      message: `${resolve(directory)} already holds ${there.join(', ')}; nothing was written`,
      hint: 'give a new directory: troupe init DIR',
    })
  mkdirSync(directory, { recursive: true })
  for (const [name, text] of files) writeFileSync(join(directory, name), text)
  const near = relative(process.cwd(), resolve(directory))
  const enter = near === '' ? [] : [`cd ${near.startsWith('..') ? resolve(directory) : near}`]
  return [
    `made ${[...files.keys()].join(', ')}`,
    ...enter,
    'npx troupe check   # in a second: is anything wrong?',
    'npx troupe train   # a minute or two on 2 cores',
    '',
  ].join('\n')
}

function filesOf(language: Language): ReadonlyMap<string, string> {
  const folder = join(templates, language)
  // Templates of TypeScript files and tests end in .txt: the package has no .ts files, and a test runner would run
  // tests.
  const own = readdirSync(folder)
    .filter(name => !name.startsWith('__'))
    .map(name => [name.replace(/\.txt$/, ''), readFileSync(join(folder, name), 'utf8')] as const)
  return new Map([
    ...own,
    ['problems.jsonl', `${problemLines().join('\n')}\n`],
    ['demonstrations.jsonl', `${demonstrationLines().join('\n')}\n`],
    ['README.md', readme(language)],
  ])
}
