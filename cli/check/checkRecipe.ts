/**
 * Checks all parts of a recipe before a run, and reports all faults at once.
 *
 * in   the recipe's name or file, `--set`, where the run would write, whether it trains
 * out  the faults, errors first; a summary of what was checked (`said`)
 * Invariant: starts no model, engine, trainer, sandbox or server, and writes no file itself; the recipe's own code
 * (tasks, tool functions) is loaded, as in a run. A check that depends on a faulty part is left out: without Python or
 * a readable model no prompt is rendered, and `said` has `no prompts`.
 */
import { existsSync } from 'node:fs'
import { relative, resolve } from 'node:path'
import type { Recipe, RecipeConfig } from '../../config'
import type { ChatMessage } from '../../messages/facts'
import { type ReadRecipe, readRecipe } from '../../recipes/load/loadRecipe'
import { yamlLine } from '../../recipes/load/yamlPlace'
import { TroupeError } from '../../runtime/errors'
import { dataFaults } from './dataFaults'
import { error, type Fault, faultOf } from './fault'
import { machineFaults } from './machineFaults'
import { modelFaults } from './modelFaults'
import { promptFaults } from './promptFaults'
import { pythonRewardFaults, rewardNameFaults } from './rewardFaults'
import { scheduleFaults } from './scheduleFaults'
import { toolFaults } from './toolFaults'

export interface CheckOptions {
  readonly set: readonly string[]
  /** Directory in which the run would write; its permissions and disk are not checked if the field is absent. */
  readonly directory?: string
  /** False for a run that does not train. */
  readonly learns: boolean
}

export interface Checked {
  readonly faults: readonly Fault[]
  readonly said: readonly string[]
  /** True if the recipe states its model's architecture, so that it can be planned without the model's files. */
  readonly isPlan: boolean
}

export async function checkRecipe(name: string, options: CheckOptions): Promise<Checked> {
  let read: ReadRecipe
  try {
    read = readRecipe(name, options.set)
  } catch (thrown) {
    return { faults: [faultOf(thrown, name)], said: [], isPlan: false }
  }
  const file = existsSync(resolve(name)) ? resolve(name) : undefined
  const schema = read.problems.map(({ path, why, origin }) => {
    const by = origin === 'recipe' || origin === 'default' ? '' : ` (${origin})`
    return error(
      'config.invalid',
      `${path.join('.') || 'recipe'}${by}`,
      why,
      `\`troupe config print RECIPE\` shows every field; docs/recipes.md`,
    )
  })
  const { faults, said } = read.config === undefined ? { faults: [], said: [] } : await partsOf(read, options)
  const all = [...schema, ...faults].map(fault => withLine(fault, file))
  const unique = all.filter(
    (fault, at) => all.findIndex(other => other.place === fault.place && other.what === fault.what) === at,
  )
  const sorted = unique.toSorted((a, b) => Number(a.kind === 'warning') - Number(b.kind === 'warning'))
  const { model } = read.config ?? {}
  return { faults: sorted, said, isPlan: model?.from === 'directory' && model.architecture !== undefined }
}

async function partsOf(
  { recipe, config, hasModel }: ReadRecipe,
  { learns, directory }: CheckOptions,
): Promise<Omit<Checked, 'isPlan'>> {
  const whole = config!
  const machine = machineFaults(whole, directory, learns)
  const hasPython = !machine.some(({ code }) => code.startsWith('process.no_'))
  const needsWeights = learns || whole.engine.kind === 'local'
  const model = hasModel ? modelFaults(whole, needsWeights) : []
  const [tools, data, reward] = await Promise.all([
    toolFaults(whole, recipe),
    dataFaults(whole, recipe),
    hasPython ? pythonRewardFaults(whole) : [],
  ])
  const names = rewardNameFaults(whole, recipe, [...data.train, ...data.evaluation])
  const canRender = hasModel && hasPython && model.every(({ code }) => code === 'config.invalid')
  const prompts = canRender
    ? await promptFaults(whole, data, tools.schemas, learns ? await conversationsOf(whole, recipe) : [])
    : { faults: [], said: 'no prompts' }
  const schedule = learns ? scheduleFaults(whole) : []
  return {
    faults: [
      ...model,
      ...data.faults,
      ...prompts.faults,
      ...names,
      ...reward,
      ...tools.faults,
      ...schedule,
      ...machine,
    ],
    said: [data.said, prompts.said],
  }
}

/** Conversations of the cold start; none if they cannot be read (for files of problems, `dataFaults` reports that). */
async function conversationsOf(config: RecipeConfig, recipe: Recipe): Promise<readonly (readonly ChatMessage[])[]> {
  if (config.coldStart === undefined || recipe.hasSlowTasks === true) return []
  return (await recipe.demonstrations?.(config).catch(() => [])) ?? []
}

/** Puts the recipe's file and line before the fault's place, if the place is a field that the YAML file sets. */
function withLine(fault: Fault, file: string | undefined): Fault {
  const field = /^[A-Za-z][\w-]*(\.[\w-]+)*$/.exec(fault.place)?.[0]
  if (field === undefined || file === undefined) return fault
  const line = yamlLine(file, field.split('.'))
  return line === undefined ? fault : { ...fault, place: `${shown(file)}:${line}: ${field}` }
}

const shown = (file: string): string => {
  const near = relative(process.cwd(), file)
  return near.startsWith('..') ? file : near
}

/** Text of a fault: its place, what is wrong, and below it what to do. */
export const faultText = ({ place, what, cure, kind }: Fault): string =>
  `${kind === 'warning' ? 'warning: ' : ''}${place}: ${what}\n    ${cure}`

/**
 * Throws if a fault is an error; a warning does not count. @throws TroupeError config.problems, or with the code of the
 * error if there is only one
 */
export function refuseFaults(name: string, faults: readonly Fault[]): void {
  const errors = faults.filter(({ kind }) => kind === 'error')
  const [first, ...others] = errors
  if (first === undefined) return
  const common = { boundary: 'config', retriable: false } as const
  if (others.length === 0)
    throw new TroupeError(first.code, { ...common, message: `${first.place}: ${first.what}`, hint: first.cure })
  throw new TroupeError('config.problems', {
    ...common,
    message: `recipe ${name}: ${errors.length} problems\n  ${errors.map(faultText).join('\n  ')}`,
    hint: `\`troupe check ${name}\` shows them again, without a run`,
  })
}
