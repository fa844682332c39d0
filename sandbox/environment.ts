/**
 * Describes the environment of programs: the interpreter and its packages, with a digest by which two environments are
 * compared.
 *
 * in   an interpreter, the modules that programs were promised
 * out  versions, a digest, the modules that are missing; the changes between two environments, in words
 * Invariant: the digest covers the interpreter's version and every package named in the description: those of the
 * promised modules and what these require; with `everything`, all that are installed.
 */
import { execFile } from 'node:child_process'
import { createHash } from 'node:crypto'
import { promisify } from 'node:util'
import { SandboxError } from './errors'
import { retryKilled } from './retryKilled'

export interface CodeEnvironment {
  /** sha256 of the other fields, hex. */
  readonly digest: string
  /** Version of the interpreter. */
  readonly python: string
  /** Versions of packages by name. */
  readonly packages: Readonly<Record<string, string>>
}

const PROBE = `
import importlib.metadata as metadata, importlib.util, json, platform, re, sys
promised, everything = json.loads(sys.argv[1])
plain = lambda name: re.sub(r'[-_.]+', '-', name).lower()
found = {plain(d.metadata['Name']): d for d in metadata.distributions() if d.metadata['Name']}
named = {}
def take(name):
    if name in found and name not in named:
        named[name] = found[name].version
        for need in found[name].requires or ():
            if 'extra ==' not in need:
                take(plain(re.match(r'[\\w.-]+', need)[0]))
if everything:
    named = {name: found[name].version for name in found}
else:
    owners = None
    for module in promised:
        if plain(module) not in found:
            owners = owners or metadata.packages_distributions()
        for name in (owners or {}).get(module, [module]):
            take(plain(name))
missing = [name for name in promised if importlib.util.find_spec(name) is None]
print(json.dumps([platform.python_version(), dict(sorted(named.items())), missing]))
`
const TIMEOUT_MS = 60_000
const execute = promisify(execFile)

/**
 * Describes the environment of `python`.
 * @param promised top-level modules
 * @param everything true: the description names every package that is installed
 * @throws SandboxError sandbox.no_python
 */
export async function codeEnvironment(
  python: string,
  promised: readonly string[],
  everything: boolean,
): Promise<CodeEnvironment & { readonly missing: readonly string[] }> {
  const args = ['-I', '-c', PROBE, JSON.stringify([promised, everything])]
  const options = { timeout: TIMEOUT_MS, env: { PATH: process.env.PATH ?? '', LANG: 'C.UTF-8' } }
  const { stdout } = await retryKilled(() => execute(python, args, options)).catch(cause => {
    throw new SandboxError('sandbox.no_python', {
      retriable: false,
      message: `${python} did not say which packages it has: ${(cause as { killed?: boolean }).killed ? `no answer within ${TIMEOUT_MS} ms` : (cause as Error).message}`,
      hint: 'name a Python interpreter that works: tools.python in a recipe, --python, or TROUPE_SANDBOX_PYTHON',
      cause,
    })
  })
  const [version, packages, missing] = JSON.parse(stdout) as [string, Record<string, string>, string[]]
  const digest = createHash('sha256')
    .update(JSON.stringify([version, packages]))
    .digest('hex')
  return { digest, python: version, packages, missing }
}

/** Lists in words what differs between two environments; empty if nothing does. */
export function environmentChanges(was: CodeEnvironment, is: CodeEnvironment): readonly string[] {
  if (was.digest === is.digest) return []
  const versions = ({ python, packages }: CodeEnvironment) => ({ Python: python, ...packages })
  const [before, now] = [versions(was), versions(is)] as Readonly<Record<string, string>>[]
  return [...new Set([...Object.keys(before!), ...Object.keys(now!)])]
    .filter(name => before![name] !== now![name])
    .map(name => `${name} ${before![name] ?? '(absent)'} → ${now![name] ?? '(absent)'}`)
}
