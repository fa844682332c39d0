/**
 * Simulates one engine: it runs batches by the scheduling rules of its family (vLLM, SGLang).
 *
 * in   requests, and the present time        out  turns that ended, and the end of the present batch
 * Consecutive steps that only decode are one batch, computed in closed form; a request that arrives cuts it short.
 * Invariant: a batch always ends at the end of a step, and a request that arrives during a step is scheduled after it.
 */
import { decodeStepsMs, type EngineModel, stepMs } from './engineModel'
import { KvCache } from './kvCache'
import { type EngineRules, type EngineState, slackOf } from './rules'
import { type Batch, knownTokens, newSequence, type Sequence, type TurnRequest } from './sequence'
import { sglangRules } from './sglangRules'
import { vllmRules } from './vllmRules'

export interface EndedTurn {
  readonly request: TurnRequest
  /** Time at which the turn's first step began, ms. */
  readonly startedMs: number
  /** Number of the turn's context tokens that were cached when its first step began. */
  readonly cachedTokens: number
  readonly firstTokenMs: number
  readonly preemptions: number
}

export type Progress = Pick<Sequence, 'generated' | 'startedMs' | 'cachedTokens' | 'firstTokenMs' | 'preemptions'>

export interface EngineTally {
  busyMs: number
  steps: number
  preemptions: number
  /** Number of tokens computed in chunks of prompts. */
  prefilledTokens: number
  /** Number of `prefilledTokens` that had been computed before. */
  recomputedTokens: number
  generatedTokens: number
  peakKvTokens: number
  /** Integral over time of the number of sequences in the step, in sequences × ms. */
  runningMs: number
  /** Integral over time of the number of KV tokens that running sequences reference, in tokens × ms. */
  kvTokenMs: number
}

const rulesOf: Readonly<Record<EngineModel['family'], (state: EngineState) => EngineRules>> = {
  vllm: vllmRules,
  sglang: sglangRules,
}

/**
 * Returns the number of tokens that a batch's decodes attend to in its first step, including the decoding tokens
 * themselves.
 */
const attended = ({ decodes }: Batch): number => decodes.reduce((sum, { computed }) => sum + computed + 1, 0)

export class SimulatedEngine {
  readonly cache: KvCache
  readonly tally: EngineTally = {
    busyMs: 0,
    steps: 0,
    preemptions: 0,
    prefilledTokens: 0,
    recomputedTokens: 0,
    generatedTokens: 0,
    peakKvTokens: 0,
    runningMs: 0,
    kvTokenMs: 0,
  }
  private readonly state: EngineState
  private readonly rules: EngineRules
  private arrivals = 0
  private batch: Batch | null = null
  private beganMs = 0
  private steps = 0
  private kvTokens = 0

  constructor(
    readonly model: EngineModel,
    priority: boolean,
    /** true: simulates decode steps one by one: slower, with the same result. */
    private readonly stepwise = false,
  ) {
    this.cache = new KvCache(model)
    this.state = { model, cache: this.cache, waiting: [], running: [], priority }
    this.rules = rulesOf[model.family](this.state)
  }

  get running(): number {
    return this.state.running.length
  }

  get waiting(): number {
    return this.state.waiting.length
  }

  /** Number of preemptions so far, of ended and of present sequences. */
  get preemptions(): number {
    return this.sequences().reduce((sum, one) => sum + one.preemptions, this.tally.preemptions)
  }

  /** true while a batch is running. */
  get isBusy(): boolean {
    return this.batch !== null
  }

  /** Time at which the present batch ends, ms; Infinity while no batch runs. */
  get endMs(): number {
    return this.batch === null ? Number.POSITIVE_INFINITY : this.beganMs + this.durationMs(this.steps)
  }

  submit(request: TurnRequest): void {
    this.rules.enqueue(newSequence(request, this.arrivals++))
  }

  /**
   * Starts a batch if none is running. Otherwise cuts the running batch, so that it ends with the step that runs at
   * `nowMs`.
   */
  schedule(nowMs: number): void {
    if (this.batch !== null) {
      this.cut(nowMs)
      return
    }
    if (this.state.running.length + this.state.waiting.length === 0) return
    this.batch = this.rules.next()
    if (this.batch === null) {
      throw new Error(
        `engine ${this.model.name} has ${this.state.waiting.length} waiting requests and can run none of them`,
      )
    }
    this.beganMs = nowMs
    for (const { sequence } of this.batch.chunks) {
      if (sequence.startedMs >= 0) continue
      sequence.startedMs = nowMs
      sequence.cachedTokens = sequence.computed
    }
    this.steps = this.stepwise ? 1 : this.batch.steps
    this.kvTokens = attended(this.batch)
  }

