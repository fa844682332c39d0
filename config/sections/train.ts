/**
 * The recipe's learner: its loss, its optimizer, its processes, its checkpoints.
 *
 * `loss` names a paper's loss; fields that the recipe leaves open (clip range, norm, advantage) come from
 * `lossDefaults`. A `lossNorm` that the named loss does not have is refused, and so is `advantage: std` for dr-grpo: it
 * would be another loss under the same name.
 */
import { z } from 'zod'
import { correctionFaults, correctionSection, icepopBand } from './correction'
import { count, positive } from './numbers'

const lossNorms = ['batch-tokens', 'group-tokens', 'sequences', 'constant'] as const
type LossNorm = (typeof lossNorms)[number]

interface LossDefaults {
  /** Loss of each token; the norm then reduces the tokens' losses to one number. */
  readonly objective: 'clip' | 'gspo' | 'cispo'
  /** Values of `lossNorm` that this loss supports; the first is the default. */
  readonly norms: readonly LossNorm[]
  readonly clipLow: number
  readonly clipHigh: number
  readonly advantage: 'std' | 'none'
}

/**
 * Defaults of each loss. Sources: arXiv 2508.20722 eq. 6; 2402.03300 eq. 3; 2503.14476 §3; 2503.20783 §3;
 * 2507.18071 §5; 2506.13585 §3.
 */
export const lossDefaults = {
  'token-mean': {
    objective: 'clip',
    norms: ['batch-tokens', 'group-tokens'],
    clipLow: 0.2,
    clipHigh: 0.28,
    advantage: 'std',
  },
  grpo: { objective: 'clip', norms: ['sequences'], clipLow: 0.2, clipHigh: 0.2, advantage: 'std' },
  dapo: { objective: 'clip', norms: ['batch-tokens'], clipLow: 0.2, clipHigh: 0.28, advantage: 'std' },
  'dr-grpo': { objective: 'clip', norms: ['constant'], clipLow: 0.2, clipHigh: 0.2, advantage: 'none' },
  gspo: { objective: 'gspo', norms: ['sequences'], clipLow: 3e-4, clipHigh: 4e-4, advantage: 'std' },
  cispo: {
    objective: 'cispo',
    norms: ['batch-tokens', 'group-tokens', 'sequences'],
    clipLow: 1,
    clipHigh: 4,
    advantage: 'std',
  },
} as const satisfies Readonly<Record<string, LossDefaults>>

type LossName = keyof typeof lossDefaults

