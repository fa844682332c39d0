/**
 * SGLang's scheduler for the test server: a waiting queue, a running batch, a prefix cache, and weights that change in
 * place.
 *
 * in   tokenized requests, aborts, pauses, weights        out  for each running request one output a step
 * Invariant: a cached state stays as the old weights computed it until the cache is flushed, as in SGLang. Source of
 * the rules: sgl-project/sglang, python/sglang/srt/managers/scheduler.py and schedule_batch.py.
 */
import { drawAt, type SamplingRule, sampleAt, stateAfter, weightsOf } from './hashModel'

export interface SglangFinish {
  readonly type: 'stop' | 'length' | 'abort'
  readonly matched?: number
  readonly length?: number
  readonly message?: string
  readonly status_code?: number
}

export interface SglangRequest {
  readonly rid: string
  readonly input: readonly number[]
  readonly rule: SamplingRule
  readonly maxNewTokens: number
  readonly stopTokens: readonly number[]
  readonly ignoreEos: boolean
  readonly seed: number
  readonly output: {
    readonly token: number
    readonly logprob: number
    readonly label: string
    readonly state: number
  }[]
  states: number[]
  cached: number
  retractions: number
  toAbort: boolean
  readonly emit: (finish: SglangFinish | null, inQueue: boolean) => void
}

/** End-of-text token that the model's files name. */
export const modelEos = 5

export class SglangScheduler {
  readonly waiting: SglangRequest[] = []
  running: SglangRequest[] = []
  paused = false
  /** Number of tokens sampled so far. */
  sampled = 0
  label: string
  #weights: number | undefined
  #cache: { readonly tokens: readonly number[]; readonly states: readonly number[] }[] = []
  #timer: NodeJS.Timeout | undefined

  constructor(
    directory: string,
    label: string,
    private readonly maxRunning: number,
    private readonly stepMs: number,
  ) {
    this.#weights = weightsOf(directory)
    this.label = label
  }

  add(request: SglangRequest): void {
    this.waiting.push(request)
    this.#wake()
  }

  /**
   * Aborts the requests whose id begins with `rid` (Scheduler.abort_request). A waiting request ends at once, a running
   * one after its next step.
   */
  abort(rid: string, all: boolean): void {
    const meant = (request: SglangRequest) => all || request.rid.startsWith(rid)
    for (const request of this.waiting.filter(meant)) {
      this.waiting.splice(this.waiting.indexOf(request), 1)
      request.emit({ type: 'abort', message: 'Abort in waiting queue' }, true)
    }
    for (const request of this.running.filter(meant)) request.toAbort = true
    this.#wake()
  }

  /**
   * Pauses. retract: running requests return to the queue; in_place: they stay (io_struct.py, PauseGenerationReqInput).
   */
  pause(mode: 'retract' | 'in_place'): void {
    this.paused = true
    if (mode === 'in_place') return
    for (const request of this.running.splice(0)) {
      this.#remember(request)
      request.states = []
      request.retractions++
      this.waiting.unshift(request)
    }
  }

  goOn(): void {
    this.paused = false
    this.#wake()
  }

  /** Flushes the cache. Returns false, and does nothing, while requests use it; retracted requests do not. */
  flush(): boolean {
    if (this.running.length > 0 || (this.waiting.length > 0 && !this.paused)) return false
    this.#cache = []
    return true
  }

  load(directory: string, label: string | undefined): void {
    this.#weights = weightsOf(directory)
    if (label !== undefined) this.label = label
  }

  /** Forgets the weights, as a released GPU memory does without --enable-weights-cpu-backup. */
  dropWeights(): void {
    this.#weights = undefined
  }

  get idle(): boolean {
    return this.running.length + this.waiting.length === 0
  }

  get usedTokens(): number {
    return this.running.reduce((sum, { input, output }) => sum + input.length + output.length, 0)
  }

  stop(): void {
    clearTimeout(this.#timer)
    this.#timer = undefined
    this.running = []
    this.waiting.length = 0
  }

  #wake(): void {
    if (this.#timer !== undefined || this.paused || this.idle) return
    this.#timer = setTimeout(() => {
      this.#timer = undefined
      if (this.paused) return
      this.#step()
      this.#wake()
    }, this.stepMs)
  }

  #step(): void {
    if (this.#weights === undefined) throw new Error('a step on weights whose memory was given back')
    while (this.waiting.length > 0 && this.running.length < this.maxRunning) {
      const request = this.waiting.shift()!
      this.#prefill(request, this.#weights)
      this.running.push(request)
    }
    for (const request of [...this.running]) {
      const finish = this.#decode(request, this.#weights)
      if (finish !== null) {
        this.running.splice(this.running.indexOf(request), 1)
        this.#remember(request)
      }
      request.emit(finish, false)
    }
  }

  #prefill(request: SglangRequest, weights: number): void {
    const tokens = [...request.input, ...request.output.map(({ token }) => token)]
    let best: readonly number[] = []
    for (const { tokens: held, states } of this.#cache) {
      let shared = 0
      while (shared < tokens.length - 1 && shared < held.length && held[shared] === tokens[shared]) shared++
      if (shared > best.length) best = states.slice(0, shared)
    }
    if (request.output.length === 0) request.cached = best.length
    request.states = [...best]
    for (const token of tokens.slice(best.length)) {
      request.states.push(stateAfter(weights, request.states.at(-1) ?? weights, token))
    }
  }

  /**
   * Samples a request's next token. The end is checked in the order of Req.check_finished: abort, length, then stop
   * tokens, all of which ignore_eos switches off.
   */
  #decode(request: SglangRequest, weights: number): SglangFinish | null {
    if (request.toAbort) return { type: 'abort', message: 'Aborted' }
    if (request.maxNewTokens === 0) return { type: 'length', length: 0 }
    const state = request.states.at(-1)!
    const draw = drawAt(request.seed, request.input.length + request.output.length)
    const { token, logprob } = sampleAt(state, request.rule, draw)
    request.output.push({ token, logprob, label: this.label, state })
    this.sampled++
    request.states.push(stateAfter(weights, state, token))
    if (request.output.length >= request.maxNewTokens) return { type: 'length', length: request.maxNewTokens }
    const ends = !request.ignoreEos && (request.stopTokens.includes(token) || token === modelEos)
    return ends ? { type: 'stop', matched: token } : null
  }

  #remember({ input, output, states }: SglangRequest): void {
    this.#cache.push({ tokens: [...input, ...output.map(({ token }) => token)], states })
    if (this.#cache.length > 32) this.#cache.shift()
  }
}
