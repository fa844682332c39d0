/**
 * The trainer in a process of its own, behind gRPC.
 *
 * in   examples and sequences, streamed as fast as the process takes them     out  progress, metrics, checkpoints
 * Invariant: every call settles: with its metrics, with the process's own error code, at its deadline, or with
 * `trainer.lost`. A call that rejects has changed nothing in the model, unless the process is gone. Calls do not
 * overlap: a second one is refused with `trainer.busy`.
 */
import type { Metrics } from '../../messages/facts'
import { asError, TroupeError } from '../../runtime/errors'
import { bytesOfTokens } from '../../runtime/tokenBytes'
import { type PolicyProcess, type PolicyProcessOptions, startPolicyProcess } from '../policyProcess'
import type { TrainerSettings } from './recipeOptions'
import type { Saved, SftExample, Trainer, TrainSequence } from './trainer'

export interface TrainerProcessOptions
  extends Omit<PolicyProcessOptions, 'serve' | 'options' | 'template'>,
    TrainerSettings {
  readonly stepTimeoutMs?: number
  readonly sftTimeoutMs?: number
  /** Milliseconds that saving or loading a checkpoint may take. */
  readonly checkpointTimeoutMs?: number
}

/** Settings that the trainer's process reports about itself. */
interface TrainerInfo {
  readonly model: string
  readonly parameters: number
  /** Number of processes that train together. */
  readonly ranks: number
  /** True if sequences are laid end to end, without padding. */
  readonly packed: boolean
  readonly device: string
  readonly dtype: string
  readonly versions: Readonly<Record<string, string>>
}

export interface TrainerProcess extends Trainer {
  readonly pid: number
  readonly info: TrainerInfo
}

interface TrainEvent {
  readonly done: number
  readonly loss: number
  readonly metrics: Metrics
  readonly last: boolean
  readonly errorCode: string
  readonly errorMessage: string
}

const describeTimeoutMs = 60_000

const hints: Readonly<Record<string, string>> = {
  'trainer.not_finite': 'lower the learning rate, or look for rewards and log-probabilities that are not numbers',
  'trainer.bad_sequence': 'use the same tokenizer and vocabulary for engine and trainer',
  'trainer.context_exceeded': "lower the recipe's token limits, or use a model with a longer context",
  'trainer.shape_mismatch': 'resume the run with the model, and the train.lora, that it began with',
  'trainer.rank_lost': 'the trainer restarts and computes the step again; check the free memory of its machines',
}

/**
 * Starts a trainer over the model in `modelDirectory`.
 * @throws TroupeError process.start_failed if the model cannot be trained (the message says why), process.start_timeout
 */
export async function startTrainer(options: TrainerProcessOptions): Promise<TrainerProcess> {
  const { device, dtype, threads, seed, lora, checkpointing, ranks } = options
  const { stepTimeoutMs, sftTimeoutMs, checkpointTimeoutMs, ...rest } = options
  const child = await startPolicyProcess({
    ...rest,
    serve: 'trainer',
    options: {
      device,
      dtype,
      threads,
      seed,
      checkpointing,
      ranks,
      loraRank: lora?.rank,
      loraAlpha: lora?.alpha,
      loraTargets: lora?.targets.join(','),
    },
  })
  const { client, pid, lost } = child
  const saveTimeoutMs = checkpointTimeoutMs ?? 600_000
  let info: TrainerInfo
  try {
    info = await client.unary<TrainerInfo>('Describe', {}, describeTimeoutMs)
  } catch (thrown) {
    await child.close()
    throw thrown
  }
  return {
    pid,
    info,
    lost,
    close: () => child.close(),
    sft: (examples, sft, onProgress) =>
      call(child, 'Sft', parts({ options: sft }, examples, exampleOf), sftTimeoutMs ?? 6 * 3_600_000, onProgress),
    step: (sequences, grpo) =>
      call(child, 'Step', parts({ options: grpo }, sequences, sequenceOf), stepTimeoutMs ?? 3_600_000, () => {}),
    async save(directory, withOptimizer) {
      type Reply = Saved & { readonly adapterDigest: string; readonly adapterBytes: number }
      const reply = await client.unary<Reply>('Save', { directory, withOptimizer }, saveTimeoutMs)
      const { digest, bytes, adapterDigest, adapterBytes } = reply
      return {
        ...{ digest, bytes },
        ...(adapterDigest === '' ? {} : { adapter: { digest: adapterDigest, bytes: adapterBytes } }),
      }
    },
    async load(directory) {
      await client.unary('Load', { directory }, saveTimeoutMs)
    },
    async reset({ optimizer, reference }) {
      await client.unary('Reset', { optimizer, reference }, saveTimeoutMs)
    },
  }
}

