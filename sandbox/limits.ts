/**
 * Limits of a call: their defaults, their bounds, and the check of a request against them.
 *
 * in   a RunRequest      out  a Call with every limit filled in, or the reason why the request is rejected
 */
import { notUnicode } from './escapedText'
import { type Bounds, boundsFault } from './integerBounds'
import type { RunRequest } from './sandbox'

export const DEFAULT_TIMEOUT_MS = 4000
export const DEFAULT_MEMORY_MB = 512
/** Memory limit, in MiB, that the memory budget counts for a call whose request names none; most calls use 15 MiB. */
const USUAL_MEMORY_MB = 128
export const DEFAULT_MAX_OUTPUT_BYTES = 65_536
export const MAX_CODE_BYTES = 8 * 1024 * 1024
/** Upper bound on the size of a file that a call at level `none` may write, in bytes. */
export const MAX_FILE_BYTES = 64 * 1024 * 1024
/**
 * Upper bound on the bytes that a call in a zygote (a warm interpreter that forks a child for each call) writes to a
 * stream. Only the captured part is kept in memory.
 */
export const MAX_STREAM_BYTES = 2 ** 40
/** Upper bound on the open descriptors of each process of a call at level `none`. */
export const MAX_OPEN_FILES = 128

const MAX_STDIN_BYTES = 64 * 1024 * 1024
/** Minimum and maximum value of each limit in a request. */
export const CALL_BOUNDS = {
  timeoutMs: [1, 3_600_000],
  memoryMb: [32, 1_048_576], // The interpreter itself needs almost 32 MiB.
  maxProcesses: [0, 4096],
  maxOutputBytes: [0, 64 * 1024 * 1024],
} as const satisfies Readonly<Record<string, Bounds>>

/** A checked request. It holds only plain data, since level `none` sends it to a worker thread. */
export interface Call {
  readonly mode: 'script' | 'cell'
  readonly code: Uint8Array
  readonly stdin: Uint8Array
  readonly timeoutMs: number
  readonly memoryBytes: number
  /** Memory that the memory budget counts for the call while it runs. */
  readonly reservedBytes: number
  readonly maxProcesses: number
  readonly maxOutputBytes: number
}

/**
 * Checks a request. Returns the call with every limit filled in, or the fault in words.
 * @param maxProcesses limit on processes for a request that names none
 */
export function callOf(request: RunRequest, maxProcesses: number): Call | string {
  for (const [name, bounds] of Object.entries(CALL_BOUNDS)) {
    const fault = boundsFault(name, request[name as keyof typeof CALL_BOUNDS], bounds)
    if (fault) return fault
  }
  const mode = request.mode ?? (request.session ? 'cell' : 'script')
  if (mode !== 'script' && mode !== 'cell') return `mode must be 'script' or 'cell', not ${String(mode)}`
  const code = textOf('code', request.code, MAX_CODE_BYTES)
  if (typeof code === 'string') return code
  const stdin = textOf('stdin', request.stdin ?? '', MAX_STDIN_BYTES)
  if (typeof stdin === 'string') return stdin
  return {
    mode,
    code,
    stdin,
    timeoutMs: request.timeoutMs ?? DEFAULT_TIMEOUT_MS,
    memoryBytes: (request.memoryMb ?? DEFAULT_MEMORY_MB) * 1024 * 1024,
    reservedBytes: (request.memoryMb ?? USUAL_MEMORY_MB) * 1024 * 1024,
    maxProcesses: request.maxProcesses ?? maxProcesses,
    maxOutputBytes: request.maxOutputBytes ?? DEFAULT_MAX_OUTPUT_BYTES,
  }
}

/**
 * Encodes a text as UTF-8. Returns the fault in words if it is no string, too long, or holds half of a surrogate pair:
 * UTF-8 cannot encode that, so the code would get another character.
 */
function textOf(name: string, text: unknown, most: number): Uint8Array | string {
  if (typeof text !== 'string') return `${name} must be a string, not ${typeof text}`
  const wrong = notUnicode(text)
  if (wrong) return `${name} must be Unicode text; ${wrong}`
  const bytes = Buffer.from(text, 'utf8')
  return bytes.length > most ? `${name} of ${bytes.length} bytes is over the limit of ${most}` : bytes
}
