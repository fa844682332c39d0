/**
 * The trainer in a process of its own, behind gRPC.
 *
 * in   demonstrations in files; sequences, streamed as fast as the process takes them
 * out  progress, metrics, checkpoints
 * Invariant: every call settles: with its metrics, with the process's own error code, at its deadline, or with
 * `trainer.lost`. A call that rejects has changed nothing in the model, unless the process is gone. Calls do not
 * overlap: a second one is refused with `trainer.busy`.
 */
import type { Metrics } from '../../messages/facts'
import { bytesOfTokens } from '../../runtime/tokenBytes'
import { type PolicyProcess, type PolicyProcessOptions, startPolicyProcess } from '../policyProcess'
import { checkpointCall } from './checkpointCall'
import type { TrainerSettings } from './recipeOptions'
import type { PartialCheckpoints, Saved, SavedPartial, Trainer, TrainSequence } from './trainer'
import { broken, late, refused } from './trainerErrors'

export interface TrainerProcessOptions
  extends Omit<PolicyProcessOptions, 'serve' | 'options' | 'template'>,
    TrainerSettings {
  readonly stepTimeoutMs?: number
  readonly sftTimeoutMs?: number
  readonly saveTimeoutMs?: number
  /** Upper bound on loading a checkpoint, and on moving weights and optimizer between GPU and host. */
  readonly loadTimeoutMs?: number
  /** Milliseconds that one rank waits for another. */
  readonly rankTimeoutMs?: number
  /** True if `sleep` moves weights and optimizer to the host's memory; else it leaves them on the device. */
  readonly offload?: boolean
}

/** Settings that the trainer's process reports about itself. */
interface TrainerInfo {
  readonly model: string
  readonly parameters: number
  /** Number of parameters that are trained: all, or those of the adapters. */
  readonly trainedParameters: number
  /** Number of processes that train together. */
  readonly ranks: number
  /** True if sequences are laid end to end, without padding. */
  readonly packed: boolean
  /** Kernel of packed sequences: sdpa, varlen or flex; `padded` without packing. */
  readonly attention: string
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
  /** Checkpoint from the middle of the call, which is now complete on disk; null in every other event. */
  readonly checkpoint: SavedPartial | null
  readonly last: boolean
  readonly errorCode: string
  readonly errorMessage: string
}

const describeTimeoutMs = 60_000
/** Default bound on saving and on loading a checkpoint, in milliseconds. */
const usualSaveMs = 600_000

/**
 * Starts a trainer over the model in `modelDirectory`.
 * @throws TroupeError process.start_failed if the model cannot be trained (the message says why), process.start_timeout
 */
export async function startTrainer(options: TrainerProcessOptions): Promise<TrainerProcess> {
  const { offload, stepTimeoutMs, sftTimeoutMs, saveTimeoutMs = usualSaveMs, loadTimeoutMs = usualSaveMs } = options
  const child = await startPolicyProcess({ ...options, serve: 'trainer', options: commandLineOf(options) })
  const { client, pid, lost } = child
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
    sft: ({ directory, digest }, sft, onProgress, on) => {
      const request = { options: sft, examples: directory, digest, checkpoints: partialOf(on) }
      return call(child, 'Sft', [request], sftTimeoutMs ?? 6 * 3_600_000, onProgress, on?.onSaved)
    },
    step(sequences, grpo, on) {
      const input = parts([{ options: grpo }, { checkpoints: partialOf(on) }], sequences, sequenceOf)
      return call(child, 'Step', input, stepTimeoutMs ?? 3_600_000, () => {}, on?.onSaved)
    },
    async save(directory, withOptimizer) {
      type Adapter = { readonly adapterDigest: string; readonly adapterBytes: number; readonly adapterConfig: string }
      type Reply = Saved & { readonly dtype: string; readonly manifest: string } & Adapter
      const reply = await client.unary<Reply>('Save', { directory, withOptimizer }, saveTimeoutMs)
      const { digest, bytes, dtype, manifest, adapterDigest, adapterBytes, adapterConfig } = reply
      const adapter = { digest: adapterDigest, bytes: adapterBytes, config: adapterConfig }
      return { digest, bytes, dtype, manifest, ...(adapterDigest === '' ? {} : { adapter }) }
    },
    checkpoint: (directory, weights) => checkpointCall(child, { directory, weights }, saveTimeoutMs),
    async load(directory, manifest = '') {
      await client.unary('Load', { directory, manifest }, loadTimeoutMs)
    },
    async sleep() {
      if (offload === true) await client.unary('Sleep', {}, loadTimeoutMs)
    },
    async wake() {
      if (offload === true) await client.unary('Wake', {}, loadTimeoutMs)
    },
    async reset({ optimizer, reference }) {
      await client.unary('Reset', { optimizer, reference }, loadTimeoutMs)
    },
  }
}

/** Command-line options of a trainer's process, the same on every host of its ranks. */
export const commandLineOf = (settings: TrainerSettings & { readonly rankTimeoutMs?: number }) => {
  const { lora, device, dtype, publishedDtype, threads, seed, checkpointing, ranks, nodes, rendezvous } = settings
  const { gradientReduction, attention, compile, maxStepTokens } = settings
  const rankTimeout = settings.rankTimeoutMs === undefined ? undefined : settings.rankTimeoutMs / 1000 // seconds
  const adapters = { loraRank: lora?.rank, loraAlpha: lora?.alpha, loraTargets: lora?.targets.join(',') }
  const products = {
    device,
    dtype,
    publishedDtype,
    threads,
    seed,
    checkpointing,
    gradientReduction,
    attention,
    compile: compile || undefined,
    maxStepTokens,
  }
  return { ...products, ranks, nodes, rendezvous, rankTimeout, ...adapters }
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
  onSaved: (saved: SavedPartial) => void = () => {},
): Promise<Metrics> {
  const stream = client.stream<object, TrainEvent>(method)
  let timer: NodeJS.Timeout | undefined
  let settled = false
  try {
    const answer = new Promise<Metrics>((resolve, reject) => {
      timer = setTimeout(() => reject(late(method, timeoutMs)), timeoutMs)
      stream.on('data', (event: TrainEvent) => {
        if (event.errorCode !== '') reject(refused(event))
        else if (event.checkpoint !== null) onSaved(event.checkpoint)
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

const partialOf = (on: Partial<PartialCheckpoints> = {}) => {
  const { prefix = '', every = 0, resume = '', owner = '', resumeManifest = '' } = on
  return { prefix, every, resume, owner, resumeManifest }
}

function* parts<T>(first: readonly object[], items: readonly T[], partOf: (item: T) => object): Iterable<object> {
  yield* first
  for (const item of items) yield partOf(item)
}

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

/** Sorts metrics by name: the order of a protobuf map varies, but facts of equal runs must have equal bytes. */
const inOrder = (metrics: Metrics): Metrics =>
  Object.fromEntries(Object.entries(metrics).sort(([a], [b]) => (a < b ? -1 : 1)))
