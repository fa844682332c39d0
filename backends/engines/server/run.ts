/**
 * One generation while a server, or a custom engine's function, makes it: its tokens so far, and the weights that
 * sampled each.
 *
 * in   tokens, one by one        out  the partial generation; the whole generation once it has ended
 * Invariant: one logprob for each token, none above 0. Every token lies in one segment, and neighbouring segments
 * differ in version. No more tokens than requested, none after a stop token. A generation that `ended` accepts was
 * aborted, or has a stop token or the requested number of tokens. An answer that breaks this is dropped whole, since it
 * is unknown which request its tokens were sampled for.
 */
import type { PolicyVersion } from '../../../messages/ids'
import type { Effects } from '../../../runtime/effects'
import type { GenerateRequest, Generation, PartialGeneration } from '../engine'

export type OnTokens = ((tokens: Int32Array) => void) | undefined

/** End of a generation as the server reports it: its finish reason and its counts. */
export interface ServerRunEnd extends Pick<Generation, 'finish' | 'cachedTokens' | 'preemptions'> {
  /** Milliseconds that the request waited in the server's queue; 0 if the server does not report it. */
  readonly queuedMs: number
}

export class ServerRun {
  readonly aborter = new AbortController()
  readonly tokens: number[] = []
  readonly #logprobs: number[] = []
  /** [n] version of the weights that sampled each token. */
  readonly #versions: PolicyVersion[] = []
  readonly #fx: Effects
  readonly #queuedAt: number
  #firstTokenAt = 0

  /**
   * Starts a generation without tokens. `maxTokens`: upper bound on the tokens to sample in this request, already cut
   * to what the engine's context leaves. `broken`: makes the error for an invalid answer.
   */
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

  /** Records the time of the first token, on the first call. */
  begun(): void {
    this.#firstTokenAt ||= this.#fx.now()
  }

  /** True if the last token so far is a stop token. */
  get isStopped(): boolean {
    const last = this.tokens.at(-1)
    return last !== undefined && this.request.sampling.stopTokens.includes(last)
  }

  /**
   * Appends a token. @throws TroupeError engine.failed if the server sends more than was requested, or a token after a
   * stop token
   */
  take(token: number, logprob: number, sampledBy: PolicyVersion): void {
    if (this.isStopped) throw this.#broken(`the answer continues after stop token ${this.tokens.at(-1)}`)
    if (this.tokens.length >= this.maxTokens) throw this.#broken(`the answer has more than ${this.maxTokens} tokens`)
    this.tokens.push(token)
    this.#logprobs.push(Math.min(0, logprob))
    this.#versions.push(sampledBy)
  }

  /** Replaces the versions of the tokens from `start` on, for a server that reports them only when a request ends. */
  relabel(start: number, versions: readonly PolicyVersion[]): void {
    versions.forEach((version, i) => {
      if (start + i < this.#versions.length) this.#versions[start + i] = version
    })
  }

  /** Drops the tokens from position `length` on. */
  cut(length: number): void {
    for (const part of [this.tokens, this.#logprobs, this.#versions]) if (part.length > length) part.length = length
  }

  /**
   * Returns the finish reason that the tokens imply. @throws TroupeError engine.failed if they contradict the reported
   * one
   */
  ended(said: Generation['finish']): Generation['finish'] {
    if (this.isStopped) return 'stop' // a stop token counts even if the server reports 'length'
    if (said === 'aborted') return said
    const last = this.tokens.at(-1) ?? 'none'
    if (said === 'stop') throw this.#broken(`the answer says 'stop', but its last token, ${last}, is not a stop token`)
    if (this.tokens.length === this.maxTokens) return 'length'
    throw this.#broken(`the answer says 'length' after ${this.tokens.length} of ${this.maxTokens} tokens`)
  }

  #broken(what: string): Error {
    this.cut(0)
    return this.broken(what)
  }

  get taken(): PartialGeneration {
    return {
      tokens: Int32Array.from(this.tokens),
      logprobs: Float32Array.from(this.#logprobs),
      segments: segmentsOf(this.#versions),
    }
  }

  /** Ends the generation now. Its text covers the whole turn, including tokens sampled before an interruption. */
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

/** Joins neighbouring tokens of the same version into segments. */
function segmentsOf(versions: readonly PolicyVersion[]): PartialGeneration['segments'] {
  const segments: { policyVersion: PolicyVersion; start: number; end: number }[] = []
  versions.forEach((version, i) => {
    const last = segments.at(-1)
    if (last?.policyVersion === version) last.end = i + 1
    else segments.push({ policyVersion: version, start: i, end: i + 1 })
  })
  return segments
}
