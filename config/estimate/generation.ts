/**
 * Estimates the time in which the rollouts of a step are generated, by the engine model of engineModel.ts.
 *
 * in   an engine model, the number of engines, rollouts and their mean tokens
 * out  sequences that run at once on an engine, seconds between two tokens of a sequence, seconds of the step
 * Invariant: a token that is sampled reads the keys and values of all tokens before it, so a rollout of n tokens reads
 * n²/2 of them. Left out: prompts, tools, the tail in which few long rollouts still run, and differences between
 * engines.
 */
import { type EngineModel, stepMs } from '../../kernels'
import { count, type Figure, figure } from './figure'

export interface Generation {
  readonly figure: Figure
  /** Number of sequences that decode at once on an engine, and the name of the limit that bounds this number. */
  readonly running: number
  readonly bound: string
  /** Seconds between two tokens of a sequence when all sequences of an engine have their mean tokens. */
  readonly secondsPerToken: number
}

export function generationOf(
  model: EngineModel,
  engines: number,
  { rollouts, meanTokens }: { readonly rollouts: number; readonly meanTokens: number },
): Generation {
  const share = Math.ceil(rollouts / engines)
  const bounds = [
    [share, 'rollouts of an engine'],
    [model.maxSequences, 'engine.maxSequences'],
    [Math.floor(model.kvTokens / Math.max(1, meanTokens)), 'KV cache'],
  ] as const
  const [least, bound] = bounds.reduce((one, other) => (other[0] < one[0] ? other : one))
  const running = Math.max(1, least)
  const stepOver = (kvTokens: number) => stepMs(model, running, running * kvTokens, []) / 1000
  const mean = stepOver(meanTokens / 2)
  const said = `${(1000 * mean).toFixed(1)} ms a step that reads the weights and the KV of ${count(running * (meanTokens / 2))} tokens`
  return {
    figure: figure(
      'generation',
      (share / running) * meanTokens * mean,
      's a step',
      `${count((engines * running) / mean)} tokens/s: ${engines} engines × ${running} sequences (${bound}) / ${said}`,
    ),
    ...{ running, bound, secondsPerToken: stepOver(meanTokens) },
  }
}
