/**
 * What the real command line makes of a documented call: its parser with every option's reader, without running anything.
 *
 * in   the arguments of a call     out  the command's name, its arguments and options; throws what the parser says about a wrong call
 * Words in capitals stand for what the reader puts there (RUN, RECIPE, DIR); a lone `…` for more of the same.
 */
import { existsSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import type { Command } from 'commander'
import { commandLine } from '../../cli/main'
import { engineOverrides } from '../../config/engineAddress'
import { recipes } from '../../recipes'
import { readRecipe } from '../../recipes/load/loadRecipe'

export interface ParsedCommand {
  /** `replay show`. */
  readonly name: string
  readonly description: string
  readonly args: readonly string[]
  readonly options: Readonly<Record<string, unknown>>
}

const isPlaceholder = (word: string) => /^[A-Z][A-Z0-9_-]*$/.test(word)
const root = join(__dirname, '../..')

/** @throws Error what the parser of the command line prints */
export async function parsedCommand(args: readonly string[]): Promise<ParsedCommand> {
  const program = commandLine(args)
  let found: ParsedCommand | undefined
  let said = ''
  const record = (command: Command): void => {
    const writeErr = (text: string) => {
      said += text
    }
    command.configureOutput({ writeErr, writeOut: () => {} })
    for (const inner of command.commands) record(inner)
    if (command.commands.length > 0) return
    command.action(() => {
      found = { name: pathOf(command), description: command.description(), args: command.args, options: command.opts() }
    })
  }
  record(program)
  await program
    .parseAsync(
      args.filter(word => word !== '…'),
      { from: 'user' },
    )
    .catch((error: Error) => {
      if (!args.includes('--help')) throw new Error(said.trim() || error.message)
    })
  if (found === undefined && !args.includes('--help')) throw new Error('no command was called')
  return found ?? { name: 'help', description: '', args: [], options: {} }
}

const pathOf = (command: Command): string =>
  command.parent?.parent == null ? command.name() : `${pathOf(command.parent)} ${command.name()}`

const benches = () => readdirSync(join(root, 'bench')).map(file => file.replace(/\.ts$/, ''))
/** Commands whose description lists the names that they take. */
const describing = ['eval', 'data', 'experiment', 'setup']
const ofRecipes = ['train', 'rollout', 'rehearse', 'ranks', 'check', 'config print', 'gateway']

/** Returns what is wrong with the names in a call: recipes, benchmarks, data sets, fields of `--set`. `page`: text in which files of the reader's own are named. */
export function wrongNames({ name, description, args, options }: ParsedCommand, page: string): readonly string[] {
  const [first] = args
  if (first === undefined || isPlaceholder(first)) return wrongFields('quickstart', options)
  const known = name === 'bench' ? benches() : describing.includes(name) ? description.split(/[^\w-]+/) : undefined
  if (known !== undefined) return known.includes(first) ? [] : [`${name}: '${first}' is none of ${known.join(', ')}`]
  if (!ofRecipes.includes(name)) return []
  if (recipes.has(first)) return wrongFields(first, options)
  const isOwnFile = /\.(yaml|ts|js|py)$/.test(first) && page.split(first).length > 2
  return isOwnFile || existsSync(join(root, first))
    ? []
    : [`${name}: no recipe '${first}', and the page shows no such file`]
}

/** Fields of `--set` and `--engine` that no recipe has. What a value contradicts is a matter of the recipe. */
function wrongFields(recipe: string, { set = [], engine = [] }: Readonly<Record<string, unknown>>): readonly string[] {
  const addresses = Array.isArray(engine) ? engine.map((one: string) => one.toLowerCase()) : []
  const { problems } = readRecipe(recipe, [...engineOverrides(addresses), ...(set as readonly string[])])
  return problems.map(({ path, why }) => `${path.join('.')}: ${why}`).filter(text => text.includes('unknown field'))
}
