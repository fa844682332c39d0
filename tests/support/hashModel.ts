/**
 * A language model for servers in tests: its state is a hash of the weights and of all tokens before.
 *
 * in   a directory's weights, tokens
 * out  a distribution over the vocabulary; the state, which a KV cache would hold
 * Invariant: the state depends on the weights and on every token before it, so an engine that keeps its cache beyond a
 * change of weights returns other logprobs. Everything is deterministic.
 */
import { createHash } from 'node:crypto'
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Continued } from './forward'

export const vocabulary = 320

/**
 * Returns the weights of a directory as one number. Throws if it has no weights, or a file that begins with `broken`.
 */
export function weightsOf(directory: string): number {
  const files = readdirSync(directory).filter(name => name.endsWith('.safetensors'))
  if (files.length === 0) throw new Error(`Cannot find any model weights with \`${directory}\``)
  const hash = createHash('sha256')
  for (const name of files.sort()) {
    const bytes = readFileSync(join(directory, name))
    if (bytes.toString().startsWith('broken')) throw new Error(`Error while deserializing header of ${name}`)
    hash.update(bytes)
  }
  return hash.digest().readUInt32LE(0)
}

export function writeWeights(directory: string, content: string): string {
  mkdirSync(directory, { recursive: true })
  writeFileSync(join(directory, 'config.json'), '{}')
  writeFileSync(join(directory, 'model.safetensors'), content)
  return directory
}

function mix(a: number, b: number): number {
  let x = Math.imul(a ^ (b + 0x9e3779b9), 0x85ebca6b)
  x = Math.imul(x ^ (x >>> 13), 0xc2b2ae35)
  return (x ^ (x >>> 16)) >>> 0
}

/** Returns a pseudorandom number in [0, 1) that follows from a seed and a position. */
export const drawAt = (seed: number, position: number): number => mix(mix(seed >>> 0, 17), position) / 2 ** 32

export const stateAfter = (weights: number, state: number, token: number): number => mix(mix(state, weights), token)

/** Returns log p of every token, [vocabulary], in nats, at a temperature. */
export function logprobsAt(state: number, temperature: number): Float64Array {
  const logits = Float64Array.from({ length: vocabulary }, (_, v) => ((mix(state, v) / 2 ** 32) * 6) / temperature)
  const top = Math.max(...logits)
  const norm = top + Math.log(logits.reduce((sum, logit) => sum + Math.exp(logit - top), 0))
  return logits.map(logit => logit - norm)
}

export interface SamplingRule {
  readonly temperature: number
  readonly topP: number
  /** -1: all. */
  readonly topK: number
  readonly minP: number
}

/**
 * Samples a token. `draw` in [0, 1) chooses among the tokens that the rule keeps, ordered from the likeliest on. The
 * returned log p is that of the temperature alone, before top-p, top-k and min-p.
 */
export function sampleAt(state: number, rule: SamplingRule, draw: number): { token: number; logprob: number } {
  const greedy = rule.temperature < 1e-6
  const logprobs = logprobsAt(state, greedy ? 1 : rule.temperature)
  const order = Array.from(logprobs.keys()).sort((a, b) => logprobs[b]! - logprobs[a]!)
  let kept = greedy ? order.slice(0, 1) : rule.topK > 0 ? order.slice(0, rule.topK) : order
  const least = logprobs[order[0]!]! + Math.log(rule.minP || 1e-300)
  let mass = 0
  kept = kept.filter(v => {
    const inside = mass < rule.topP && logprobs[v]! >= least
    mass += Math.exp(logprobs[v]!)
    return inside
  })
  const total = kept.reduce((sum, v) => sum + Math.exp(logprobs[v]!), 0)
  let rest = draw * total
  const drawn = kept.find(v => {
    rest -= Math.exp(logprobs[v]!)
    return rest < 0
  })
  const token = drawn ?? kept.at(-1)!
  return { token, logprob: logprobs[token]! }
}

/** Computes the reference logprobs that engines over this model are compared with, without any cache. */
export function hashForward(directory: string, continued: readonly Continued[]): readonly Float32Array[] {
  const weights = weightsOf(directory)
  return continued.map(({ context, tokens, temperature }) => {
    let state = context.reduce((before, token) => stateAfter(weights, before, token), weights)
    return Float32Array.from(tokens, token => {
      const logprob = logprobsAt(state, temperature)[token]!
      state = stateAfter(weights, state, token)
      return logprob
    })
  })
}

export const textOf = (tokens: Iterable<number>): string => Array.from(tokens, token => `<${token}>`).join('')
