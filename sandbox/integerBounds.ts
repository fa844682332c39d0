/**
 * Checks whole numbers in options and requests against their bounds.
 *
 * in   values by name, bounds by name      out  the first fault, as a text or as a thrown SandboxError
 */
import { SandboxError, type SandboxErrorCode } from './errors'

/** Minimum and maximum allowed value of a number. */
export type Bounds = readonly [number, number]

/** Returns the fault of a value in words; undefined if the value is a whole number within its bounds, or not given. */
export function boundsFault(name: string, value: unknown, [least, most]: Bounds): string | undefined {
  if (value === undefined || (Number.isInteger(value) && Number(value) >= least && Number(value) <= most))
    return undefined
  return `${name} must be a whole number from ${least} to ${most}, not ${String(value)}`
}

/** Checks all values. @throws SandboxError with this `code`, for the first value out of its bounds */
export function checkBounds<Names extends Readonly<Record<string, Bounds>>>(
  code: SandboxErrorCode,
  given: { readonly [Name in keyof Names]?: unknown },
  bounds: Names,
): void {
  for (const [name, within] of Object.entries(bounds)) {
    const message = boundsFault(name, given[name], within)
    if (message)
      throw new SandboxError(code, {
        retriable: false,
        message,
        hint: `give ${name} within these bounds, or leave it out`,
      })
  }
}
