/**
 * Runs the tool calls of one executor on its worker slots, and reports its slots and calls to the dispatcher.
 *
 * in   calls from the inbox        out  tool.completed and tools.ended in one append; executor.slots
 * Invariant: at most `lanes` (the number of workers) calls run at once. At most lanes + 128 calls are held, running or
 * waiting: 64 that are asked for in advance, and 64 in case two dispatchers overlap. A further call is dropped without
 * an answer, so its lease at the dispatcher ends; so does the lease of a call for which the machine had no memory. No
 * call begins after `leave`.
 */
import type { ExecuteTool, OfferSlots, SandboxOffer } from '../../messages/commands'
import type { ExecutorId, RunId } from '../../messages/ids'
import type { Effects } from '../../runtime/effects'
import { TroupeError } from '../../runtime/errors'
import { nothing } from '../../runtime/host/behaviour'
import type { Port } from '../../runtime/host/host'
import { SandboxError } from '../../sandbox/errors'
import { batchAnswers } from './batchAnswers'
import type { ExecutorRequest } from './inboxExecutor'
import { type Tool, toolKey, toolPort } from './toolPort'

export interface Answering {
  readonly names: readonly string[]
  readonly perform: Port<ExecuteTool>
}

export interface ExecutorPortOptions {
  readonly id: ExecutorId
  readonly incarnation: string
  readonly lanes: number
  /** Tools by name, or the names of tools whose calls `perform` answers by itself. */
  readonly tools: ReadonlyMap<string, Tool> | Answering
  /** Sandbox that the executor offers to a judge. */
  readonly sandbox?: SandboxOffer
  readonly fx: Effects
  /** Run whose id becomes part of idempotency keys. */
  readonly run?: RunId
  /**
   * Expected time in ms from the report of a call's end to the arrival of the next call: the way to the dispatcher and
   * back. The executor offers one slot per worker. It also offers up to 64 slots for the calls that its workers end on
   * average within this time plus 50 ms (the longest time for which it gathers ended calls into one report), so that
   * the next calls already wait here.
   * Default: 20.
   */
  readonly turnaroundMs?: number
}

export interface ExecutorPort {
  readonly perform: Port<ExecutorRequest>
  /**
   * Ends the executor's work: no further call is accepted or begun. Returns the final report: no free slots, and the
   * calls that still run or whose answers are not yet in the log.
   */
  leave(): OfferSlots
}

/** Upper bound on the slots that the executor offers beyond its number of workers. */
const maxAhead = 64
/** Number of calls beyond its slots that the executor holds: two dispatchers that overlap may assign too many. */
const maxOverlap = 64
/**
 * A call for which the machine had no memory is not answered, since that says nothing about its code: its lease at the
 * dispatcher ends, and it is assigned again, here or elsewhere.
 */
function unanswered(thrown: unknown): undefined {
  if (thrown instanceof SandboxError && thrown.code === 'sandbox.out_of_memory') return undefined
  throw thrown
}

/**
 * Bounds on the time in ms within which the ends of calls are recorded together; workers do not wait for it. An append
 * costs more than a call's result does, so the time is longer while the workers have calls that wait here.
 */
const minWindowMs = 10
const maxWindowMs = 50

/** EWMA weight of the latest call's duration in `meanMs`. */
const newest = 0.1

export function executorKey(request: ExecutorRequest): string {
  switch (request.kind) {
    case 'run':
      return toolKey(request.ask)
    case 'abort':
      return `abort ${request.calls.join(' ')}`
    default:
      return request.kind
  }
}

const otherEnvironment = (reason: string) =>
  new TroupeError('config.other_environment', {
    boundary: 'config',
    retriable: false,
    message: `this executor was refused: ${reason}`,
    hint: 'give all executors the same --python, --packages and set-up; to change it, end all of them first',
  })