/**
 * Calls a streaming method: writes `input`, waiting while the process is slow, and resolves with the metrics of the
 * last event.
 */
async function call(
  { client, lost }: PolicyProcess,
  method: 'Sft' | 'Step',
  input: Iterable<object>,
  timeoutMs: number,
  onProgress: (done: number, loss: number) => void,
): Promise<Metrics> {
  const stream = client.stream<object, TrainEvent>(method)
  let timer: NodeJS.Timeout | undefined
  let settled = false
  try {
    const answer = new Promise<Metrics>((resolve, reject) => {
      timer = setTimeout(() => reject(late(method, timeoutMs)), timeoutMs)
      stream.on('data', (event: TrainEvent) => {
        if (event.errorCode !== '') reject(refused(event))
        else {
          onProgress(event.done, event.loss)
          if (event.last) resolve(inOrder(event.metrics))
        }
      })
      // Waits a second, because a process that died reports its reason (`lost`) a moment after its connection broke.
      stream.on('error', error => setTimeout(reject, 1_000, broken(method, error)))
      stream.on('end', () => setTimeout(reject, 1_000, broken(method, new Error('the stream ended without an answer'))))
      void lost.then(reject)
    })
    // Stops writing once an answer is there: a refusal may come before all input is written.
    const over = answer.then(
      () => {},
      () => {},
    )
    void over.then(() => {
      settled = true
    })
    for (const part of input) {
      if (settled) break
      if (!stream.write(part)) await Promise.race([new Promise(resolve => stream.once('drain', resolve)), over])
    }
    stream.end()
    return await answer
  } finally {
    clearTimeout(timer)
    // Stops the process at its next micro-batch; has no effect on a stream that has ended.
    stream.cancel()
  }
}

function* parts<T>(first: object, items: readonly T[], partOf: (item: T) => object): Iterable<object> {
  yield first
  for (const item of items) yield partOf(item)
}

const exampleOf = ({ tokens, mask }: SftExample) => ({ example: { tokens: bytesOfTokens(tokens), mask } })

const sequenceOf = ({ trajectory, tokens, mask, engineLogprobs, advantage, group }: TrainSequence) => ({
  sequence: {
    trajectory,
    tokens: bytesOfTokens(tokens),
    mask,
    engineLogp: Buffer.from(engineLogprobs.buffer, engineLogprobs.byteOffset, engineLogprobs.byteLength),
    advantage,
    group,
  },
})

function refused({ errorCode, errorMessage }: TrainEvent): TroupeError {
  const hint = hints[errorCode]
  return new TroupeError(errorCode, {
    boundary: 'trainer',
    retriable: errorCode === 'trainer.busy' || errorCode === 'trainer.rank_lost',
    message: errorMessage,
    ...(hint === undefined ? {} : { hint }),
  })
}

function late(method: string, timeoutMs: number): TroupeError {
  return new TroupeError('trainer.timeout', {
    boundary: 'trainer',
    retriable: true,
    message: `the trainer's call ${method} took longer than ${timeoutMs} ms and was stopped`,
  })
}

function broken(method: string, thrown: unknown): TroupeError {
  const cause = asError(thrown)
  return new TroupeError('trainer.lost', {
    boundary: 'trainer',
    retriable: true,
    message: `the connection to the trainer broke during ${method}: ${cause.message}`,
    cause,
  })
}

/** Sorts metrics by name: the order of a protobuf map varies, but facts of equal runs must have equal bytes. */
const inOrder = (metrics: Metrics): Metrics =>
  Object.fromEntries(Object.entries(metrics).sort(([a], [b]) => (a < b ? -1 : 1)))
