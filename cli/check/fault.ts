/** A problem of a recipe that a check found: its place, what is wrong, and what to do. */
import { TroupeError } from '../../runtime/errors'
import { SandboxError } from '../../sandbox/errors'

export interface Fault {
  /** Stable code, as of the error that a run would end with. */
  readonly code: string
  /** File and line, or field of the recipe. */
  readonly place: string
  readonly what: string
  readonly cure: string
  /** error: `train` refuses the recipe. warning: it runs, but hardly as meant. */
  readonly kind: 'error' | 'warning'
}

/**
 * Codes of problems of this machine rather than of the recipe: a file, a program or room that is missing here. A dry run of a recipe that
 * states its model's architecture is a plan for another machine, so it lists them and goes on.
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

/** Converts an error that a part of a run throws at its start. `place`: a field, unless the message begins with its place. */
export function faultOf(thrown: unknown, place: string): Fault {
  const isOurs = thrown instanceof TroupeError || thrown instanceof SandboxError
  // Errors of a run begin with their field, as place does here.
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

/** A fault with the file and line that the message begins with as its place; a file that cannot be read is one of this machine. */
export function placed(thrown: unknown, place: string): Fault {
  const fault = faultOf(thrown, place)
  const [, file, rest] = /^(\/\S+?\.\w+(?::\d+)?):? (?=\S)([\s\S]*)$/.exec(fault.what) ?? []
  const code = thrown instanceof TroupeError && /cannot be read/.test(fault.what) ? 'config.no_file' : fault.code
  return file === undefined || rest === undefined ? { ...fault, code } : { ...fault, code, place: file, what: rest }
}
