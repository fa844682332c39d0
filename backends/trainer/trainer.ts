/**
 * The Trainer: a model with an optimizer, in another process.
 *
 * in   demonstrations in files; token sequences with masks and advantages
 * out  metrics of a fine-tuning or of one GRPO step, published weights, checkpoints
 * Invariant: a step whose loss or gradient is not finite changes nothing. The cut into batches follows from the call's
 * arguments, so a repeated call cuts alike.
 */
import type { Metrics } from '../../messages/facts'
import type { SftData, SftExample } from './exampleFiles'
import type { GrpoOptions, SftOptions } from './recipeOptions'

/** One sequence of a trajectory (an agent's may have several), ready to train on. All arrays have the same length n. */
export interface TrainSequence {
  readonly trajectory: string
  readonly tokens: Int32Array
  /**
   * [n], 1 for the tokens to train on, all of which the model sampled. 0 for prompt, template and tool tokens, and for
   * sampled tokens of an agent's calls that this sequence does not train.
   */
  readonly mask: Uint8Array
  /** [n], natural log of each token's probability under the engine's sampling distribution; 0 where the mask is 0. */
  readonly engineLogprobs: Float32Array
  readonly advantage: number
  /** Index that the sequences of one group share; the loss norm `group-tokens` divides by the group's tokens. */
  readonly group: number
}

export type { GrpoOptions, SftExample, SftOptions }

/** A checkpoint that was written in the middle of a call (a fine-tuning or a step). */
export interface SavedPartial extends SavedCheckpoint {
  readonly directory: string
  /** Number of the call's optimizer updates that the checkpoint contains. */
  readonly updates: number
}

/** Checkpoints in the middle of a fine-tuning or a step, from which a restarted trainer resumes that call. */
export interface PartialCheckpoints {
  /** Prefix of the checkpoints' paths; the trainer appends the number of updates. */
  readonly prefix: string
  /** Number of optimizer updates between two checkpoints; 0 writes none. */
  readonly every: number
  /** Directory of the checkpoint from which this call resumes. Default: the call begins anew. */
  readonly resume?: string
  /** sha256 of that checkpoint's manifest.json; absent: the manifest itself is not checked. */
  readonly resumeManifest?: string
  /** Identifies the call that the checkpoints belong to; a `resume` of another owner is refused. */
  readonly owner?: string
  /** Called for each checkpoint that is complete on disk. */
  readonly onSaved: (saved: SavedPartial) => void
}

export interface StageReset {
  /** True to clear the optimizer's moments. */
  readonly optimizer: boolean
  /** True to take the current policy as the reference of the KL term. */
  readonly reference: boolean
}

/** Weights that were published. */
export interface Published extends Saved {
  readonly dtype: string
  /** sha256 of the directory's manifest.json, in hex. */
  readonly manifest?: string
  /** The adapters in `adapter/`, if adapters are trained; `config`: sha256 of their adapter_config.json. */
  readonly adapter?: Saved & { readonly config?: string }
}

/** Weights that were saved. digest: sha256 over the safetensors files' bytes in the order of their names, in hex. */
export interface Saved {
  readonly digest: string
  readonly bytes: number
}

/** A checkpoint that is complete on disk. */
export interface SavedCheckpoint {
  /** sha256 of the checkpoint's manifest.json, in hex. */
  readonly manifest: string
  /** Size in bytes of the checkpoint's files, without manifest.json. */
  readonly bytes: number
}

export interface Trainer {
  /** Moves weights and optimizer to the host's memory, for engines on the same GPUs. Only `wake` may follow. */
  sleep?(): Promise<void>
  /** Moves weights and optimizer from the host's memory back to the device. */
  wake?(): Promise<void>
  /**
   * Fine-tunes on demonstrations in files, of which each rank reads its own share of each batch. `onProgress` receives
   * the share done (0 to 1) and the loss in nats per token. A fine-tuning that resumes from a checkpoint ends with the
   * same weights as one without interruption; `trainer.other_call`: the checkpoint is of other demonstrations or
   * options.
   */
  sft(
    examples: SftData,
    options: SftOptions,
    onProgress: (done: number, loss: number) => void,
    checkpoints?: PartialCheckpoints,
  ): Promise<Metrics>
  /**
   * Trains one GRPO step. Throws a TroupeError; the weights are then untouched unless the process is gone.
   * `trainer.not_finite`, `.empty_batch`, `.bad_sequence` and `.context_exceeded` are faults of the batch; every other
   * code is a fault of the trainer or its options. A step that resumes from a checkpoint ends with the same weights as
   * one without interruption; `trainer.other_call`: the checkpoint is of another owner, batch or options.
   */
  step(sequences: readonly TrainSequence[], options: GrpoOptions, checkpoints?: PartialCheckpoints): Promise<Metrics>
  /**
   * Writes weights, config and tokenizer as `transformers` loads them: to a temporary directory, fsynced, renamed. A
   * trainer of adapters writes the merged weights, and in `adapter/` the adapters, as peft loads them.
   * `withOptimizer`: writes a whole checkpoint, and returns when that is on disk.
   */
  save(directory: string, withOptimizer: boolean): Promise<Published>
  /**
   * Writes a checkpoint in the background. `weights`: directory in which `save` put the weights of the same state.
   * Resolves once the next call may be made; `saved` when the checkpoint is complete, fsynced and renamed. A checkpoint
   * holds the state at the time of this call, whatever is trained while it is written.
   */
  checkpoint(directory: string, weights: string): Promise<{ readonly saved: Promise<SavedCheckpoint> }>
  /**
   * Loads weights and, if the directory has them, the optimizer's state and the reference of the KL term. All files are
   * compared with the manifest first. `manifest`: sha256 that manifest.json must have; absent: it is not compared.
   * `trainer.checkpoint_corrupt`: a file differs or is missing; `trainer.no_checkpoint`: the directory is missing.
   */
  load(directory: string, manifest?: string): Promise<void>
  /**
   * Resets the trainer at the start of a stage of the curriculum. A checkpoint that was written before a reset does not
   * contain it: whoever loads that checkpoint makes the reset again, before the same step.
   */
  reset(what: StageReset): Promise<void>
  readonly lost: Promise<Error>
  close(): Promise<void>
}
