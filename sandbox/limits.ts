/**
 * What a call may use: the defaults, the bounds of what may be asked for, and the check of a request against them.
 *
 * in   a RunRequest      out  a Call with every limit filled in, or the reason why it is rejected
 */
import type { RunRequest } from './sandbox'

export const DEFAULT_TIMEOUT_MS = 4000
export const DEFAULT_MEMORY_MB = 512
export const DEFAULT_MAX_OUTPUT_BYTES = 65_536
export const MAX_CODE_BYTES = 8 * 1024 * 1024
/** Of one file that a call writes. */
export const MAX_FILE_BYTES = 64 * 1024 * 1024
/** Of what a zygote's call writes to a stream: only its head is kept in memory. */
export const MAX_STREAM_BYTES = 2 ** 40
export const MAX_OPEN_FILES = 128

const MAX_STDIN_BYTES = 64 * 1024 * 1024
const BOUNDS = {
  timeoutMs: [1, 3_600_000],
  memoryMb: [32, 1_048_576], // under 32 MiB the interpreter itself does not fit
  maxProcesses: [0, 4096],
  maxOutputBytes: [0, 64 * 1024 * 1024],
} as const

/** A request that can be begun. Plain data: it crosses to the worker thread. */
export interface Call {
  readonly mode: 'script' | 'cell'
  readonly code: Uint8Array
  readonly stdin: Uint8Array
  readonly timeoutMs: number
  readonly memoryBytes: number
  readonly maxProcesses: number
  readonly maxOutputBytes: number
}

/** The call, or the reason why the request is rejected. `maxProcesses`: of a request that doesn't say. */
export function callOf(request: RunRequest, maxProcesses: number): Call | string {
  for (const name of ['timeoutMs', 'memoryMb', 'maxProcesses', 'maxOutputBytes'] as const) {
    const value = request[name]
    const [least, most] = BOUNDS[name]
    if (value !== undefined && !(Number.isInteger(value) && value >= least && value <= most)) {
      return `${name} must be a whole number from ${least} to ${most}, not ${value}`
    }
  }
  if (typeof request.code !== 'string') return `code must be a string, not ${typeof request.code}`
  const code = Buffer.from(request.code, 'utf8')
  if (code.length > MAX_CODE_BYTES) return `code of ${code.length} bytes is over the limit of ${MAX_CODE_BYTES}`
  const stdin = Buffer.from(request.stdin ?? '', 'utf8')
  if (stdin.length > MAX_STDIN_BYTES) return `stdin of ${stdin.length} bytes is over the limit of ${MAX_STDIN_BYTES}`
  return {
    mode: request.mode ?? (request.session ? 'cell' : 'script'),
    code,
    stdin,
    timeoutMs: request.timeoutMs ?? DEFAULT_TIMEOUT_MS,
    memoryBytes: (request.memoryMb ?? DEFAULT_MEMORY_MB) * 1024 * 1024,
    maxProcesses: request.maxProcesses ?? maxProcesses,
    maxOutputBytes: request.maxOutputBytes ?? DEFAULT_MAX_OUTPUT_BYTES,
  }
}