const fields = z.strictObject({
  /** Number of optimizer steps after the cold start; 0: the run makes its cold start, if it has one, and evaluates. */
  steps: count.default(300),
  learningRate: z.number().positive().default(1e-6),
  /** Number of steps from a new optimizer's first over which the learning rate rises linearly; then it is constant. */
  warmupSteps: count.default(0),
  loss: z.enum(Object.keys(lossDefaults) as [LossName, ...LossName[]]).default('token-mean'),
  /** Clip range, lower end: the ratio of π to π_old is clipped below 1 − clipLow. */
  clipLow: z.number().positive().max(1).optional(),
  /** Clip range, upper end: the ratio of π to π_old is clipped above 1 + clipHigh. */
  clipHigh: z.number().positive().optional(),
  lossNorm: z.enum(lossNorms).optional(),
  /** Divisor of a group's advantages. std: the standard deviation of its rewards. none: they are not divided. */
  advantage: z.enum(['std', 'none']).optional(),
  /** Bounds the loss of a token with a negative advantage at this number times the absolute advantage; 0: off. */
  dualClip: z.number().nonnegative().default(0),
  /**
   * Coefficient of the KL to a reference policy; 0: no reference. The reference is the policy before the first step,
   * after the cold start; a stage with `updateReference` replaces it by the current policy.
   */
  klCoef: z.number().nonnegative().default(0),
  klEstimator: z.enum(['k1', 'k2', 'k3', 'k3-unbiased']).default('k3'),
  /** Correction for tokens that were not sampled from the policy with which the step begins. */
  correction: correctionSection.optional(),
  /** Older name of `correction: {kind: truncated, cap}`; 0: off. */
  tisCap: z.number().nonnegative().default(0),
  /** Older name of `correction: {kind: icepop, low, high}`. */
  icepop: z.strictObject(icepopBand).optional(),
  /** true: a run with `rollout.maxStaleness` above 0 may start without a correction. */
  uncorrected: z.boolean().default(false),
  /**
   * DAPO's soft punishment of long answers: over the last `bufferTokens` of `limits.responseTokens`, the reward of a
   * rollout falls with its length, by up to `penalty`.
   */
  overlong: z.strictObject({ bufferTokens: positive, penalty: z.number().positive().default(1) }).optional(),
  /** Number of passes over the batch of a step; each makes one optimizer update for every mini-batch. */
  innerSteps: positive.default(1),
  /**
   * Number of mini-batches that a step's batch is cut into (PPO). π_old is the policy before the first update;
   * `lossNorm` normalises by the mini-batch. If the batch has fewer groups (or sequences) than this number, each of
   * them is a mini-batch.
   */
  miniBatches: positive.default(1),
  /**
   * Unit by which the batch is cut into mini-batches. groups: the rollouts of a group stay in one mini-batch.
   * sequences: each rollout is assigned by itself.
   */
  miniBatchUnit: z.enum(['groups', 'sequences']).default('groups'),
  /** Upper bound on the tokens of a forward pass, padding included. A longer sequence gets a pass of its own. */
  microBatchTokens: positive.default(16_384),
  maxGradNorm: z.number().positive().default(1),
  /** true: recomputes activations in the backward pass, which saves memory and takes a third more time. */
  checkpointing: z.boolean().default(false),
  /**
   * Trains LoRA adapters; all other weights are frozen. The adapters are published merged into the weights, and also by
   * themselves for engines that load adapters. `targets`: names of linear layers; all-linear: all of them.
   */
  lora: z
    .strictObject({
      rank: positive.max(1024).default(16),
      alpha: z.number().positive().default(32),
      targets: z
        .array(z.string().regex(/^[\w.-]+$/, 'is not a layer name'))
        .min(1)
        .default(['all-linear']),
    })
    .optional(),
  /** Number of trainer processes, each with a shard of every parameter (FSDP2); on GPUs, each process has one GPU. */
  ranks: positive.max(1024).default(1),
  /**
   * Number of hosts that the ranks are spread over, the same number of ranks on each. The learner's host starts the
   * first ranks, rank 0 included; on each other host, `troupe ranks` starts that host's ranks.
   */
  nodes: positive.max(128).default(1),
  /** Address on the learner's host where ranks of several hosts meet: HOST:PORT. Required if `nodes` is above 1. */
  rendezvous: z
    .string()
    .regex(/^(?:[\w.-]+|\[[\da-fA-F:.]+\]):\d{1,5}$/, 'must be HOST:PORT')
    .optional(),
  checkpointEvery: positive.default(1),
  /**
   * Number of optimizer updates between two checkpoints within a step; a restarted trainer resumes the step from the
   * newest. 0: no such checkpoints. Default: 0 if a step makes one update, or if the estimate of its training is
   * unknown or at most half an hour; else the number of updates of about half an hour.
   */
  innerCheckpointEvery: count.optional(),
  /**
   * Number of newest checkpoints that are kept; `all`: none is removed. A checkpoint from which an open step, or the
   * last finished step, began is kept as well.
   */
  keepCheckpoints: z.union([positive, z.literal('all')]).default(3),
  /**
   * Number of published versions whose weights are kept, the newest included. Weights in kept checkpoints stay, too.
   */
  keepVersions: positive.default(3),
  /**
   * Time at which ranks sum their gradients. update: once, after an update's last micro-batch; this sends less, but
   * each rank holds a whole float32 gradient. micro-batch: after each micro-batch; each rank holds only its shard.
   * auto: update if there are several ranks on GPUs and it fits the GPUs of the recipe's `hardware` by the estimate,
   * else micro-batch.
   */
  gradientReduction: z.enum(['auto', 'micro-batch', 'update']).default('auto'),
  /** Torch device of the trainer; auto: CUDA if there is one, else the CPU. */
  device: z.string().default('auto'),
  /**
   * Precision of matrix products; auto: bfloat16 on a GPU, float32 on a CPU. Parameters and optimizer are always
   * float32. On a GPU, what stays float32 is multiplied in TF32.
   */
  dtype: z.enum(['auto', 'float32', 'bfloat16']).default('auto'),
  /** Type of the weights that engines load; default: `dtype`. The trainer's own weights are float32 in any case. */
  publishedDtype: z.enum(['auto', 'float32', 'bfloat16']).optional(),
  /**
   * Kernel of packed sequences. varlen: FlashAttention over sequences of any length, in bfloat16 on CUDA; flex:
   * FlexAttention on CUDA; sdpa: torch's attention over rows of similar length. auto: varlen in bfloat16 on CUDA where
   * it works with the model, else sdpa.
   */
  attention: z.enum(['auto', 'sdpa', 'varlen', 'flex']).default('auto'),
  /**
   * Part of the model that torch.compile compiles. layer: each layer, for one rank; needs a C++ compiler, on a GPU
   * Triton. false: nothing.
   */
  compile: z.union([z.literal(false), z.literal('layer')]).default(false),
  /** CPU threads of each rank; results are bit-equal only under the same number of threads. */
  threads: positive.default(2),
})

