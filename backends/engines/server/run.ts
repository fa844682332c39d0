/**
 * One growing generation, of a server or a function: its tokens so far, and the weights that sampled each.
 *
 * in   tokens, one by one        out  what there is of the generation; the whole of it once it has ended
 * Invariant: as many logprobs as tokens, none above 0. Every token lies in one segment, and neighbouring segments differ in
 * version. No more tokens than requested, none after a stop token, no end before either: an answer that breaks this is
 * dropped whole, since nobody knows what it was sampled for.
 */
import type { PolicyVersion } from '../../../messages/ids'
import type { Effects } from '../../../runtime/effects'
import type { GenerateRequest, Generation, PartialGeneration } from '../engine'

export type OnTokens = ((tokens: Int32Array) => void) | undefined

/** The end as the server reports it. */
export interface ServerRunEnd extends Pick<Generation, 'finish' | 'cachedTokens' | 'preemptions'> {
  /** Wait in the server's queue, ms; 0 if the server does not report it. */
  readonly queuedMs: number
}

export class ServerRun {
  readonly aborter = new AbortController()
  readonly tokens: number[] = []
  readonly #logprobs: number[] = []
  readonly #segments: { policyVersion: PolicyVersion; start: number; end: number }[] = []
  readonly #fx: Effects
  readonly #queuedAt: number
  #firstTokenAt = 0

  /** `maxTokens`: how many of the requested tokens fit. `broken`: makes the error of an invalid answer. */
  constructor(
    readonly request: GenerateRequest,
    readonly maxTokens: number,
    readonly onTokens: OnTokens,
    private readonly broken: (what: string) => Error,
    fx: Effects,
  ) {
    this.#fx = fx
    this.#queuedAt = fx.now()
  }

  /** Records that something has come; the first time is the time of the first token. */
  begun(): void {
    this.#firstTokenAt ||= this.#fx.now()
  }

  /** True if its last token is a stop token. */
  get isStopped(): boolean {
    const last = this.tokens.at(-1)
    return last !== undefined && this.request.sampling.stopTokens.includes(last)
  }

  /** @throws TroupeError engine.failed if the server goes on beyond what was requested */
  take(token: number, logprob: number, sampledBy: PolicyVersion): void {
    if (this.isStopped) throw this.#broken(`it goes on after stop token ${this.tokens.at(-1)}`)
    if (this.tokens.length >= this.maxTokens) throw this.#broken(`it gives more than ${this.maxTokens} tokens`)
    this.tokens.push(token)
    this.#logprobs.push(Math.min(0, logprob))
    const end = this.tokens.length
    const last = this.#segments.at(-1)
    if (last?.policyVersion === sampledBy) last.end = end
    else this.#segments.push({ policyVersion: sampledBy, start: end - 1, end })
  }

  /** Finish by its tokens. @throws TroupeError engine.failed if they contradict the reported end */
  ended(said: Generation['finish']): Generation['finish'] {
    if (this.isStopped) return 'stop' // some servers look at the length first
    if (said === 'aborted') return said
    const last = this.tokens.at(-1) ?? 'none'
    if (said === 'stop') throw this.#broken(`it says 'stop', and its last token, ${last}, is no stop token`)
    if (this.tokens.length === this.maxTokens) return 'length'
    throw this.#broken(`it says 'length' after ${this.tokens.length} of ${this.maxTokens} tokens`)
  }

  #broken(what: string): Error {
    for (const part of [this.tokens, this.#logprobs, this.#segments]) part.length = 0
    return this.broken(what)
  }

  get taken(): PartialGeneration {
    return {
      tokens: Int32Array.from(this.tokens),
      logprobs: Float32Array.from(this.#logprobs),
      segments: this.#segments,
    }
  }

  /** Ends the generation now. Its text is the whole turn's, including tokens sampled before an interruption. */
  async generation(
    decode: (tokens: Int32Array) => Promise<string>,
    { finish, cachedTokens, preemptions, queuedMs }: ServerRunEnd,
    parts: PartialGeneration = this.taken,
  ): Promise<Generation> {
    const endedAt = this.#fx.now()
    const { context, resumedTokens } = this.request
    const own = Int32Array.from([...context.subarray(context.length - resumedTokens), ...parts.tokens])
    return {
      ...parts,
      text: own.length === 0 ? '' : await decode(own),
      ...{ finish, cachedTokens, preemptions },
      timing: {
        queuedAt: this.#queuedAt,
        startedAt: this.#queuedAt + queuedMs,
        firstTokenAt: this.#firstTokenAt || endedAt,
        endedAt,
      },
    }
  }
}