  /** Ends the present batch and returns the turns that ended with it. @param nowMs must be the batch's end */
  finish(nowMs: number): readonly EndedTurn[] {
    const batch = this.batch!
    this.batch = null
    const { tally, cache } = this
    const lasted = nowMs - this.beganMs
    tally.busyMs += lasted
    tally.steps += this.steps
    tally.runningMs += lasted * (batch.chunks.length + batch.decodes.length)
    tally.peakKvTokens = Math.max(tally.peakKvTokens, cache.referencedTokens)
    const before = cache.referencedTokens
    for (const { sequence, tokens } of batch.chunks) this.computed(sequence, tokens, nowMs)
    for (const sequence of batch.decodes) {
      sequence.computed += this.steps
      sequence.generated += this.steps
      sequence.request.history.computedTokens = Math.max(sequence.request.history.computedTokens, sequence.computed)
      // Blocks of the first step were allocated with the batch. Blocks for the other steps were counted as available
      // then.
      cache.grow(sequence, sequence.computed)
    }
    tally.generatedTokens += batch.decodes.length * this.steps
    tally.kvTokenMs += (lasted * (before + cache.referencedTokens)) / 2
    tally.peakKvTokens = Math.max(tally.peakKvTokens, cache.referencedTokens)
    this.rules.batchEnded(batch.decodes.length > 0 ? this.steps : 0)
    return this.takeEnded(batch)
  }

  /** Returns the number of tokens that running sequences reference in the present step. */
  referencedTokens(nowMs: number): number {
    const { batch, cache } = this
    if (batch === null || this.steps === 1) return cache.referencedTokens
    const { blockTokens } = cache
    const slack = slackOf(cache, batch.decodes)
    let blocks = cache.referencedBlocks
    for (let step = 1; step < this.stepAt(nowMs); step++) blocks += slack[(step - 1) % blockTokens]!
    return blocks * blockTokens
  }

  /**
   * Returns the progress of an open request at the end of the last batch; undefined if the engine does not have the
   * request.
   */
  progressOf(request: TurnRequest): Progress | undefined {
    return this.sequences().find(one => one.request === request)
  }

  /**
   * Removes a request between two batches. Its computed blocks stay cached, like those of an ended request.
   * @throws Error while a batch is running
   */
  withdraw(request: TurnRequest): void {
    if (this.batch !== null)
      throw new Error(`engine ${this.model.name} cannot withdraw a request while a batch is running`)
    for (const list of [this.state.running, this.state.waiting]) {
      const at = list.findIndex(one => one.request === request)
      if (at < 0) continue
      const [sequence] = list.splice(at, 1) as [Sequence]
      // A sequence in the waiting list holds no blocks.
      if (list === this.state.running) this.cache.close(sequence, sequence.computed)
      this.tally.preemptions += sequence.preemptions
    }
  }

  private sequences(): readonly Sequence[] {
    return [...this.state.running, ...this.state.waiting]
  }

  /** Drops the cache of closed sequences, since new weights make it useless. */
  clearCache(): void {
    this.cache.clear()
  }

  private computed(sequence: Sequence, tokens: number, nowMs: number): void {
    const { tally } = this
    const { history } = sequence.request
    const before = sequence.computed
    sequence.computed += tokens
    tally.prefilledTokens += tokens
    tally.recomputedTokens += Math.max(0, Math.min(sequence.computed, history.computedTokens) - before)
    history.computedTokens = Math.max(history.computedTokens, sequence.computed)
    if (sequence.computed < knownTokens(sequence)) return
    sequence.decoding = true
    sequence.generated++
    tally.generatedTokens++
    if (sequence.generated === 1) sequence.firstTokenMs = nowMs
  }

  private takeEnded({ chunks, decodes }: Batch): readonly EndedTurn[] {
    const ended: EndedTurn[] = []
    const { running } = this.state
    const isOver = (one: Sequence) => one.generated >= one.request.newTokens
    const over = [...chunks.map(chunk => chunk.sequence), ...decodes].filter(isOver)
    if (over.length === 0) return ended
    running.splice(0, running.length, ...running.filter(one => !isOver(one)))
    for (const sequence of over) {
      const { request, startedMs, cachedTokens, firstTokenMs, preemptions } = sequence
      this.cache.close(sequence, sequence.computed)
      this.tally.preemptions += preemptions
      ended.push({ request, startedMs, cachedTokens, firstTokenMs, preemptions })
    }
    return ended
  }

  /** Shortens the batch to its first step that ends at `nowMs` or later. */
  private cut(nowMs: number): void {
    this.steps = this.stepAt(nowMs)
  }

  /** Returns the number (from 1) of the batch's step that runs or ends at `nowMs`; after the batch, its last step. */
  private stepAt(nowMs: number): number {
    let low = 1
    let high = this.steps
    while (low < high) {
      const middle = (low + high) >> 1
      if (this.beganMs + this.durationMs(middle) >= nowMs) high = middle
      else low = middle + 1
    }
    return low
  }

  /** Returns the duration of the batch's first `steps` steps in ms. */
  private durationMs(steps: number): number {
    const batch = this.batch!
    if (steps > 1) return decodeStepsMs(this.model, batch.decodes.length, this.kvTokens, steps)
    const chunks = batch.chunks.map(({ sequence, tokens }) => ({ cachedTokens: sequence.computed, tokens }))
    return stepMs(this.model, batch.decodes.length, this.kvTokens, chunks)
  }
}
