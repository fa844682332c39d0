/** A share of something, as people write it: 20%, or 0.2. */
import { InvalidArgumentError } from 'commander'

/** Over 0, at most 1. */
export function shareOf(text: string): number {
  const match = /^(\d+(?:\.\d+)?)(%?)$/.exec(text.trim())
  const value = match === null ? Number.NaN : Number(match[1]) / (match[2] === '%' ? 100 : 1)
  if (value > 0 && value <= 1) return value
  throw new InvalidArgumentError('It must be a share over 0, as 0.2 or 20%.')
}
