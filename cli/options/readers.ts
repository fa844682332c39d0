/** Parses option values; each error states the accepted range. */
import { InvalidArgumentError } from 'commander'
import type { SandboxLevel } from '../../sandbox'

export function wholeNumber(least: number, most: number): (text: string) => number {
  return text => {
    const value = numberOf(text)
    if (Number.isInteger(value) && value >= least && value <= most) return value
    throw new InvalidArgumentError(`It must be a whole number from ${least} to ${most}.`)
  }
}

export function numberFrom(least: number): (text: string) => number {
  return text => {
    const value = numberOf(text)
    if (Number.isFinite(value) && value >= least) return value
    throw new InvalidArgumentError(`It must be a number from ${least}.`)
  }
}

export function finiteNumber(text: string): number {
  const value = numberOf(text)
  if (Number.isFinite(value)) return value
  throw new InvalidArgumentError('It must be a number.')
}

/** Parses a share such as 20% or 0.2; the upper bound is 1. */
export function shareOf(bound: 'from 0' | 'over 0'): (text: string) => number {
  return text => {
    const isPercent = text.trim().endsWith('%')
    const value = isPercent ? numberOf(text.trim().slice(0, -1)) / 100 : numberOf(text)
    if ((bound === 'from 0' ? value >= 0 : value > 0) && value <= 1) return value
    throw new InvalidArgumentError(`It must be a share ${bound} to 1, such as 0.2 or 20%.`)
  }
}

export interface ListenAddress {
  readonly host: string
  readonly port: number
}

/** Parses PORT, which listens on 127.0.0.1, or HOST:PORT; an IPv6 address stands in brackets. */
export function listenAddress(text: string): ListenAddress {
  const match = /^(?:(?:\[([\da-fA-F:]+)\]|([\w.-]+)):)?(\d{1,5})$/.exec(text)
  const port = Number(match?.[3])
  if (match !== null && port <= 65_535) return { host: match[1] ?? match[2] ?? '127.0.0.1', port }
  throw new InvalidArgumentError('It must be a port from 0 to 65535, or HOST:PORT, such as 9464 or 0.0.0.0:9464.')
}

export const sandboxLevels = ['full', 'degraded', 'none'] as const satisfies readonly SandboxLevel[]

export function sandboxLevel(text: string): SandboxLevel {
  const found = sandboxLevels.find(one => one === text)
  if (found !== undefined) return found
  throw new InvalidArgumentError(`It must be one of ${sandboxLevels.join(', ')}.`)
}

/** Parses a number; an empty text gives NaN, because `Number('')` would be 0. */
const numberOf = (text: string): number => (text.trim() === '' ? Number.NaN : Number(text))
