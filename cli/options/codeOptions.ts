/** The options --python, --packages and --preload of `exec`, `judge` and `execute`; a recipe has them in `tools`. */
import type { Command } from 'commander'
import { codeOptions } from '../../actors/tools/codeEnvironment'
import { TroupeError } from '../../runtime/errors'
import type { SandboxOptions } from '../../sandbox'

export interface CodeChoice {
  readonly python?: string
  readonly packages?: readonly string[]
  readonly preload?: readonly string[]
}

export const withCode = (command: Command): Command =>
  command
    .option('--python <file>', "Python interpreter (default: TROUPE_SANDBOX_PYTHON, else the set-up's, else python3)")
    .option(
      '--packages <name==version...>',
      'pinned packages besides numpy, scipy, sympy, mpmath and networkx; `troupe setup packages` installs them',
    )
    .option(
      '--preload <groups>',
      'modules that warm interpreters import in advance: groups a,b+c, each on top of the groups before it; std: none (default: numpy,mpmath+sympy,networkx+scipy)',
      groups,
    )

/** Returns options of openSandbox. @throws TroupeError cli.wrong_usage, process.no_packages */
export function chosenCode(choice: CodeChoice): Partial<SandboxOptions> {
  if (choice.python !== undefined && choice.packages !== undefined)
    throw new TroupeError('cli.wrong_usage', {
      boundary: 'cli',
      retriable: false,
      message: '--python and --packages exclude each other: packages have an interpreter of their own',
      hint: 'leave out --python',
    })
  return codeOptions(choice)
}

function groups(text: string): readonly string[] {
  return text === 'std' ? [] : text.split(',')
}
