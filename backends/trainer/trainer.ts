/**
 * The Trainer: a model with an optimizer behind a process boundary.
 *
 * in   token sequences with masks and advantages        out  metrics of one optimizer step, checkpoints
 * Invariant: a step that is not finite changes nothing. Sequences are trained on in the order given.
 */
import type { Metrics } from '../../messages/facts'
import type { GrpoOptions, SftOptions } from './recipeOptions'

/** One trajectory, ready to train on. All arrays have its length n. */
export interface TrainSequence {
  readonly trajectory: string
  readonly tokens: Int32Array
  /** 1 where the model sampled the token, 0 for prompt, template and tool tokens. */
  readonly mask: Uint8Array
  /** Natural log under the engine's sampling distribution; 0 where the mask is 0. */
  readonly engineLogprobs: Float32Array
  readonly advantage: number
  /** Sequences of one group share an index: `group-tokens` normalises by group. */
  readonly group: number
}

export type { GrpoOptions, SftOptions }

export interface SftExample {
  readonly tokens: Int32Array
  /** 1 where the loss counts. */
  readonly mask: Uint8Array
}

export interface StageReset {
  /** The optimizer forgets its moments. */
  readonly optimizer: boolean
  /** The KL is measured from the policy as it is now. */
  readonly reference: boolean
}

/** digest: sha256 over the safetensors files' bytes in the order of their names, hex. */
export interface Saved {
  readonly digest: string
  readonly bytes: number
}

export interface Trainer {
  /** Supervised fine-tuning. `onProgress` gets the share done and the loss in nats a token. */
  sft(
    examples: readonly SftExample[],
    options: SftOptions,
    onProgress: (done: number, loss: number) => void,
  ): Promise<Metrics>
  /**
   * One GRPO step. Throws TroupeError with weights untouched: `trainer.not_finite`, `empty_batch`, `bad_sequence` and
   * `context_exceeded` are faults of the batch, every other code is one of the trainer or its options.
   */
  step(sequences: readonly TrainSequence[], options: GrpoOptions): Promise<Metrics>
  /**
   * Writes weights, config and tokenizer so that `transformers` loads them: to a temporary directory, fsynced, renamed. Where
   * adapters are trained the weights have them merged, and `adapter/` has them alone, as peft loads them.
   */
  save(directory: string, withOptimizer: boolean): Promise<Saved & { readonly adapter?: Saved }>
  /** Loads weights, and the optimizer's state and the KL's reference where the directory has them. */
  load(directory: string): Promise<void>
  /**
   * A stage begins. Whoever loads an older checkpoint afterwards has to say it again at the same step: a checkpoint holds
   * what was so when it was written.
   */
  reset(what: StageReset): Promise<void>
  readonly lost: Promise<Error>
  close(): Promise<void>
}
