/**
 * Finds the Python side: the venvs that `troupe setup` and its optional parts made, their interpreters, and the folder
 * that holds the Python package troupe_policy.
 *
 * in   the file system, TROUPE_HOME, TROUPE_VENV, TROUPE_SANDBOX_PYTHON; TROUPE_{VLLM,ENVIRONMENTS,WANDB}_VENV
 * out  absolute paths; environment variables for Python processes; how one of them ended
 * Invariant: the search covers where cli/setup/places.js installs (tests/cli/setup/setup.test.ts compares the two).
 */
import { createHash } from 'node:crypto'
import { accessSync, constants, existsSync, readFileSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import { endedHow, TroupeError } from './errors'
import { troupeHome } from './home'
import { knowVariables } from './secrets/credentials'
import { redactSecrets } from './secrets/knownSecrets'

/** Returns the folder of the checkout, or of the package under node_modules; cli/setup.js lies below it in both. */
export function packageRoot(): string {
  const sources = join(__dirname, '..')
  // dist mirrors the sources, including package.json: only a checkout's sources lie beside a tsconfig.json.
  return existsSync(join(sources, 'tsconfig.json')) ? sources : dirname(sources)
}

/** True in a checkout, which runs its sources; false in an installed package. */
export function isCheckout(): boolean {
  return existsSync(join(packageRoot(), 'tsconfig.json'))
}

/**
 * Returns the venvs in the order in which they are tried: TROUPE_VENV alone if it is set, else the checkout's, then the
 * user's.
 */
export function venvCandidates(env: NodeJS.ProcessEnv = process.env): readonly string[] {
  if (env.TROUPE_VENV) return [resolve(env.TROUPE_VENV)]
  return [...(isCheckout() ? [join(packageRoot(), '.venv')] : []), join(troupeHome(env), 'venv')]
}

/**
 * Returns the path of the interpreter of the first venv that has one.
 * @throws TroupeError process.no_python if no venv has one, such as before `troupe setup`
 */
export function pythonPath(env: NodeJS.ProcessEnv = process.env): string {
  const tried = venvCandidates(env)
  const found = tried.map(venv => join(venv, 'bin/python')).find(isExecutable)
  if (found) return found
  throw new TroupeError('process.no_python', {
    boundary: 'process',
    retriable: false,
    message: `no Python interpreter made by troupe setup was found: looked in ${tried.join(', ')}`,
    hint: isCheckout() ? 'npm run setup' : 'npx troupe setup',
  })
}

/**
 * Returns the interpreter of the set-up, for programs that need torch: those that load a model, train it or render for
 * it.
 * @throws TroupeError process.no_torch if the set-up was made with --without-torch; process.no_python as `pythonPath`
 */
export function torchPythonPath(env: NodeJS.ProcessEnv = process.env): string {
  const python = pythonPath(env)
  const venv = dirname(dirname(python))
  if (hasTorch(venv)) return python
  throw new TroupeError('process.no_torch', {
    boundary: 'process',
    retriable: false,
    message: `${venv} was set up without torch, which everything that runs a model needs`,
    hint: `${isCheckout() ? 'npm run setup' : 'npx troupe setup'} adds it`,
  })
}

/**
 * False for a venv whose stamp (`.troupe-setup.json`) says that it was only set up with --without-torch. True without a
 * readable stamp: the venv is the user's own.
 */
function hasTorch(venv: string): boolean {
  try {
    const made = JSON.parse(readFileSync(join(venv, '.troupe-setup.json'), 'utf8')) as Readonly<Record<string, unknown>>
    return made.withoutTorch === undefined || made.requirements !== undefined
  } catch {
    return true
  }
}

/**
 * Returns the folder to run `python -m troupe_policy…` from (or to put on PYTHONPATH); it also holds
 * proto/policy.proto.
 */
export function policyDirectory(): string {
  return resolve(__dirname, '../policy')
}

/**
 * Returns the environment variables of a process of troupe_policy: those of this process, with `more` added. The user's
 * PYTHONPATH is left out, because its packages could hide those of the venv. Secrets among the variables are learned
 * (removed from texts from now on), since the process may repeat them.
 */
export function pythonEnvironment(more: Readonly<Record<string, string>> = {}): NodeJS.ProcessEnv {
  const ours = { PYTHONPATH: policyDirectory(), PYTHONUNBUFFERED: '1', PYTHONDONTWRITEBYTECODE: '1' }
  const env = { ...process.env, ...more, ...ours }
  knowVariables(env)
  return env
}

/**
 * Returns the environment variables of a process of troupe_policy that imports the user's code: as `pythonEnvironment`,
 * but with the user's PYTHONPATH.
 */
export function userCodeEnvironment(): NodeJS.ProcessEnv {
  const ours = pythonEnvironment()
  return { ...ours, PYTHONPATH: [ours.PYTHONPATH, process.env.PYTHONPATH].filter(Boolean).join(':') }
}

/** Returns the venv of the vLLM server; cli/setup/vllm.js makes it at this path (`troupe setup vllm`). */
export function vllmVenv(env: NodeJS.ProcessEnv = process.env): string {
  if (env.TROUPE_VLLM_VENV) return resolve(env.TROUPE_VLLM_VENV)
  if (isCheckout()) return join(packageRoot(), '.venv-vllm')
  return join(troupeHome(env), 'venv-vllm')
}

/** Returns the path of the interpreter with vLLM; undefined if `troupe setup vllm` has not run. */
export function vllmPythonPath(env: NodeJS.ProcessEnv = process.env): string | undefined {
  const python = join(vllmVenv(env), 'bin/python')
  return isExecutable(python) ? python : undefined
}

/**
 * Returns the venv of the environment packages; cli/setup/environments.js makes it at this path (`troupe setup
 * environments`).
 */
export function environmentsVenv(env: NodeJS.ProcessEnv = process.env): string {
  if (env.TROUPE_ENVIRONMENTS_VENV) return resolve(env.TROUPE_ENVIRONMENTS_VENV)
  if (isCheckout()) return join(packageRoot(), '.venv-environments')
  return join(troupeHome(env), 'venv-environments')
}

/**
 * Returns the path of the interpreter with reasoning-gym and verifiers.
 * @throws TroupeError process.no_environments if `troupe setup environments` has not run
 */
export function environmentsPythonPath(env: NodeJS.ProcessEnv = process.env): string {
  const python = join(environmentsVenv(env), 'bin/python')
  if (isExecutable(python)) return python
  throw new TroupeError('process.no_environments', {
    boundary: 'process',
    retriable: false,
    message: `no Python with reasoning-gym and verifiers: looked in ${environmentsVenv(env)}`,
    hint: 'npx troupe setup environments',
  })
}

/** Returns the venv of the package wandb; cli/setup/wandb.js makes it at this path (`troupe setup wandb`). */
export function wandbVenv(env: NodeJS.ProcessEnv = process.env): string {
  if (env.TROUPE_WANDB_VENV) return resolve(env.TROUPE_WANDB_VENV)
  if (isCheckout()) return join(packageRoot(), '.venv-wandb')
  return join(troupeHome(env), 'venv-wandb')
}

/**
 * Returns the path of the interpreter with wandb. @throws TroupeError process.no_wandb if `troupe setup wandb` has not
 * run
 */
export function wandbPythonPath(env: NodeJS.ProcessEnv = process.env): string {
  const python = join(wandbVenv(env), 'bin/python')
  if (isExecutable(python)) return python
  throw new TroupeError('process.no_wandb', {
    boundary: 'process',
    retriable: false,
    message: `no Python with the package wandb: looked in ${wandbVenv(env)}`,
    hint: 'npx troupe setup wandb, or set TROUPE_WANDB_VENV to a venv that has it',
  })
}

/**
 * Returns the interpreter that runs sandboxed programs by default: TROUPE_SANDBOX_PYTHON, else the one of the set-up's
 * venv; undefined if there is neither.
 */
export function sandboxPythonPath(env: NodeJS.ProcessEnv = process.env): string | undefined {
  if (env.TROUPE_SANDBOX_PYTHON) return env.TROUPE_SANDBOX_PYTHON
  return venvCandidates(env)
    .map(venv => join(venv, 'bin/python'))
    .find(isExecutable)
}

/**
 * Returns the venv with these packages for sandboxed programs; cli/setup/packages.js makes it at this path (`troupe
 * setup packages …`). Its name is a digest of the packages and of the requirements that they are added to.
 */
export function packagesVenv(packages: readonly string[], env: NodeJS.ProcessEnv = process.env): string {
  const hash = createHash('sha256').update(readFileSync(join(policyDirectory(), 'requirements-sandbox.txt')))
  const name = hash
    .update(JSON.stringify([...new Set(packages)].sort()))
    .digest('hex')
    .slice(0, 16)
  return join(isCheckout() ? join(packageRoot(), '.venv-packages') : join(troupeHome(env), 'venv-packages'), name)
}

/** Returns the interpreter of the packages' venv; undefined if that venv is not there or incomplete. */
export function packagesPythonPath(
  packages: readonly string[],
  env: NodeJS.ProcessEnv = process.env,
): string | undefined {
  const venv = packagesVenv(packages, env)
  const python = join(venv, 'bin/python')
  return existsSync(join(venv, '.troupe-setup.json')) && isExecutable(python) ? python : undefined
}

function isExecutable(file: string): boolean {
  try {
    accessSync(file, constants.X_OK) // the check follows links: a venv whose interpreter was removed does not count
    return true
  } catch {
    return false
  }
}

/**
 * Says why a program failed that `execFile` or `execFileSync` ran with a deadline: its last line on stderr, or how it
 * ended.
 */
export function failedHow(thrown: unknown, timeoutMs: number): string {
  const { code, status, signal, killed, stderr, message } = thrown as NodeJS.ErrnoException & {
    readonly status?: number | null
    readonly signal?: NodeJS.Signals | null
    readonly killed?: boolean
    readonly stderr?: string | Buffer
  }
  const isLate = code === 'ETIMEDOUT' || (killed === true && typeof code !== 'string')
  if (isLate) return `it did not end within ${timeoutMs} ms`
  if (typeof code === 'string') return redactSecrets(message)
  // The error is not the program's own: for instance, its output cannot be parsed.
  if (typeof code !== 'number' && typeof status !== 'number' && !signal) return redactSecrets(message)
  const said = redactSecrets(String(stderr ?? '')).trim()
  const how = `it ${endedHow(status ?? (code as number | null | undefined) ?? null, signal ?? null)}`
  if (signal) return how
  return said === '' ? how : said.split('\n').at(-1)!
}
