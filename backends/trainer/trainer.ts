/**
 * The Trainer: a model with an optimizer, behind a process boundary.
 *
 * in   token sequences with masks and advantages        out  metrics of one optimizer step, checkpoints
 * Invariant: a step whose loss is not finite changes nothing. Sequences are trained on in the order given.
 */
import type { Metrics } from '../../messages/facts'
import type { GrpoOptions, SftOptions } from './recipeOptions'

/** One trajectory, ready to train on. All arrays have its length n. */
export interface TrainSequence {
  readonly trajectory: string
  readonly tokens: Int32Array
  /** [n], 1 where the model sampled the token, 0 for prompt, template and tool tokens. */
  readonly mask: Uint8Array
  /** [n], natural log under the engine's sampling distribution; 0 where the mask is 0. */
  readonly engineLogprobs: Float32Array
  readonly advantage: number
  /** Index that the sequences of one group share: `group-tokens` normalises by group. */
  readonly group: number
}

export type { GrpoOptions, SftOptions }

export interface SftExample {
  readonly tokens: Int32Array
  /** [n], 1 where the loss counts. */
  readonly mask: Uint8Array
}

export interface StageReset {
  /** Clears the optimizer's moments. */
  readonly optimizer: boolean
  /** Takes the current policy as the reference of the KL. */
  readonly reference: boolean
}

/** digest: sha256 over the safetensors files' bytes in the order of their names, hex. */
export interface Saved {
  readonly digest: string
  readonly bytes: number
}

export interface Trainer {
  /** Supervised fine-tuning. `onProgress` gets the share done (0 to 1) and the loss in nats per token. */
  sft(
    examples: readonly SftExample[],
    options: SftOptions,
    onProgress: (done: number, loss: number) => void,
  ): Promise<Metrics>
  /**
   * One GRPO step. Throws TroupeError with weights untouched: `trainer.not_finite`, `empty_batch`, `bad_sequence` and
   * `context_exceeded` are faults of the batch; every other code is a fault of the trainer or its options.
   */
  step(sequences: readonly TrainSequence[], options: GrpoOptions): Promise<Metrics>
  /**
   * Writes weights, config and tokenizer as `transformers` loads them: to a temporary directory, fsynced, renamed. A trainer of
   * adapters writes the merged weights, and the adapters alone in `adapter/`, as peft loads them.
   */
  save(directory: string, withOptimizer: boolean): Promise<Saved & { readonly adapter?: Saved }>
  /** Loads weights and, where the directory has them, the optimizer's state and the KL's reference. */
  load(directory: string): Promise<void>
  /**
   * Resets the trainer at the start of a stage. After loading an older checkpoint, repeat the reset at the same step, since a
   * checkpoint holds the state at the time of its writing.
   */
  reset(what: StageReset): Promise<void>
  readonly lost: Promise<Error>
  close(): Promise<void>
}
