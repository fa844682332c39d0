/**
 * One generation, of a server or a function, as it grows: the tokens so far, and which weights sampled which of them.
 *
 * in   tokens, one by one        out  what there is of the generation; the whole of it, once it has ended
 * Invariant: as many logprobs as tokens, none above 0; every token lies in one segment, and neighbours differ in version.
 * No more tokens than were asked for, none after a stop token, no end before either: of an answer that breaks this nothing is
 * kept, since nobody knows what it was sampled for.
 */
import type { PolicyVersion } from '../../../messages/ids'
import type { Effects } from '../../../runtime/effects'
import type { GenerateRequest, Generation, PartialGeneration } from '../engine'

export type OnTokens = ((tokens: Int32Array) => void) | undefined

/** What the server says at the end. */
export interface ServerRunEnd extends Pick<Generation, 'finish' | 'cachedTokens' | 'preemptions'> {
  /** How long it waited in the server's queue, ms; 0 where the server does not tell. */
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

  /** `maxTokens`: what fits of those that the request asks for. `broken`: the error of an answer that is none. */
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

  /** Something has come: the first time is when its first token came. */
  begun(): void {
    this.#firstTokenAt ||= this.#fx.now()
  }

  /** Its last token is one that a turn ends with. */
  get isStopped(): boolean {
    const last = this.tokens.at(-1)
    return last !== undefined && this.request.sampling.stopTokens.includes(last)
  }

  /** @throws TroupeError engine.failed where the server goes on beyond what was asked */
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

  /** How it has ended, by its tokens. @throws TroupeError engine.failed where they are not those of such an end */
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

  /** Now is when it ended. Its text is the whole turn's, with what was sampled before an interruption. */
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
