/**
 * Chooses the environment of the code that a model writes: which interpreter runs it, with which packages, and which
 * modules are imported in advance. Runs, chats, `exec` and `judge` all use this file, so they have the same defaults.
 *
 * in   `tools.python`, `tools.packages`, `tools.preload` of a recipe, or the flags of those names
 * out  options of openSandbox; a description of the environment, for `run.started`
 * Invariant: by default the interpreter of `troupe setup` runs the code, and modules are preloaded once a program needs
 * them. If an interpreter or a module that a user named is missing, the error names it.
 */
import { TroupeError } from '../../runtime/errors'
import { packagesPythonPath, packagesVenv, sandboxPythonPath } from '../../runtime/python'
import type { SandboxOptions } from '../../sandbox'
import { type CodeEnvironment, codeEnvironment } from '../../sandbox/environment'
import { preloadGroups, STANDARD_PRELOAD } from '../../sandbox/options'

export interface CodeTools {
  readonly python?: string | undefined
  readonly packages?: readonly string[] | undefined
  readonly preload?: readonly string[] | undefined
}

/** Returns the options of openSandbox. @throws TroupeError process.no_packages (the packages are not set up) */
export function codeOptions(tools: CodeTools): Pick<SandboxOptions, 'python' | 'preload' | 'lazyPreload'> {
  const python = pythonOf(tools)
  return {
    ...(python === undefined ? {} : { python }),
    ...(tools.preload === undefined ? { preload: STANDARD_PRELOAD, lazyPreload: true } : { preload: tools.preload }),
  }
}

const described = new Map<string, ReturnType<typeof codeEnvironment>>()

/**
 * Describes the environment, and lists those of the modules to preload that are missing from it (`missing`). The
 * interpreter is asked once in a process for equal settings, and again only if it failed to answer.
 * @throws TroupeError process.no_packages, SandboxError sandbox.no_python
 */
export async function environmentOf(
  tools: CodeTools,
): Promise<CodeEnvironment & { readonly missing: readonly string[] }> {
  const python = pythonOf(tools) ?? 'python3'
  const groups = preloadGroups({ preload: tools.preload ?? STANDARD_PRELOAD })
  const promised = [...new Set(groups.flat().map(name => name.split('.')[0]!))]
  const isChosen = tools.python !== undefined || (tools.packages ?? []).length > 0
  const key = JSON.stringify([python, promised, isChosen])
  const known = described.get(key) ?? codeEnvironment(python, promised, isChosen)
  described.set(key, known)
  known.catch(() => described.delete(key))
  return known
}

/**
 * Returns the path of the interpreter: that of the packages' venv if `packages` is not empty, else the one that
 * `python` names, else the set-up's; undefined if the set-up has made none.
 */
function pythonOf({ python, packages = [] }: CodeTools): string | undefined {
  if (packages.length === 0) return python ?? sandboxPythonPath()
  const found = packagesPythonPath(packages)
  if (found !== undefined) return found
  throw new TroupeError('process.no_packages', {
    boundary: 'process',
    retriable: false,
    message: `tools.packages: no Python is set up with ${packages.join(', ')}: looked in ${packagesVenv(packages)}`,
    hint: `npx troupe setup packages ${packages.map(one => `'${one}'`).join(' ')}`,
  })
}
