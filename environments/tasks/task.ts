/**
 * Loads a Harbor task directory: task.toml, instruction.md, environment/, tests/, solution/, and steps/ for a task of
 * several steps.
 *
 * in   the directory        out  a Task: its configuration, and the paths and instruction of each step
 * Invariant: a task that loads has the instruction and the test script (or an image of the verifier's own) of every
 * step. Symbolic links that lead out of the directory, or to a directory above themselves, are refused. An error lists
 * all faults of its kind: of task.toml, of links, or of missing files.
 */
import { existsSync, readdirSync, readFileSync, realpathSync, statSync } from 'node:fs'
import { basename, join, relative, resolve, sep } from 'node:path'
import { asError, TroupeError } from '../../runtime/errors'
import { type EnvironmentToml, type TaskToml, taskToml } from './taskToml'
import { unknownFields } from './unknownFields'

// smol-toml has a CommonJS entry, but declares its types only for ES modules.
const { parse, TomlError } = require('smol-toml') as typeof import('smol-toml', { with: {
  'resolution-mode': 'import',
}})

/** Source of an environment's files; `none`: no image is named and nothing is built. */
export type ImageSource =
  | { readonly kind: 'image'; readonly name: string }
  | { readonly kind: 'dockerfile'; readonly file: string }
  | { readonly kind: 'compose'; readonly file: string }
  | { readonly kind: 'none' }

/** One instruction to an agent, and how its result is judged. A task without [[steps]] has one, named ''. */
export interface TaskStep {
  readonly name: string
  readonly instruction: string
  /** Directories whose files the verifier finds in /tests, later ones over earlier ones. */
  readonly tests: readonly string[]
  /** Path of the test script below /tests. */
  readonly testScript: string
  /** Directory with the oracle's solve.sh; undefined: the task has none. */
  readonly solution: string | undefined
  readonly agent: TaskToml['agent']
  readonly verifier: TaskToml['verifier']
  /** True if the verifier runs in an environment of its own. */
  readonly isSeparate: boolean
  readonly verifierImage: ImageSource
  readonly verifierEnvironment: EnvironmentToml
}

export interface Task {
  readonly directory: string
  readonly name: string
  readonly config: TaskToml
  readonly image: ImageSource
  /** Directory from which Dockerfile and compose file may copy. */
  readonly context: string
  readonly steps: readonly TaskStep[]
  /** Fields of task.toml that neither Harbor nor Troupe knows; Harbor ignores them too. */
  readonly unknownFields: readonly string[]
}

/** Loads a task. @throws TroupeError task.unreadable, task.bad_toml, task.invalid */
export function loadTask(directory: string): Task {
  const root = resolve(directory)
  const { document, config } = readConfig(root)
  const faults: string[] = []
  const name = config.task?.name ?? basename(root)
  for (const part of ['environment', 'tests', 'solution', 'steps', 'instruction.md'])
    faults.push(...linksOutside(root, join(root, part)))
  if (faults.length > 0) throw invalid(root, faults)
  const image = imageOf(config.environment, join(root, 'environment'))
  const entries = config.steps?.length ? config.steps.map(({ name }) => name) : ['']
  const steps = entries.map(step => stepOf(root, config, image, step, faults))
  if (image.kind === 'none' && !existsSync(join(root, 'environment')) && config.environment.docker_image === undefined)
    faults.push('environment/: missing; expected environment/Dockerfile, or docker_image in [environment] of task.toml')
  if (faults.length > 0) throw invalid(root, faults)
  return {
    directory: root,
    name,
    config,
    image,
    context: join(root, 'environment'),
    steps,
    unknownFields: unknownFields(taskToml, document),
  }
}

function readConfig(root: string): { readonly document: unknown; readonly config: TaskToml } {
  const file = join(root, 'task.toml')
  let document: Record<string, unknown>
  try {
    document = parse(readFileSync(file, 'utf8'))
  } catch (thrown) {
    if (thrown instanceof TomlError)
      throw new TroupeError('task.bad_toml', {
        boundary: 'config',
        retriable: false,
        message: `${file}: line ${thrown.line}, column ${thrown.column}: ${thrown.message.split('\n')[0]}`,
        hint: 'see https://toml.io for the format',
      })
    throw new TroupeError('task.unreadable', {
      boundary: 'config',
      retriable: false,
      message: `${root} is not a task directory: task.toml cannot be read: ${asError(thrown).message}`,
      hint: "name a directory in Harbor's task format, which holds task.toml, instruction.md, environment/ and tests/",
      cause: thrown,
    })
  }
  // Harbor's first versions wrote `version` for `schema_version`.
  const { version, ...rest } = document
  const renamed = version === undefined ? rest : { schema_version: version, ...rest }
  const parsed = taskToml.safeParse(renamed)
  if (parsed.success) return { document: renamed, config: parsed.data }
  throw invalid(
    root,
    parsed.error.issues.map(({ path, message }) => `task.toml: ${path.join('.')}: ${message}`),
  )
}

