/** Readers of numbers for options, which say what they take. */
import { InvalidArgumentError } from 'commander'

export function wholeNumber(least: number, most: number): (text: string) => number {
  return text => {
    const value = Number(text)
    if (Number.isInteger(value) && text.trim() !== '' && value >= least && value <= most) return value
    throw new InvalidArgumentError(`It must be a whole number from ${least} to ${most}.`)
  }
}

export function finiteNumber(text: string): number {
  const value = Number(text)
  if (Number.isFinite(value) && text.trim() !== '') return value
  throw new InvalidArgumentError('It must be a number.')
}
