/**
 * The turns of a recorded run: the digest of each turn's context, and the log offsets of its tokens.
 *
 * in   a run's journal, read once from end to end
 * out  turns by the digest of their context; their tokens on request
 * Invariant: a turn is listed once, with the log offsets of the answers (turn.interrupted, turn.completed) that
 * counted: each answered the turn's latest attempt at that time. The tokens of an interrupted attempt begin the turn's
 * answer, so a turn's context is the one before any of its tokens was sampled. Only digests and offsets are held in
 * memory; tokens are read from the log each time.
 */
import type {
  ContextAppended,
  PolicySegment,
  RolloutRequested,
  TurnCompleted,
  TurnInterrupted,
} from '../../../messages/facts'
import type { TrajectoryId } from '../../../messages/ids'
import { concatArrays } from '../../../runtime/concatArrays'
import { TroupeError } from '../../../runtime/errors'
import { contextDigest } from '../../../runtime/journal/contextDigest'
import type { Entry, Journal } from '../../../runtime/journal/journal'
import type { Generation } from '../engine'

export interface RecordedTurn {
  readonly trajectory: TrajectoryId
  readonly turn: number
  readonly seed: number
  readonly partition: number
  /**
   * Log offset of the fact with the tokens that were rendered right before the turn: rollout.requested (the prompt) for
   * turn 0, else context.appended.
   */
  readonly before: number
  /**
   * Log offsets of the turn's turn.interrupted facts with tokens; for a completed turn, that of turn.completed comes
   * last.
   */
  readonly parts: readonly number[]
  readonly isComplete: boolean
}

export interface RecordedBody extends Pick<Generation, 'tokens' | 'logprobs' | 'entropies' | 'segments' | 'text'> {
  readonly finish: 'stop' | 'length'
  readonly cachedTokens: number
  readonly preemptions: number
  /** Milliseconds from the queueing of the completing attempt's request to its first token. */
  readonly firstMs: number
  /** Mean milliseconds per token after the first, in the completing attempt. */
  readonly tokenMs: number
}

/** State of a trajectory's current turn while the log is read. */
interface Open {
  readonly turn: number
  readonly before: number
  attempt: number
  isOut: boolean
  digest: string
  seed: number
  parts: number[]
  isComplete: boolean
}

const newTurn = (turn: number, before: number): Open => ({
  ...{ turn, before, attempt: -1, isOut: false, digest: '', seed: 0, parts: [], isComplete: false },
})

export class RecordedTurns {
  /** Completed turns by the bytes of their context's digest, which take half the memory of hex. */
  readonly #byContext = new Map<string, RecordedTurn | RecordedTurn[]>()
  readonly #byTrajectory = new Map<TrajectoryId, RecordedTurn[]>()
  #completed = 0

  private constructor(private readonly journal: Journal) {}

  /** Reads all turns that the log holds at this time. */
  static async of(journal: Journal): Promise<RecordedTurns> {
    const turns = new RecordedTurns(journal)
    const partitions = await journal.partitionsOf('trajectories')
    for (let partition = 0; partition < partitions; partition++) await turns.#read(partition)
    return turns
  }

  get run(): string {
    return this.journal.run
  }

  /** Number of completed turns. */
  get size(): number {
    return this.#completed
  }

  get trajectories(): IterableIterator<TrajectoryId> {
    return this.#byTrajectory.keys()
  }

  /**
   * Returns the completed turns with this context: partition by partition, in the order in which they were completed.
   */
  withContext(context: Int32Array): readonly RecordedTurn[] {
    const found = this.#byContext.get(keyOf(contextDigest(context)))
    if (found === undefined) return []
    return Array.isArray(found) ? found : [found]
  }

  /** Returns the turns of a trajectory, including those that were never completed. */
  ofTrajectory(trajectory: TrajectoryId): readonly RecordedTurn[] {
    return this.#byTrajectory.get(trajectory) ?? []
  }

