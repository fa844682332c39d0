/**
 * The Trainer: a model with an optimizer, in another process.
 *
 * in   token sequences with masks and advantages        out  metrics of one optimizer step, checkpoints
 * Invariant: a step whose loss is not finite changes nothing. Sequences are trained on in the order given.
 */
import type { Metrics } from '../../messages/facts'
import type { GrpoOptions, SftOptions } from './recipeOptions'

/** One trajectory, ready to train on. All its arrays have the same length n. */
export interface TrainSequence {
  readonly trajectory: string
  readonly tokens: Int32Array
  /** [n], 1 where the model sampled the token, 0 for prompt, template and tool tokens. */
  readonly mask: Uint8Array
  /** [n], natural log of each token's probability under the engine's sampling distribution; 0 where the mask is 0. */
  readonly engineLogprobs: Float32Array
  readonly advantage: number
  /** Index that the sequences of one group share; the loss norm `group-tokens` divides by the group's tokens. */
  readonly group: number
}

export type { GrpoOptions, SftOptions }

export interface SftExample {
  readonly tokens: Int32Array
  /** [n], 1 where the token counts in the loss. */
  readonly mask: Uint8Array
}

export interface StageReset {
  /** True to clear the optimizer's moments. */
  readonly optimizer: boolean
  /** True to take the current policy as the reference of the KL term. */
  readonly reference: boolean
}

/** Weights that were saved. digest: sha256 over the safetensors files' bytes in the order of their names, in hex. */
export interface Saved {
  readonly digest: string
  readonly bytes: number
}

export interface Trainer {
  /** Fine-tunes on demonstrations. `onProgress` receives the share done (0 to 1) and the loss in nats per token. */
  sft(
    examples: readonly SftExample[],
    options: SftOptions,
    onProgress: (done: number, loss: number) => void,
  ): Promise<Metrics>
  /**
   * Trains one GRPO step. Throws a TroupeError; the weights are then untouched unless the process is gone.
   * `trainer.not_finite`, `.empty_batch`, `.bad_sequence` and `.context_exceeded` are faults of the batch; every other
   * code is a fault of the trainer or its options.
   */
  step(sequences: readonly TrainSequence[], options: GrpoOptions): Promise<Metrics>
  /**
   * Writes weights, config and tokenizer as `transformers` loads them: to a temporary directory, fsynced, renamed. A
   * trainer of adapters writes the merged weights, and the adapters alone in `adapter/`, as peft loads them.
   */
  save(directory: string, withOptimizer: boolean): Promise<Saved & { readonly adapter?: Saved }>
  /** Loads weights and, if the directory has them, the optimizer's state and the reference of the KL term. */
  load(directory: string): Promise<void>
  /**
   * Resets the trainer at the start of a stage. A checkpoint holds the state before a later reset, so after loading it,
   * repeat the reset at the same step.
   */
  reset(what: StageReset): Promise<void>
  readonly lost: Promise<Error>
  close(): Promise<void>
}
