/**
 * Finds the Python interpreter that runs the code, asks for its version and paths, and compiles the launcher for it.
 *
 * in   a path or name, or TROUPE_SANDBOX_PYTHON, else `python3`; names of modules
 * out  the real executable, behind version managers' shims; its version and paths; the modules that it lacks; the
 *      compiled launcher
 * Invariant: the base interpreter of `python3` is used unless the caller or TROUPE_SANDBOX_PYTHON names an interpreter.
 * Packages of a project's virtual environment are not for code that a model wrote.
 */
import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { SandboxError } from './errors'
import { retryKilled } from './retryKilled'

export interface Interpreter {
  readonly python: string
  readonly version: string
  /** Directories with installed packages, separated by `:`. */
  readonly packages: string
  /**
   * Directories that code must be able to read: standard library, shared libraries, installed packages.
   */
  readonly readable: readonly string[]
  /** Top-level packages of the requested modules that the interpreter does not find: `scipy` for `scipy.stats`. */
  readonly missing: readonly string[]
  /** Path of the launcher (freshProcess/launcher.py), compiled by this interpreter. */
  readonly launcher: string
}

const PROBE = `
import os, py_compile, sys
chosen, source, target = sys.argv[1:]
base = getattr(sys, '_base_executable', None) or sys.executable
py_compile.compile(source, target, doraise=True)
print(sys.executable if chosen else os.path.realpath(base))
print('%d.%d.%d' % sys.version_info[:3])
`
// Runs in the executable that PROBE printed, so that the paths are those of the interpreter that will run the code.
const PATHS = `
import importlib.util, os, sys, sysconfig
own = {sysconfig.get_path('stdlib'), sysconfig.get_path('platstdlib')}
own |= {os.path.join(path, 'lib-dynload') for path in own}
packages = [p for p in sys.path if os.path.isdir(p) and p not in own]
print(os.pathsep.join(packages))
base = sys.base_prefix
home = [base] if len(base.split('/')) > 2 or base == '/usr' else [p for p in own if os.path.isdir(p)]
print(os.pathsep.join([*home, *packages]))
print(*[name for name in sys.argv[1:] if importlib.util.find_spec(name) is None])
`

/** Deadline in ms for one answer of the interpreter: enough for one behind a slow shim, on a busy machine. */
const PROBE_TIMEOUT_MS = 30_000
const OLDEST = [3, 10] as const

const execute = promisify(execFile)

/**
 * Finds the interpreter and compiles the launcher.
 * @param directory receives the compiled launcher
 * @param modules names of modules to look for; the result lists the missing ones by their top-level packages
 * @throws SandboxError sandbox.no_python
 */
export async function findInterpreter(
  directory: string,
  python?: string,
  modules: readonly string[] = [],
): Promise<Interpreter> {
  const chosen = python ?? process.env.TROUPE_SANDBOX_PYTHON
  const launcher = join(directory, 'launcher.pyc')
  const probe = [PROBE, chosen ? 'chosen' : '', join(__dirname, 'freshProcess/launcher.py'), launcher]
  const [executable = '', version = ''] = (await ask(chosen || 'python3', probe)).split('\n')
  const [major = 0, minor = 0] = version.split('.').map(Number)
  if (major !== OLDEST[0] || minor < OLDEST[1]) {
    throw new SandboxError('sandbox.no_python', {
      retriable: false,
      message: `${executable} is Python ${version}; the sandbox needs Python ${OLDEST.join('.')} or newer`,
      hint: 'name another interpreter: --python, tools.python in a recipe, or TROUPE_SANDBOX_PYTHON',
    })
  }
  const roots = [...new Set(modules.map(name => name.split('.')[0]!))]
  const [packages = '', readable = '', missing = ''] = (await ask(executable, [PATHS, ...roots])).split('\n')
  return {
    ...{ python: executable, version, packages, launcher },
    readable: readable.split(':'),
    missing: missing.split(' ').filter(Boolean),
  }
}

async function ask(python: string, [program = '', ...rest]: readonly string[]): Promise<string> {
  try {
    const options = { timeout: PROBE_TIMEOUT_MS, env: { PATH: process.env.PATH ?? '', LANG: 'C.UTF-8' } }
    return (await retryKilled(() => execute(python, ['-I', '-c', program, ...rest], options))).stdout
  } catch (cause) {
    throw new SandboxError('sandbox.no_python', {
      retriable: false,
      message: `${python} did not answer as a Python interpreter: ${(cause as { killed?: boolean }).killed ? `no answer within ${PROBE_TIMEOUT_MS} ms` : (cause as Error).message}`,
      hint: 'install Python 3.10 or newer, or name one: --python, tools.python in a recipe, or TROUPE_SANDBOX_PYTHON',
      cause,
    })
  }
}
