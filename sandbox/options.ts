/** Options of openSandbox, with their defaults and bounds. */
import { SandboxError } from './errors'
import type { MachineMemory } from './machineMemory'
import type { SandboxLevel } from './sandbox'

export const DEFAULT_QUEUE_LIMIT = 4096
export const OPTION_BOUNDS = {
  lanes: [1, 65_536],
  zygotes: [1, 1024],
  queueLimit: [0, 2 ** 31 - 1],
  sessionMemoryMb: [0, 2 ** 31 - 1],
  machineMemoryMb: [1, 2 ** 31 - 1],
  memoryWaitMs: [1, 2 ** 31 - 1],
} as const

export interface SandboxOptions {
  /**
   * Number of calls that run at once. Default: 60 for each zygote, of which few compute at a time and the others sleep;
   * at level `none` 2 for each core.
   */
  readonly lanes?: number
  /**
   * Upper bound on the zygotes (warm interpreters that fork a child for each call) of each kind: one kind without
   * preloads, and one for each group of `preload`. Default: one for each core, at most `lanes`. Level `none` has none,
   * unless `bare` is true.
   */
  readonly zygotes?: number
  /**
   * Upper bound on the calls that wait for a worker slot; a further call is refused with sandbox.queue_full. Default
   * 4096.
   */
  readonly queueLimit?: number
  /**
   * Path or name of the Python interpreter. Default: TROUPE_SANDBOX_PYTHON, else the real interpreter behind `python3`.
   */
  readonly python?: string
  /**
   * Groups of modules that zygotes import before a program arrives; a group is names joined with `+`. A program that
   * seems to import modules of a group runs in a zygote that has imported this group and those before it; a program
   * that imports none of them, in a zygote that has only the modules that short programs use. As one string: groups
   * separated by commas. At most 8 groups. Default `std`: no groups.
   */
  readonly preload?: string | readonly string[]
  /**
   * true: openSandbox does not wait for preloads: modules that the interpreter does not have are left out, and a zygote
   * with preloads starts with the first program that needs it. Default false: openSandbox starts a zygote with each
   * group, and throws if a module cannot be imported.
   */
  readonly lazyPreload?: boolean
  /**
   * Upper bound on the memory of paused sessions, MiB. Above it the least recently used sessions lose their states.
   * Default 1024.
   */
  readonly sessionMemoryMb?: number
  /**
   * Upper bound on the sum of the limits (`memoryMb`, else 128) of calls that run at once, MiB. Default: 80 % of the
   * memory of the machine or its cgroup, shared by all sandboxes of this process. Not applied at level `none`.
   */
  readonly machineMemoryMb?: number
  /**
   * Upper bound on the wait of a call for memory, ms; then it is rejected with MACHINE_OUT_OF_MEMORY. Default 600,000.
   */
  readonly memoryWaitMs?: number
  /** Source of the readings of memory by which calls are admitted. Default: this machine, or its cgroup. */
  readonly memory?: MachineMemory
  /** Level at which the sandbox must open. Default: the highest level that this machine reaches. */
  readonly level?: SandboxLevel
  /** Lowest acceptable level: openSandbox throws if the machine does not reach it. */
  readonly requireLevel?: SandboxLevel
  /**
   * true: zygotes run their serve loop in Python, as on a machine without a C compiler: slower, and without sessions.
   */
  readonly noShim?: boolean
  /**
   * true: zygotes without isolation and without resource limits, to measure what these cost. Never use it for code that
   * is not your own.
   */
  readonly bare?: boolean
}

/** Preloads that callers of openSandbox take by default, for an interpreter that set-up has equipped. */
export const STANDARD_PRELOAD: readonly string[] = [
  'numpy',
  'mpmath+sympy',
  'networkx+scipy.integrate+scipy.linalg+scipy.optimize+scipy.special+scipy.stats',
]

const MAX_GROUPS = 8
const MODULE = /^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$/

/** Returns the groups of modules to preload. @throws SandboxError sandbox.bad_option */
export function preloadGroups({ preload = 'std' }: Pick<SandboxOptions, 'preload'>): readonly (readonly string[])[] {
  const texts = typeof preload === 'string' ? preload.split(',') : preload
  const groups = texts.filter(text => text !== 'std').map(text => text.split('+').map(name => name.trim()))
  const wrong = groups.flat().find(name => !MODULE.test(name))
  if (wrong !== undefined) throw badPreload(`'${wrong}' is not the name of a Python module`)
  if (groups.length > MAX_GROUPS) throw badPreload(`${groups.length} groups; there may be at most ${MAX_GROUPS}`)
  return groups
}

const badPreload = (what: string) =>
  new SandboxError('sandbox.bad_option', {
    retriable: false,
    message: `preload: ${what}`,
    hint: 'groups of modules are separated by commas, modules of a group by +: numpy,mpmath+sympy',
  })