function stepOf(root: string, config: TaskToml, image: ImageSource, step: string, faults: string[]): TaskStep {
  const own = config.steps?.find(({ name }) => name === step)
  const directory = step === '' ? root : join(root, 'steps', step)
  const verifier = own === undefined ? config.verifier : verifierOf(config, own)
  const isSeparate = (verifier.environment_mode ?? (verifier.environment ? 'separate' : 'shared')) === 'separate'
  const verifierEnvironment = verifier.environment ?? config.environment
  const shared = join(root, 'tests')
  const tests = [...new Set([shared, join(directory, 'tests')])].filter(existsSync)
  const bundled = isSeparate
    ? [...tests].reverse().find(tests => verifierImageIn(verifier.environment, tests))
    : undefined
  const scripts = [...tests].reverse().map(tests => join(tests, 'test.sh'))
  const script = scripts.find(existsSync)
  const place = (name: string) => relative(root, join(directory, name))
  const instructionFile = join(directory, 'instruction.md')
  if (!existsSync(instructionFile)) faults.push(`${place('instruction.md')}: missing`)
  if (script === undefined && bundled === undefined)
    faults.push(`${place('tests/test.sh')}: missing${step === '' ? '' : ', and there is no tests/test.sh of the task'}`)
  const solutions = [join(directory, 'solution'), join(root, 'solution')]
  return {
    name: step,
    instruction: existsSync(instructionFile) ? withoutCanary(readFileSync(instructionFile, 'utf8')) : '',
    // A separate verifier's own image already has the tests: nothing is uploaded.
    tests: bundled === undefined ? tests : [],
    testScript: 'test.sh',
    solution: solutions.find(solution => existsSync(join(solution, 'solve.sh'))),
    agent: { ...config.agent, ...withoutUndefined(own?.agent) },
    verifier,
    isSeparate,
    verifierImage: bundled === undefined ? image : (verifierImageIn(verifier.environment, bundled) ?? image),
    verifierEnvironment,
  }
}

/**
 * Merges a step's verifier over the task's: `env` by name, `collect` if the step lists any, other fields if the step
 * has them. `timeout_sec` is always the step's, since its default (600 s) is set already.
 */
function verifierOf(config: TaskToml, step: NonNullable<TaskToml['steps']>[number]): TaskToml['verifier'] {
  const { verifier } = step
  return {
    ...config.verifier,
    ...withoutUndefined(verifier),
    env: { ...config.verifier.env, ...verifier.env },
    collect: verifier.collect.length > 0 ? verifier.collect : config.verifier.collect,
  }
}

/** Returns the step's entry of [[steps]]; undefined for a task without them. */
export const ofStep = (task: Task, { name }: TaskStep) => task.config.steps?.find(step => step.name === name)

function withoutUndefined<T extends object>(fields: T | undefined): Partial<T> {
  return Object.fromEntries(Object.entries(fields ?? {}).filter(([, value]) => value !== undefined)) as Partial<T>
}

function imageOf(environment: EnvironmentToml, directory: string): ImageSource {
  if (environment.docker_image !== undefined) return { kind: 'image', name: environment.docker_image }
  return builtIn(directory) ?? { kind: 'none' }
}

function builtIn(directory: string): ImageSource | undefined {
  const compose = ['docker-compose.yaml', 'docker-compose.yml'].map(name => join(directory, name)).find(existsSync)
  if (compose !== undefined) return { kind: 'compose', file: compose }
  const dockerfile = join(directory, 'Dockerfile')
  return existsSync(dockerfile) ? { kind: 'dockerfile', file: dockerfile } : undefined
}

function verifierImageIn(environment: EnvironmentToml | undefined, tests: string): ImageSource | undefined {
  if (environment?.docker_image !== undefined) return { kind: 'image', name: environment.docker_image }
  return builtIn(tests)
}

/** Lists symbolic links below `path` that lead out of the task, or to a directory above themselves. */
function linksOutside(root: string, path: string): readonly string[] {
  if (!existsSync(path)) return []
  const real = realpathSync(root)
  const isInside = (target: string) => target === real || target.startsWith(real + sep)
  const faults: string[] = []
  const visit = (at: string, above: ReadonlySet<string>) => {
    const target = realpathOrSelf(at)
    if (!isInside(target)) faults.push(`${relative(root, at)}: a symbolic link that leads out of the task directory`)
    else if (above.has(target)) faults.push(`${relative(root, at)}: a symbolic link to a directory above it`)
    else if (statSync(at, { throwIfNoEntry: false })?.isDirectory())
      for (const name of readdirSync(at)) visit(join(at, name), new Set(above).add(target))
  }
  visit(path, new Set())
  return faults
}

function realpathOrSelf(path: string): string {
  try {
    return realpathSync(path)
  } catch {
    return path // a link whose target does not exist, so no step can read through it
  }
}

/** Removes canary lines at an instruction's start: marks by which leaks of benchmarks into training data are found. */
function withoutCanary(text: string): string {
  const lines = text.split('\n')
  const isCanary = (line: string) => /^(<!--.*canary.*-->|#.*canary.*)$/i.test(line.trim())
  let first = lines.findIndex(line => !isCanary(line))
  if (first < 0) first = lines.length
  while (first < lines.length && lines[first]?.trim() === '') first++
  return lines.slice(first).join('\n')
}

const invalid = (root: string, faults: readonly string[]) =>
  new TroupeError('task.invalid', {
    boundary: 'config',
    retriable: false,
    message: `${root}: ${faults.length === 1 ? 'a problem' : `${faults.length} problems`}\n${faults.map(fault => `  ${fault}`).join('\n')}`,
    hint: 'docs/tasks.md describes the task format',
  })
