/** `troupe config print RECIPE`: the resolved recipe, and where each value came from. */
import type { Command } from 'commander'
import { stringify } from 'yaml'
import { loadRecipe } from './recipes'

export function registerConfig(program: Command): void {
  program
    .command('config')
    .description('resolved configuration')
    .command('print <recipe>')
    .description('print a recipe with all defaults and where each value came from')
    .option('--set <path=value>', 'override a field', (value: string, before: string[]) => [...before, value], [])
    .option('--json', 'as JSON: {value, origins}')
    .action((name: string, options: { set: string[]; json?: boolean }) => {
      const { value, origins } = loadRecipe(name, options.set).config
      if (options.json) {
        process.stdout.write(`${JSON.stringify({ value, origins: Object.fromEntries(origins) }, null, 2)}\n`)
        return
      }
      process.stdout.write(stringify(value))
      process.stdout.write('\n# where values came from, defaults left out\n')
      for (const [path, origin] of origins) if (origin !== 'default') process.stdout.write(`# ${path}: ${origin}\n`)
    })
}