  /**
   * Reads a completed turn's answer from the log. @throws TroupeError engine.failed if the log no longer holds its
   * records
   */
  async body({ partition, parts }: RecordedTurn): Promise<RecordedBody> {
    const read: (TurnInterrupted | TurnCompleted)[] = []
    for (const offset of parts) read.push((await this.#at(partition, offset)) as TurnInterrupted | TurnCompleted)
    const last = read.at(-1) as TurnCompleted
    const { text, finish, cachedTokens, preemptions, timing } = last
    const { queuedAt, firstTokenAt, endedAt } = timing
    const [only] = read
    const own =
      read.length === 1
        ? { tokens: only!.tokens, logprobs: only!.logprobs, segments: only!.segments }
        : {
            tokens: concatArrays(
              Int32Array,
              read.map(part => part.tokens),
            ),
            logprobs: concatArrays(
              Float32Array,
              read.map(part => part.logprobs),
            ),
            segments: joinedSegments(read),
          }
    const entropies = read.flatMap(part => part.entropies ?? [])
    return {
      ...own,
      ...(entropies.length < read.length ? {} : { entropies: concatArrays(Float32Array, entropies) }),
      ...{ text, finish, cachedTokens, preemptions },
      firstMs: Math.max(0, firstTokenAt - queuedAt),
      tokenMs: Math.max(0, endedAt - firstTokenAt) / Math.max(1, last.tokens.length - 1),
    }
  }

  /**
   * Reads the tokens that were rendered right before a turn (for turn 0: the prompt), and the tokens that the model
   * sampled in it.
   */
  async tokensAround({ partition, before, parts }: RecordedTurn) {
    const rendered = (await this.#at(partition, before)) as RolloutRequested | ContextAppended
    const sampled: Int32Array[] = []
    for (const offset of parts) sampled.push(((await this.#at(partition, offset)) as TurnCompleted).tokens)
    return { rendered: rendered.tokens, sampled: concatArrays(Int32Array, sampled) }
  }

  async #at(partition: number, offset: number): Promise<Entry['message']> {
    const [entry] = await this.journal.read('trajectories', partition, offset, 1)
    if (entry?.offset === offset) return entry.message
    const message = `the record trajectories:${partition}:${offset} of the recorded run '${this.run}' can no longer be read`
    throw new TroupeError('engine.failed', { boundary: 'engine', retriable: false, message })
  }

  async #read(partition: number): Promise<void> {
    const { oldest, next } = await this.journal.offsets('trajectories', partition)
    const open = new Map<TrajectoryId, Open>()
    let epoch = -1
    for await (const entries of this.journal.readTo('trajectories', partition, oldest, next)) {
      for (const { message, offset } of entries) {
        if (message.type === 'partition.claimed') epoch = offset
        else this.#take(open, epoch, { message, offset, partition })
      }
    }
    for (const [trajectory, one] of open) this.#unfinished(trajectory, one, partition)
  }

  /**
   * Updates the trajectory's open turn by one fact, by the coordinator's rules: a message of a partition owner that
   * was replaced, and an answer to an older attempt, change nothing.
   */
  #take(
    open: Map<TrajectoryId, Open>,
    epoch: number,
    { message, offset, partition }: Pick<Entry, 'message' | 'offset' | 'partition'>,
  ): void {
    if (!('trajectory' in message)) return
    const { trajectory } = message
    const one = open.get(trajectory)
    if (message.type === 'rollout.requested') {
      if (one === undefined && !this.#byTrajectory.has(trajectory)) open.set(trajectory, newTurn(0, offset))
      return
    }
    if (one === undefined || ('epoch' in message && message.epoch < epoch)) return
    switch (message.type) {
      case 'turn.asked':
        if (message.turn !== one.turn || message.attempt <= one.attempt || one.isComplete) return
        one.attempt = message.attempt
        one.isOut = true
        if (one.parts.length > 0) return
        one.digest = message.contextDigest
        one.seed = message.seed
        return
      case 'turn.interrupted':
      case 'turn.completed':
        if (!one.isOut || message.turn !== one.turn || message.attempt !== one.attempt) return
        one.isOut = false
        if (message.type === 'turn.completed') {
          one.parts.push(offset)
          one.isComplete = true
          this.#add(trajectory, one, partition)
        } else if (message.tokens.length > 0) one.parts.push(offset)
        return
      case 'context.appended':
        if (one.isComplete && message.turn === one.turn) open.set(trajectory, newTurn(one.turn + 1, offset))
        return
      case 'rollout.finished':
        open.delete(trajectory)
        this.#unfinished(trajectory, one, partition)
    }
  }

  #unfinished(trajectory: TrajectoryId, one: Open, partition: number): void {
    if (!one.isComplete) this.#add(trajectory, one, partition)
  }

  #add(trajectory: TrajectoryId, { turn, seed, before, parts, digest, isComplete }: Open, partition: number): void {
    const added = { trajectory, turn, seed, partition, before, parts, isComplete }
    const own = this.#byTrajectory.get(trajectory)
    if (own === undefined) this.#byTrajectory.set(trajectory, [added])
    else own.push(added)
    if (!isComplete) return
    this.#completed++
    const key = keyOf(digest)
    const same = this.#byContext.get(key)
    if (same === undefined) this.#byContext.set(key, added)
    else if (Array.isArray(same)) same.push(added)
    else this.#byContext.set(key, [same, added])
  }
}

/** Converts a hex digest to a map key with one character per byte, which takes half the memory of hex. */
const keyOf = (digest: string) => Buffer.from(digest, 'hex').toString('latin1')

/**
 * Joins the segments of a turn's attempts. Positions in the input count from the attempt's first token, in the result
 * from the turn's. If an attempt begins under the policy version of the previous attempt's last token, the two segments
 * become one.
 */
function joinedSegments(parts: readonly (TurnInterrupted | TurnCompleted)[]): Generation['segments'] {
  const whole: PolicySegment[] = []
  let begin = 0
  for (const { segments, tokens } of parts) {
    for (const { policyVersion, start, end } of segments) {
      const last = whole.at(-1)
      if (last?.policyVersion === policyVersion) whole[whole.length - 1] = { ...last, end: end + begin }
      else whole.push({ policyVersion, start: start + begin, end: end + begin })
    }
    begin += tokens.length
  }
  return whole
}
