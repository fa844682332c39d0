/**
 * Numbers that a caller gives, against their bounds.
 *
 * in   values by name, bounds by name      out  what is wrong, in words; or a SandboxError that says it
 */
import { SandboxError, type SandboxErrorCode } from './errors'

/** The least and the most. */
export type Bounds = readonly [number, number]

/** Undefined where the value is a whole number within its bounds, or not given. */
export function notWhole(name: string, value: unknown, [least, most]: Bounds): string | undefined {
  if (value === undefined || (Number.isInteger(value) && Number(value) >= least && Number(value) <= most))
    return undefined
  return `${name} must be a whole number from ${least} to ${most}, not ${String(value)}`
}

/** @throws SandboxError `code`, for the first that is none */
export function checkWhole<Names extends Readonly<Record<string, Bounds>>>(
  code: SandboxErrorCode,
  given: { readonly [Name in keyof Names]?: unknown },
  bounds: Names,
): void {
  for (const [name, within] of Object.entries(bounds)) {
    const message = notWhole(name, given[name], within)
    if (message)
      throw new SandboxError(code, {
        retriable: false,
        message,
        hint: `give ${name} within these bounds, or leave it out`,
      })
  }
}
