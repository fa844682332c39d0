/** A problem of a recipe that a check found: its place, what is wrong, and what to do. */
import { TroupeError } from '../../runtime/errors'
import { SandboxError } from '../../sandbox/errors'

export interface Fault {
  /** Stable error code, the same as that of the error with which a run would end; `config.doubtful` for a warning. */
  readonly code: string
  /** Place of the problem: a file with its line, a field of the recipe, a directory, a task or a tool. */
  readonly place: string
  readonly what: string
  readonly cure: string
  /**
   * error: `train` refuses the recipe. warning: `train` runs it, but the result is probably not what the user wants.
   */
  readonly kind: 'error' | 'warning'
}

/**
 * Codes of problems of this machine rather than of the recipe: a file, a program or disk space that is missing here. A
 * dry run of a recipe that states its model's architecture is a plan for another machine, so it lists these problems
 * and still makes its step.
 */
const ofMachine = [
  'config.no_model',
  'config.no_file',
  'config.disk_too_small',
  'config.no_secret',
  'config.no_rendezvous',
  'config.not_writable',
  'process.no_packages',
  'process.no_python',
  'process.no_torch',
  'process.no_environments',
  'engine.no_program',
]

export const isOfMachine = ({ code }: Fault): boolean => ofMachine.includes(code)

export const error = (code: string, place: string, what: string, cure: string): Fault => ({
  ...{ code, place, what, cure },
  kind: 'error',
})

export const warning = (place: string, what: string, cure: string): Fault => ({
  ...{ code: 'config.doubtful', place, what, cure },
  kind: 'warning',
})

/** Converts an error that a part of a run throws at its start into a fault at `place`. */
export function faultOf(thrown: unknown, place: string): Fault {
  const isOurs = thrown instanceof TroupeError || thrown instanceof SandboxError
  // The message of such an error may begin with its field (`train.steps: `); a fault has the field in `place`.
  const message = (thrown instanceof Error ? thrown.message : String(thrown)).replace(/^[a-z]+(\.\w+)+: /i, '')
  return error(
    isOurs ? thrown.code : 'config.invalid',
    place,
    message,
    (isOurs ? thrown.hint : undefined) ?? `correct ${place}`,
  )
}

/** Returns what `attempt` throws, as a fault; nothing if it succeeds. */
export function faultsOf(place: string, attempt: () => unknown): readonly Fault[] {
  try {
    attempt()
    return []
  } catch (thrown) {
    return [faultOf(thrown, place)]
  }
}

/**
 * Converts an error into a fault. If its message begins with an absolute path, with or without a line, that is the
 * fault's place instead of `place`. A TroupeError about a file that cannot be read gets the code `config.no_file`.
 */
export function placed(thrown: unknown, place: string): Fault {
  const fault = faultOf(thrown, place)
  const [, file, rest] = /^(\/\S+?\.\w+(?::\d+)?):? (?=\S)([\s\S]*)$/.exec(fault.what) ?? []
  const code = thrown instanceof TroupeError && /cannot be read/.test(fault.what) ? 'config.no_file' : fault.code
  return file === undefined || rest === undefined ? { ...fault, code } : { ...fault, code, place: file, what: rest }
}
