/** Options of openSandbox, with their defaults and bounds. */
import type { SandboxLevel } from './sandbox'

export const DEFAULT_QUEUE_LIMIT = 4096
export const OPTION_BOUNDS = {
  lanes: [1, 65_536],
  zygotes: [1, 1024],
  queueLimit: [0, 2 ** 31 - 1],
  sessionMemoryMb: [0, 2 ** 31 - 1],
} as const

export interface SandboxOptions {
  /** Calls that run at once. Default: 60 a core, of which few compute at a time and the rest sleep; at level `none` 2 a core. */
  readonly lanes?: number
  /** Warm interpreters. Default: one a core, at most `lanes`. Level `none` has none. */
  readonly zygotes?: number
  /** Calls that may wait for a lane. One more is refused with sandbox.queue_full. Default 4096. */
  readonly queueLimit?: number
  /** Python interpreter. Default: TROUPE_SANDBOX_PYTHON, else the real interpreter behind `python3`. */
  readonly python?: string
  /** Modules imported before the first call. Default `std`: the modules that short programs import. */
  readonly preload?: 'std' | 'numpy' | 'numpy+sympy' | readonly string[]
  /** Memory of paused sessions, MiB. Above it the least recently used sessions lose their states. Default 1024. */
  readonly sessionMemoryMb?: number
  /** Opens at exactly this level. Default: the highest that this machine reaches. */
  readonly level?: SandboxLevel
  /** Lowest acceptable level: openSandbox throws where the machine does not reach it. */
  readonly requireLevel?: SandboxLevel
  /** Runs the serve loop in Python, as on a machine without a C compiler: slower, and without sessions. */
  readonly noShim?: boolean
  /** No isolation at all, as a baseline for benches. Never for code that is not your own. */
  readonly bare?: boolean
}

/** Names of the modules that the zygote imports besides the standard ones. */
export function preloads({ preload = 'std' }: SandboxOptions): readonly string[] {
  if (typeof preload !== 'string') return preload
  return preload === 'std' ? [] : preload.split('+')
}