const checked = fields.superRefine((train, ctx) => {
  const refuse = (field: string, message: string) => ctx.addIssue({ code: 'custom', path: [field], message })
  const { loss, lossNorm, advantage, dualClip, clipLow } = train
  const known: LossDefaults = lossDefaults[loss]
  if (lossNorm !== undefined && !known.norms.includes(lossNorm)) {
    const meant = (Object.keys(lossDefaults) as LossName[]).find(
      name =>
        lossDefaults[name].objective === known.objective && lossDefaults[name].norms.some(norm => norm === lossNorm),
    )
    const advice = meant === undefined ? '' : `; for ${lossNorm} set train.loss ${meant}`
    refuse('lossNorm', `the loss ${loss} is normalised by ${known.norms.join(' or ')}${advice}`)
  }
  if (loss === 'dr-grpo' && advantage === 'std') {
    refuse(
      'advantage',
      'dr-grpo does not divide by the standard deviation: leave train.advantage out, or set train.loss grpo',
    )
  }
  if (train.ranks % train.nodes !== 0)
    refuse(
      'nodes',
      `${train.ranks} ranks cannot be spread equally over ${train.nodes} hosts; change train.ranks or train.nodes`,
    )
  if (clipLow === 1 && loss !== 'cispo')
    refuse('clipLow', 'must be below 1 for this loss, because a ratio of probabilities is never below 0')
  if (dualClip > 0 && dualClip <= 1) refuse('dualClip', 'must be above 1, or 0 for off')
  if (dualClip > 0 && loss === 'cispo') refuse('dualClip', 'cispo has no dual clip: its weights are bounded already')
  if (train.icepop !== undefined && train.tisCap > 0)
    refuse('tisCap', 'train.icepop weights tokens by the same ratio: set only one of the two')
  for (const [field, why] of correctionFaults(train)) refuse(field, why)
  const { attention, device, dtype } = train
  if (['varlen', 'flex'].includes(attention) && device.startsWith('cpu'))
    refuse('attention', `${attention} trains only on CUDA, and train.device is ${device}: set auto or sdpa`)
  if (attention === 'varlen' && dtype === 'float32')
    refuse(
      'attention',
      'varlen computes in bfloat16, and train.dtype is float32: set train.dtype auto, or train.attention auto, sdpa or flex',
    )
  if (train.compile === 'layer' && train.ranks > 1)
    refuse(
      'compile',
      `'layer' needs one rank, and train.ranks is ${train.ranks}: leave train.compile out, or set train.ranks 1`,
    )
  if (train.compile === 'layer' && attention === 'flex')
    refuse(
      'compile',
      'flex attention is compiled on its own, which a compiled layer prevents: set train.attention auto',
    )
  const [updates, every = 0] = [train.innerSteps * train.miniBatches, train.innerCheckpointEvery]
  if (every > 0 && every >= updates)
    refuse(
      'innerCheckpointEvery',
      `no checkpoint is written after a step's last update, and a step makes ${updates} updates (innerSteps × miniBatches): set a smaller number, or 0`,
    )
  if (train.miniBatches > 1 && train.miniBatchUnit === 'sequences' && lossNorm === 'group-tokens')
    refuse('miniBatchUnit', 'group-tokens divides by the tokens of whole groups: cut the batch by groups')
})

/**
 * Fills in the fields that the recipe leaves open, from the defaults of its loss. Parsing the output again changes
 * nothing.
 */
export const trainSection = checked.transform(train => {
  const { norms, clipLow, clipHigh, advantage } = lossDefaults[train.loss]
  return {
    ...train,
    publishedDtype: train.publishedDtype ?? train.dtype,
    clipLow: train.clipLow ?? clipLow,
    clipHigh: train.clipHigh ?? clipHigh,
    lossNorm: train.lossNorm ?? (norms[0] as LossNorm),
    advantage: train.advantage ?? advantage,
  }
})
