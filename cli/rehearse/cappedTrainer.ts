/**
 * Shortens the batches of a rehearsal's trainer: it computes every sequence, but at most `mostTokens` tokens of each.
 *
 * in   the trainer's calls        out  the same calls, with shorter sequences; numbers of tokens before and after
 * The learner reads and assembles the batch whole before this trainer shortens it. The small model still costs about 20
 * µs a token on two cores, so a whole batch of the paper (33 million tokens) would take too long.
 * Invariant: the number of sequences, their groups and their advantages stay; each sequence keeps at least one sampled
 * token.
 */
import type { Trainer, TrainSequence } from '../../backends/trainer/trainer'

export interface TrainedTokens {
  sequences: number
  /** Tokens of the batches as the learner assembled them. */
  assembled: number
  /** Tokens that were left after shortening, which the trainer got. */
  given: number
}

export function cappedTrainer<T extends Trainer>(trainer: T, mostTokens: number, count: TrainedTokens): T {
  return {
    ...trainer,
    step(sequences, options, checkpoints) {
      const given = sequences.map(one => firstSampled(one, mostTokens))
      count.sequences += sequences.length
      count.assembled += sequences.reduce((sum, { tokens }) => sum + tokens.length, 0)
      count.given += given.reduce((sum, { tokens }) => sum + tokens.length, 0)
      return trainer.step(given, options, checkpoints)
    },
  }
}

/**
 * Cuts a sequence to `mostTokens` tokens (at least 2), from the token before the first sampled one, which predicts it.
 */
function firstSampled(sequence: TrainSequence, mostTokens: number): TrainSequence {
  const { tokens, mask, engineLogprobs } = sequence
  if (tokens.length <= mostTokens) return sequence
  const begin = Math.max(0, mask.indexOf(1) - 1)
  const end = begin + Math.max(2, mostTokens)
  return {
    ...sequence,
    tokens: tokens.slice(begin, end),
    mask: mask.slice(begin, end),
    engineLogprobs: engineLogprobs.slice(begin, end),
  }
}
