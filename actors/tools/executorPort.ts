/**
 * Worker slots of one tool executor among several, and its reports to the dispatcher.
 *
 * in   calls from the inbox        out  tool.completed and tools.ended in one append; executor.slots
 * Invariant: at most `lanes` (the number of workers) calls run at once. At most lanes + 128 calls are held, running or
 * waiting: 64 that are asked for in advance, and 64 in case two dispatchers overlap. A call beyond that is dropped, and
 * its lease at the dispatcher ends; so does the lease of a call that cannot be run at all. No call begins after
 * `leave`.
 */
import type { ExecuteTool, OfferSlots } from '../../messages/commands'
import type { ExecutorId, RunId } from '../../messages/ids'
import type { Effects } from '../../runtime/effects'
import type { Port } from '../../runtime/host/host'
import { SandboxError } from '../../sandbox/errors'
import type { ExecutorRequest } from './inboxExecutor'
import { type Tool, toolKey, toolPort } from './toolPort'

export interface ExecutorPortOptions {
  readonly id: ExecutorId
  readonly incarnation: string
  readonly lanes: number
  readonly tools: ReadonlyMap<string, Tool>
  readonly fx: Effects
  /** Run whose id becomes part of idempotency keys. */
  readonly run?: RunId
  /**
   * Expected milliseconds from the end of a call to the arrival of the worker's next call: the way to the dispatcher
   * and back. The executor offers a slot more for each call that its workers end in that time on average, up to 64, so
   * that the next calls already wait here. Default: 5.
   */
  readonly turnaroundMs?: number
}

export interface ExecutorPort {
  readonly perform: Port<ExecutorRequest>
  /**
   * Ends the executor's work: no further call is accepted or begun. Returns the final report: no free slots, and the
   * calls that still run.
   */
  leave(): OfferSlots
}

/** Upper bound on the slots that the executor offers beyond its number of workers. */
const maxAhead = 64
const maxOverlap = 64
/**
 * A call for which the machine had no memory is not answered, since that says nothing about its code: its lease at the
 * dispatcher ends, and it is assigned again, here or elsewhere.
 */
function unanswered(thrown: unknown): undefined {
  if (thrown instanceof SandboxError && thrown.code === 'sandbox.out_of_memory') return undefined
  throw thrown
}

/** EWMA weight of the latest call's duration in `meanMs`. */
const newest = 0.1

export const executorKey = (request: ExecutorRequest): string =>
  request.kind === 'offer' ? 'offer' : toolKey(request.ask)

export function executorPort(options: ExecutorPortOptions): ExecutorPort {
  const { id: executor, incarnation, lanes, tools, fx, turnaroundMs = 5 } = options
  const run = toolPort(tools, executor, fx, options.run)
  const held = new Set<string>()
  /**
   * Calls that wait for a worker, by key, oldest first. The function is called with true when the call may begin, with
   * false when the executor leaves before that.
   */
  const waiting = new Map<string, (begins: boolean) => void>()
  let running = 0
  let meanMs: number | undefined
  let leaving = false

  const slots = () => {
    if (leaving) return 0
    // Little's law: mean number of calls that the workers end within `turnaroundMs`, the time in which a new call
    // arrives.
    const ahead = meanMs === undefined ? 0 : Math.round((lanes * turnaroundMs) / Math.max(meanMs, 0.1))
    return lanes + Math.min(ahead, maxAhead)
  }
  const offer = (): OfferSlots => ({
    type: 'executor.slots',
    executor,
    incarnation,
    slots: slots(),
    tools: [...tools.keys()],
    held: [...held],
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

  async function inLane(ask: ExecuteTool, signal: AbortSignal): ReturnType<Port<ExecutorRequest>> {
    if (!(await lane(toolKey(ask)))) return undefined
    const begun = fx.elapsed()
    try {
      signal.throwIfAborted()
      const decision = await run(ask, signal).catch(unanswered)
      const tookMs = fx.elapsed() - begun
      meanMs = meanMs === undefined ? tookMs : meanMs + newest * (tookMs - meanMs)
      if (decision === undefined) return undefined
      held.delete(toolKey(ask))
      const ended = { type: 'tools.ended', executor, incarnation, slots: slots(), calls: [toolKey(ask)] } as const
      return { facts: decision.facts, commands: [...decision.commands, ended] }
    } finally {
      freeLane()
    }
  }

  return {
    async perform(request, signal) {
      if (request.kind === 'offer') return { facts: [], commands: [offer()] }
      const key = toolKey(request.ask)
      if (leaving || held.has(key) || held.size >= lanes + maxAhead + maxOverlap) return undefined
      held.add(key)
      try {
        return await inLane(request.ask, signal)
      } finally {
        held.delete(key)
      }
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
