/**
 * `troupe check RECIPE`: reports all problems of a recipe that can be found in seconds and without starting a model.
 * stdout: a line for each problem with its place, and below it what to do, then a summary; with --json a line of JSON
 * for each problem and for the summary. Exit code: 0 without errors (there may be warnings), 1 with errors.
 */
import type { Command } from 'commander'
import { engineOverrides } from '../../config/engineAddress'
import { ownRecipe } from '../../recipes/load/ownRecipe'
import { systemEffects } from '../../runtime/effects'
import { directoryOf } from '../../runtime/runDirectory'
import { counted } from '../io/counted'
import { escapeForTerminal, painter } from '../io/terminal'
import { withBus, withDirectory } from '../options/busOptions'
import { repeatable } from '../options/repeatable'
import { checkRecipe, faultText } from './checkRecipe'

interface Options {
  readonly set: readonly string[]
  readonly engine: readonly string[]
  readonly bus: string
  readonly dir?: string
  readonly json?: boolean
}

export function registerCheck(program: Command): void {
  const command = program
    .command('check [recipe]')
    .description('report all problems of a recipe, in seconds and without starting a model')
    .option('--set <path=value>', 'override a field of the recipe (repeatable)', repeatable, [])
    .option('--engine <address>', 'engine, as for train (repeatable)', repeatable, [])
    .option('--json', 'print a JSON line for each problem, last a summary')
  withDirectory(withBus(command)).action(async (recipe: string | undefined, options: Options) => {
    process.exitCode = await check(recipe ?? ownRecipe(), options)
  })
}

async function check(name: string, { set, engine, bus, dir, json }: Options): Promise<number> {
  const begun = systemEffects.elapsed()
  const directory = directoryOf(bus, dir)
  const { faults, said } = await checkRecipe(name, {
    set: [...engineOverrides(engine), ...set],
    directory,
    learns: true,
  })
  const seconds = (systemEffects.elapsed() - begun) / 1000
  const errors = faults.filter(({ kind }) => kind === 'error').length
  const warnings = faults.length - errors
  if (json) {
    const summary = { type: 'summary', recipe: name, errors, warnings, checked: said, seconds }
    for (const line of [...faults.map(fault => ({ type: 'problem', ...fault })), summary])
      process.stdout.write(`${JSON.stringify(line)}\n`)
  } else {
    const paint = painter(process.stdout)
    for (const fault of faults) {
      const style = fault.kind === 'error' ? 'red' : 'yellow'
      process.stdout.write(
        `${escapeForTerminal(faultText(fault)).replace(/^(warning: )?\S+/, place => paint(style, place))}\n`,
      )
    }
    const found = `${errors === 0 ? 'no problems' : counted(errors, 'problem')}${warnings === 0 ? '' : `, ${counted(warnings, 'warning')}`}`
    process.stdout.write(`${[`${name}: ${found}`, ...said, `${seconds.toFixed(1)} s`].join('; ')}\n`)
  }
  return errors === 0 ? 0 : 1
}
