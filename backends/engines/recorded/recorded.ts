/**
 * The recorded engine: answers a turn with what a recorded run answered to the same context. No model, no GPU.
 *
 * in   a recorded run's journal, requests        out  the recorded tokens, logprobs, segments and finish reasons
 * A context is looked up by the digest of its token ids; tokens that earlier attempts sampled for the turn count as the
 * beginning of its answer. Of several answers to one context the first that fits is taken: one of the same trajectory
 * and seed, one of the same seed, one of the same trajectory, else the answer at index (seed mod n) in the order of the
 * log. So the same request has the same answer every time.
 * Invariant: nothing is invented. A request that was not recorded, or not to the requested length, is
 * `engine.not_recorded`, which says where the recording differs or ends.
 */
import { setTimeout as sleep, setImmediate as soon } from 'node:timers/promises'
import { type EngineId, policyVersion } from '../../../messages/ids'
import { type Effects, systemEffects } from '../../../runtime/effects'
import { TroupeError } from '../../../runtime/errors'
import type { Engine, EngineCapabilities, GenerateRequest, Generation } from '../engine'
import { checkRequest, closedEngine } from '../server/request'
import { notRecorded, unanswered } from './nearest'
import type { RecordedBody, RecordedTurn, RecordedTurns } from './turns'

export { openRecording, type Recording } from './log'
export { RecordedTurns } from './turns'

type Sizes = Pick<EngineCapabilities, 'kvTokens' | 'blockTokens' | 'maxSequences' | 'contextTokens' | 'vocabulary'>

export interface RecordedEngineOptions extends Sizes {
  readonly id: EngineId
  /** Turns of the recorded run, from `RecordedTurns.of(journal)`; several engines may share it. */
  readonly turns: RecordedTurns
  /** Decodes part of a turn's tokens; a whole turn has its text in the log. */
  readonly decode: (tokens: Int32Array) => Promise<string>
  /** Factor by which the recorded pace of the tokens is sped up. Default: all tokens at once. */
  readonly speed?: number
  readonly fx?: Effects
}

export interface RecordedEngine extends Engine {
  stream(request: GenerateRequest, onTokens: (tokens: Int32Array) => void, signal?: AbortSignal): Promise<Generation>
}

interface Running {
  readonly aborter: AbortController
  readonly contextTokens: number
}

/** Number of tokens per piece of a stream when `speed` is not given. */
const atOnce = 16

/** Makes the engine. @throws TroupeError engine.empty_recording if the recorded run completed no turn */
export function recordedEngine(options: RecordedEngineOptions): RecordedEngine {
  const { id, turns, decode, speed, fx = systemEffects, ...sizes } = options
  if (turns.size === 0) throw emptyRecording(turns.run)
  const traits = { prefixSharing: false, prioritySign: 0, trainable: false, deterministic: true } as const
  const capabilities: EngineCapabilities = { kind: 'recorded', model: turns.run, ...sizes, ...traits }
  const running = new Map<string, Running>()
  const totals = { generatedTokens: 0, prefilledTokens: 0, preemptions: 0 }
  let version = policyVersion(-1)
  let busyMs = 0
  let busySince = 0
  let isClosed = false

  async function answer(request: GenerateRequest, signal: AbortSignal, onTokens: OnTokens): Promise<Generation> {
    const queuedAt = fx.now()
    const begun = fx.elapsed()
    const { context, resumedTokens, maxTokens } = request
    const base = context.subarray(0, context.length - resumedTokens)
    const chosen = choose(turns.withContext(base), request)
    if (chosen === undefined) throw await notRecorded(turns, { ...request, context: base })
    const body = await turns.body(chosen)
    const before = context.subarray(base.length)
    const departs = before.findIndex((token, i) => token !== body.tokens[i])
    const fault = (why: string) => unanswered(turns, request, `${chosen.trajectory} turn ${chosen.turn} ${why}`)
    if (departs >= 0)
      throw fault(`differs, from token ${departs} on, from the ${resumedTokens} tokens that the request resumes`)
    const most = Math.min(maxTokens, capabilities.contextTokens - context.length)
    const { end, finish } = endOf(body, resumedTokens, most, request.sampling.stopTokens)
    if (finish === 'unknown')
      throw fault(`was recorded with only ${body.tokens.length} tokens, but ${most} more were requested`)
    let firstTokenAt = 0
    const given = await paced(
      body,
      { from: resumedTokens, end, speed, begun, fx, signal, streams: onTokens !== undefined },
      tokens => {
        firstTokenAt ||= fx.now()
        onTokens?.(tokens)
      },
    )
    const endedAt = fx.now()
    // If the caller takes no stream, all tokens are passed on at the end, so the time of the first token is computed
    // from the recorded pace.
    const isUnheard = speed !== undefined && onTokens === undefined && given > resumedTokens
    if (isUnheard) firstTokenAt = Math.min(endedAt, queuedAt + body.firstMs / speed)
    const isWhole = given === body.tokens.length
    totals.generatedTokens += given - resumedTokens
    totals.preemptions += body.preemptions
    const { entropies, text, cachedTokens, preemptions } = body
    return {
      tokens: body.tokens.slice(resumedTokens, given),
      logprobs: body.logprobs.slice(resumedTokens, given),
      ...(entropies === undefined ? {} : { entropies: entropies.slice(resumedTokens, given) }),
      segments: segmentsOf(body, resumedTokens, given),
      text: isWhole ? text : given === 0 ? '' : await decode(body.tokens.subarray(0, given)),
      finish: given < end ? 'aborted' : finish,
      ...{ cachedTokens, preemptions },
      timing: { queuedAt, startedAt: queuedAt, firstTokenAt: firstTokenAt || endedAt, endedAt },
    }
  }

  async function generate(request: GenerateRequest, onTokens: OnTokens, signal?: AbortSignal): Promise<Generation> {
    if (isClosed) throw closedEngine(id)
    const { requestId, context } = request
    checkRequest(id, capabilities, request, running)
    const aborter = new AbortController()
    if (running.size === 0) busySince = fx.elapsed()
    running.set(requestId, { aborter, contextTokens: context.length })
    totals.prefilledTokens += context.length
    try {
      return await answer(request, signal ? AbortSignal.any([signal, aborter.signal]) : aborter.signal, onTokens)
    } finally {
      running.delete(requestId)
      if (running.size === 0) busyMs += fx.elapsed() - busySince
    }
  }

  return {
    id,
    capabilities,
    lost: new Promise(() => {}),
    generate: (request, signal) => generate(request, undefined, signal),
    stream: (request, onTokens, signal) => generate(request, onTokens, signal),
    abort: async requestId => running.get(requestId)?.aborter.abort(),
    release: async () => {},
    // Only records the version: the answers come from the recorded policies, whatever weights are published.
    async updateWeights(update) {
      version = update.version
    },
    async status() {
      const referencedTokens = [...running.values()].reduce((sum, { contextTokens }) => sum + contextTokens, 0)
      return {
        ...{ type: 'engine.status', at: fx.now(), engine: id, version, kvTokens: capabilities.kvTokens },
        ...{ referencedTokens, cachedTokens: 0, running: running.size, waiting: 0, ...totals },
        busyMs: busyMs + (running.size === 0 ? 0 : fx.elapsed() - busySince),
        ...{ cpuMs: 0, maxRssBytes: 0 },
      }
    },
    async close() {
      isClosed = true
      for (const { aborter } of running.values()) aborter.abort()
    },
  }
}

