/**
 * Worker slots of one tool executor among several, and its reports to the dispatcher.
 *
 * in   calls from the inbox        out  tool.completed and tools.ended in one append; executor.slots
 * Invariant: at most `lanes` (the number of worker slots) calls run at once, and at most the offered slots are held
 * (plus one batch, should two dispatchers overlap). A call beyond that is dropped, and its lease ends; so does the
 * lease of a call that cannot be run at all. No call begins after `leave`.
 */
import type { ExecuteTool, OfferSlots } from '../../messages/commands'
import type { ExecutorId, RunId } from '../../messages/ids'
import type { Effects } from '../../runtime/effects'
import type { Port } from '../../runtime/host/host'
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
   * Milliseconds from the end of a call to the arrival of the next one in its slot: the way to the dispatcher and back.
   * The executor asks in advance for the calls that its workers finish in this time. Default: 5.
   */
  readonly turnaroundMs?: number
}

export interface ExecutorPort {
  readonly perform: Port<ExecutorRequest>
  /** Starts no further call; returns the final report: no free slots, and the calls that still run. */
  leave(): OfferSlots
}

/** Upper bound on the calls that the executor asks for beyond its number of workers. */
const maxAhead = 64
const maxOverlap = 64
/** EWMA weight of the latest call's duration. */
const newest = 0.1

export const executorKey = (request: ExecutorRequest): string =>
  request.kind === 'offer' ? 'offer' : toolKey(request.ask)

export function executorPort(options: ExecutorPortOptions): ExecutorPort {
  const { id: executor, incarnation, lanes, tools, fx, turnaroundMs = 5 } = options
  const run = toolPort(tools, executor, fx, options.run)
  const held = new Set<string>()
  /**
   * Calls that wait for a worker, oldest first. The function is called with true when the call may begin, with false
   * when the executor leaves first.
   */
  const waiting = new Map<string, (begins: boolean) => void>()
  let running = 0
  let meanMs: number | undefined
  let leaving = false

  const slots = () => {
    if (leaving) return 0
    // Little's law: number of calls that the workers finish while the next call for a free slot is on its way.
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
      const decision = await run(ask, signal)
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
