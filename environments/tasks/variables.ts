/**
 * Fills in variables of a task: a value that is exactly `${NAME}` or `${NAME:-default}` stands for a variable of
 * Troupe's process.
 *
 * in   a section `env` of task.toml, the variables that the user lets tasks read        out  values
 * Callers read the allowed variables with `passedOn` (runtime/secrets/credentials.ts), which learns the secrets among
 * them, since a task's programs may print them. Invariant: a variable of Troupe's process that the user has not named
 * does not enter an environment, whatever a task asks for.
 */
import { TroupeError } from '../../runtime/errors'

export type AllowedVariables = Readonly<Record<string, string | undefined>>

/**
 * Returns the variables with their values filled in. @throws TroupeError task.variable_refused for a variable without a
 * default that is not set, or that the user does not let tasks read
 */
export function resolveVariables(
  variables: Readonly<Record<string, string>>,
  allowed: AllowedVariables,
): Readonly<Record<string, string>> {
  return Object.fromEntries(
    Object.entries(variables).map(([name, text]) => {
      const [, wanted, fallback] = /^\$\{([A-Za-z_]\w*)(?::-([\s\S]*))?\}$/.exec(text) ?? []
      if (wanted === undefined) return [name, text]
      const value = allowed[wanted] ?? fallback
      if (value !== undefined) return [name, value]
      throw new TroupeError('task.variable_refused', {
        boundary: 'config',
        retriable: false,
        message: `the task's variable ${name} takes its value from ${wanted} in this process's environment, which is not set, or which tasks may not read`,
        hint: `set ${wanted}, and let tasks read it: --env ${wanted} of \`troupe tasks run\`, environments.env of a recipe`,
      })
    }),
  )
}