type OnTokens = ((tokens: Int32Array) => void) | undefined

/** Chooses among several recorded answers to one context, by the rule in the file header. */
function choose(found: readonly RecordedTurn[], { trajectory, seed }: GenerateRequest): RecordedTurn | undefined {
  return (
    found.find(one => one.trajectory === trajectory && one.seed === seed) ??
    found.find(one => one.seed === seed) ??
    found.find(one => one.trajectory === trajectory) ??
    found[seed % Math.max(1, found.length)]
  )
}

/**
 * Finds where the answer ends: after the first stop token, at the requested length, or with the recorded answer. The
 * finish is `unknown` if the recorded answer was cut off at a smaller length than requested.
 */
function endOf({ tokens, finish }: RecordedBody, from: number, most: number, stopTokens: readonly number[]) {
  const at = tokens.findIndex((token, i) => i >= from && i < from + most && stopTokens.includes(token))
  if (at >= 0) return { end: at + 1, finish: 'stop' } as const
  if (tokens.length > from + most) return { end: from + most, finish: 'length' } as const
  const isCut = finish === 'length' && tokens.length < from + most
  return { end: tokens.length, finish: isCut ? ('unknown' as const) : finish }
}

interface Pace {
  readonly from: number
  readonly end: number
  readonly speed: number | undefined
  readonly begun: number
  /** True if the caller takes the tokens as a stream. */
  readonly streams: boolean
  readonly fx: Effects
  readonly signal: AbortSignal
}

/**
 * Passes tokens on at the recorded pace, or at once. Returns the position in the recorded answer after the last token
 * passed on: `end`, or less if the signal aborted.
 */
async function paced(
  body: RecordedBody,
  { from, end, speed, begun, streams, fx, signal }: Pace,
  give: (tokens: Int32Array) => void,
) {
  let given = from
  const dueMs = (token: number) => begun + (body.firstMs + (token - from) * body.tokenMs) / (speed ?? 1)
  while (given < end && !signal.aborted) {
    let due = streams ? Math.min(end, given + atOnce) : end
    if (speed !== undefined) {
      const waitMs = dueMs(streams ? given : end - 1) - fx.elapsed()
      if (waitMs > 0) await sleep(waitMs, undefined, { signal }).catch(() => {})
      due = given
      while (due < end && dueMs(due) <= fx.elapsed()) due++
    }
    if (due === given) continue
    give(body.tokens.slice(given, due))
    given = due
    // Yields to the event loop, because the caller may end the turn after any piece.
    if (given < end) await soon()
  }
  return given
}

const segmentsOf = ({ segments }: RecordedBody, from: number, end: number): Generation['segments'] =>
  segments
    .map(({ policyVersion: by, ...at }) => ({
      policyVersion: by,
      start: Math.max(at.start, from) - from,
      end: Math.min(at.end, end) - from,
    }))
    .filter(({ start, end: last }) => last > start)

const emptyRecording = (run: string): TroupeError =>
  new TroupeError('engine.empty_recording', {
    boundary: 'engine',
    retriable: false,
    message: `the recorded run '${run}' holds no turn that was completed, so the engine has no answers`,
    hint: 'see what a run holds with `troupe replay ls --run ID`, and name another run',
  })

/**
 * Error for training on a recording: its logprobs are those of the recorded policies, and new weights change no answer.
 */
export const recordingNotTrainable = (recording: string): TroupeError =>
  new TroupeError('engine.not_trainable', {
    boundary: 'engine',
    retriable: false,
    message: `the recorded run '${recording}' cannot be used for training: the recorded policies sampled its turns, and new weights change none of them`,
    hint: 'train with --engine local, vllm:URL or sglang:URL; use a recording with `troupe rollout` and `troupe eval`',
  })