export function executorPort(options: ExecutorPortOptions): ExecutorPort {
  const { id: executor, incarnation, lanes, tools, fx, turnaroundMs = 20 } = options
  const run = 'perform' in tools ? tools.perform : toolPort(tools, executor, fx, options.run)
  const names = 'perform' in tools ? tools.names : [...tools.keys()]
  /** Aborts running calls, by key. */
  const aborters = new Map<string, AbortController>()
  /** Calls that wait for a worker, run, or have ended but are not yet reported: their answers are not in the log. */
  const held = new Set<string>()
  /**
   * Calls that wait for a worker, by key, oldest first. The function is called with true when the call may begin, with
   * false when the executor leaves before that.
   */
  const waiting = new Map<string, (begins: boolean) => void>()
  let running = 0
  let meanMs: number | undefined
  let leaving = false

  /** Mean time in ms between two ends of calls while all workers are busy. */
  const callMs = () => Math.max(meanMs ?? 0, 0.1) / lanes
  /**
   * Time in ms within which the ends of calls are recorded together: as long as the calls that wait here keep the
   * workers busy until the next report brings new calls, but at least 10 and at most 50 ms.
   */
  const windowMs = () => Math.min(maxWindowMs, Math.max(minWindowMs, waiting.size * callMs() - turnaroundMs))
  const slots = () => {
    if (leaving) return 0
    // Little's law: mean number of calls that the workers end until a new call arrives.
    const ahead = meanMs === undefined ? 0 : Math.round((turnaroundMs + maxWindowMs) / callMs())
    return lanes + Math.min(ahead, maxAhead)
  }
  const offer = (): OfferSlots => ({
    type: 'executor.slots',
    executor,
    incarnation,
    slots: slots(),
    tools: names,
    held: [...held],
    ...(options.sandbox === undefined ? {} : { sandbox: options.sandbox }),
  })
  const ended = (calls: readonly string[]) =>
    ({ type: 'tools.ended', executor, incarnation, slots: slots(), calls }) as const
  const batched = batchAnswers(windowMs, keys => {
    for (const key of keys) held.delete(key)
    return ended(keys)
  })

  /** Waits for a free worker; resolves with false if the executor leaves before one is free. */
  async function lane(key: string): Promise<boolean> {
    if (running >= lanes) return new Promise(resolve => waiting.set(key, resolve))
    running++
    return true
  }

  /** Gives the free worker directly to the call that has waited longest, so that a new call cannot overtake it. */
  function freeLane(): void {
    for (const [key, begin] of waiting) {
      waiting.delete(key)
      begin(true)
      return
    }
    running--
  }

  /** Runs a call once a worker is free. Resolves with undefined if the call is not answered here. */
  async function inLane(ask: ExecuteTool, key: string, closing: AbortSignal): ReturnType<Port<ExecutorRequest>> {
    if (!(await lane(key))) return undefined
    const begun = fx.elapsed()
    const aborter = new AbortController()
    const abort = () => aborter.abort(closing.reason)
    closing.addEventListener('abort', abort)
    aborters.set(key, aborter)
    try {
      closing.throwIfAborted()
      const decision = await run(ask, aborter.signal).catch(thrown => {
        if (aborter.signal.aborted && !closing.aborted) return nothing
        return unanswered(thrown)
      })
      const tookMs = fx.elapsed() - begun
      meanMs = meanMs === undefined ? tookMs : meanMs + newest * (tookMs - meanMs)
      if (decision === undefined) return undefined
      return decision
    } finally {
      closing.removeEventListener('abort', abort)
      aborters.delete(key)
      freeLane()
    }
  }

  /**
   * Ends calls without an answer: aborts those that run, whose ends are reported later, and drops those that wait.
   * Returns the keys of the dropped ones.
   */
  function abort(calls: readonly string[]): readonly string[] {
    for (const key of calls) aborters.get(key)?.abort()
    const begins = calls.flatMap(key => waiting.get(key) ?? [])
    const notBegun = calls.filter(key => waiting.delete(key))
    for (const key of notBegun) held.delete(key)
    for (const begin of begins) begin(false)
    return notBegun
  }

  return {
    async perform(request, signal) {
      switch (request.kind) {
        case 'offer':
          return { facts: [], commands: [offer()] }
        case 'refused':
          throw otherEnvironment(request.reason)
        case 'abort': {
          const notBegun = abort(request.calls)
          return notBegun.length === 0 ? undefined : { facts: [], commands: [ended(notBegun)] }
        }
      }
      const key = toolKey(request.ask)
      if (leaving || held.has(key) || held.size >= lanes + maxAhead + maxOverlap) return undefined
      held.add(key)
      let answer: Awaited<ReturnType<typeof inLane>>
      try {
        answer = await inLane(request.ask, key, signal)
      } finally {
        if (answer === undefined) held.delete(key)
      }
      return answer && batched(answer, key)
    },
    leave() {
      leaving = true
      for (const [key, begin] of waiting) {
        held.delete(key)
        begin(false)
      }
      waiting.clear()
      return offer()
    },
  }
}
