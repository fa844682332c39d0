/** Finds the recipe of a project, for commands that name none: the one file `recipe.*` of the working directory. */
import { existsSync } from 'node:fs'
import { TroupeError } from '../../runtime/errors'

const names = ['recipe.yaml', 'recipe.yml', 'recipe.ts', 'recipe.js', 'recipe.py']

/**
 * Returns the path of the project's recipe. @throws TroupeError cli.no_recipe if there is none, or there are several
 */
export function ownRecipe(): string {
  const found = names.filter(name => existsSync(name))
  const [only] = found
  if (only !== undefined && found.length === 1) return only
  throw new TroupeError('cli.no_recipe', {
    boundary: 'cli',
    retriable: false,
    message:
      only === undefined
        ? `no recipe is named, and ${process.cwd()} holds no ${names.join(', ')}`
        : `no recipe is named, and ${process.cwd()} holds several: ${found.join(', ')}`,
    hint: 'name a recipe, such as quickstart, or a file; `troupe init` makes a project of your own',
  })
}
