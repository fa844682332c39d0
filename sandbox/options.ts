/** How a sandbox is opened. */
import type { SandboxLevel } from './sandbox'

export const DEFAULT_QUEUE_LIMIT = 4096
export const OPTION_BOUNDS = {
  lanes: [1, 65_536],
  zygotes: [1, 1024],
  queueLimit: [0, 2 ** 31 - 1],
  sessionMemoryMb: [0, 2 ** 31 - 1],
} as const

export interface SandboxOptions {
  /** Calls that run at once. Default: 60 a core, of which few compute and the others sleep; level `none`: two a core. */
  readonly lanes?: number
  /** Warm interpreters, one a core. Default: as many as cores, at most `lanes`. Not at level `none`. */
  readonly zygotes?: number
  /** Calls that may wait for a lane; one more is refused with sandbox.queue_full. Default 4096. */
  readonly queueLimit?: number
  /** The interpreter. Default: TROUPE_SANDBOX_PYTHON, else the real interpreter behind `python3`. */
  readonly python?: string
  /** Modules that are imported and warm before the first call. Default `std`: what short programs import. */
  readonly preload?: 'std' | 'numpy' | 'numpy+sympy' | readonly string[]
  /** Memory that paused sessions may hold before those that rest longest give theirs up. Default 1024. */
  readonly sessionMemoryMb?: number
  /** Exactly this level. Default: the highest that this machine reaches. */
  readonly level?: SandboxLevel
  /** Fails where this level is not reached. */
  readonly requireLevel?: SandboxLevel
  /** The serve loop in Python, as where there is no C compiler. Slower, and without sessions. */
  readonly noShim?: boolean
  /** No isolation at all: what a bench compares with. Never for code that is not your own. */
  readonly bare?: boolean
}

/** Module names for the zygote. */
export function preloads({ preload = 'std' }: SandboxOptions): readonly string[] {
  if (typeof preload !== 'string') return preload
  return preload === 'std' ? [] : preload.split('+')
}
