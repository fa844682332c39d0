/**
 * Dispatcher: gives tool calls to the executors that have free slots (room for a call).
 *
 * in   tool.execute, tool.cancel; executor.slots, tools.ended; ticks        out  tools.assign, alarm.raised
 * Invariant: calls are assigned to an executor only while it holds fewer calls (leased or reported) than it offers
 * slots. A call stays assigned until its executor reports the call's end; if no report names the call for `leaseMs`,
 * its lease ends and it is assigned again, to any executor. A call that a leaving executor (one that offers 0 slots)
 * does not report is assigned again at once. A late second answer does no harm, since the coordinator takes one answer
 * per attempt. The state is soft: executors report every second which slots they offer and which calls they hold, and
 * coordinators ask again for lost calls. The state object holds queues that change in place.
 */
import { FairQueue } from '../../kernels'
import type { CancelTools, Command, EndTools, ExecuteTool, OfferSlots } from '../../messages/commands'
import type { ExecutorId } from '../../messages/ids'
import type { Effects } from '../../runtime/effects'
import { type Decision, nothing, type Reactive } from '../../runtime/host/behaviour'
import { argumentBytes } from './argumentBytes'
import { assignCommands } from './assignCommands'
import { EndedCalls } from './endedCalls'
import { LeaseClock } from './leaseClock'
import { toolKey } from './toolPort'

export interface DispatcherOptions {
  /**
   * Time in ms after which an executor without a report, or a call that no report names, counts as lost. Default: 5000.
   */
  readonly leaseMs?: number
  /** Upper bound on the waiting calls; a call that would exceed it is dropped. Default: 65,536. */
  readonly maxWaiting?: number
  /** Upper bound on the bytes of waiting calls' arguments; a call that would exceed it is dropped. Default: 256 MiB. */
  readonly maxWaitingBytes?: number
  /** Time in ms that the first call for a tool which no executor offers waits before an alarm. Default: 30,000. */
  readonly unservedMs?: number
}

interface Call {
  ask: ExecuteTool
  readonly bytes: number
  /** Time at which the call's wait began, on the dispatcher's clock; undefined while an executor has the call. */
  waitsSince: number | undefined
}

interface Executor {
  readonly id: ExecutorId
  readonly incarnation: string
  slots: number
  tools: ReadonlySet<string>
  heardAt: number
  /** Leases of the calls that this executor holds, by the key of the assigned attempt. */
  readonly leases: Map<string, { readonly call: Call; until: number }>
  /** Keys of calls that the executor reports but this dispatcher does not know (an earlier one assigned them). */
  foreign: Set<string>
}

export interface DispatcherState {
  /** Waiting calls by tool; the tools are served in the map's order. No queue is empty. */
  readonly queues: Map<string, FairQueue<Call>>
  /** Open calls under their latest attempt, by trajectory, turn and index of the call. */
  readonly calls: Map<string, Call>
  /** Calls that have ended lately, so that a late repetition of their request is ignored. */
  readonly ended: EndedCalls
  readonly executors: Map<string, Executor>
  /** Clock of running time: a suspended dispatcher receives no reports, so leases must not expire meanwhile. */
  readonly clock: LeaseClock
  waiting: number
  waitingBytes: number
  /** Number of calls that were dropped because too many calls, or too many bytes, waited. */
  refused: number
  /** Tools that no executor offers and for which an alarm was raised. */
  readonly unserved: Set<string>
}

type DispatcherInput = ExecuteTool | CancelTools | OfferSlots | EndTools

const defaults = { leaseMs: 5000, maxWaiting: 65_536, maxWaitingBytes: 256 * 1024 * 1024, unservedMs: 30_000 }
/** `lingerMs` of a dispatcher's host, in ms: the host handles inputs together that arrive within this time. */
export const DISPATCH_LINGER_MS = 5

export function dispatcher(options: DispatcherOptions = {}): Reactive<DispatcherState, DispatcherInput> {
  const limits = { ...defaults, ...options }
  return {
    name: 'dispatcher',
    initial: () => ({
      queues: new Map(),
      calls: new Map(),
      ended: new EndedCalls(),
      executors: new Map(),
      // At most a quarter of a lease passes per input: the first after a suspension must not drop every executor.
      clock: new LeaseClock(limits.leaseMs / 4),
      waiting: 0,
      waitingBytes: 0,
      refused: 0,
      unserved: new Set(),
    }),
    evolve: state => state,
    decide(state, input, fx) {
      state.clock.input(fx, input.type !== 'tick')
      switch (input.type) {
        case 'tool.execute':
          take(state, input, limits)
          break
        case 'tool.cancel':
          cancel(state, input)
          break
        case 'executor.slots':
          hear(state, input, limits.leaseMs)
          break
        case 'tools.ended':
          end(state, input)
          break
        case 'tick':
          state.clock.settle()
          lapse(state, limits.leaseMs)
          return { facts: alarms(state, fx, limits.unservedMs), commands: assign(state, limits.leaseMs) }
      }
      return nothing
    },
    // Runs once after all calls and ends that came together, so that most executors get several calls in one command.
    settle(state) {
      state.clock.settle()
      return { facts: [], commands: assign(state, limits.leaseMs) }
    },
    pending: () => nothing,
  }
}

const placeOf = (ask: ExecuteTool) => `${ask.trajectory}#${ask.turn}#${ask.call}`

function take(state: DispatcherState, ask: ExecuteTool, limits: typeof defaults): void {
  if (state.ended.has(toolKey(ask), state.clock.now)) return
  const known = state.calls.get(placeOf(ask))
  if (known !== undefined) {
    // The request was made twice, or belongs to an earlier attempt.
    if (ask.attempt <= known.ask.attempt) return
    if (known.waitsSince !== undefined) {
      known.ask = ask // the call keeps its position in the queue
      return
    }
    // An executor runs an older attempt, whose answer will be ignored; so the new attempt is queued as well.
  }
  const bytes = argumentBytes(ask.arguments)
  if (state.waiting >= limits.maxWaiting || state.waitingBytes + bytes > limits.maxWaitingBytes) {
    state.refused++
    return
  }
  const call: Call = { ask, bytes, waitsSince: undefined }
  state.calls.set(placeOf(ask), call)
  enqueue(state, call, queue => queue.push(ask.trajectory, call))
}

function enqueue(state: DispatcherState, call: Call, put: (queue: FairQueue<Call>) => void): void {
  const { tool } = call.ask
  const queue = state.queues.get(tool) ?? new FairQueue<Call>()
  state.queues.set(tool, queue)
  put(queue)
  call.waitsSince = state.clock.now
  state.waiting++
  state.waitingBytes += call.bytes
}

/** Updates the totals after a call was removed from its queue. */
function dequeued(state: DispatcherState, call: Call): void {
  call.waitsSince = undefined
  state.waiting--
  state.waitingBytes -= call.bytes
  if (state.queues.get(call.ask.tool)?.size === 0) state.queues.delete(call.ask.tool)
}

/** Removes the call with this key from its queue and returns it; undefined if it is not waiting. */
function unqueue(state: DispatcherState, key: string): Call | undefined {
  const call = state.calls.get(key.slice(0, key.lastIndexOf('#')))
  if (call?.waitsSince === undefined || toolKey(call.ask) !== key) return undefined
  state.queues.get(call.ask.tool)?.remove(call.ask.trajectory, call)
  dequeued(state, call)
  return call
}

function forget(state: DispatcherState, call: Call): void {
  if (state.calls.get(placeOf(call.ask)) === call) state.calls.delete(placeOf(call.ask))
}

function cancel(state: DispatcherState, { trajectory }: CancelTools): void {
  for (const queue of [...state.queues.values()]) {
    for (const call of queue.clear(trajectory)) {
      dequeued(state, call)
      forget(state, call)
    }
  }
}

function hear(state: DispatcherState, offer: OfferSlots, leaseMs: number): void {
  const name = nameOf(offer)
  const now = state.clock.leaseNow
  let executor = state.executors.get(name)
  if (executor === undefined) {
    if (offer.slots === 0 && offer.held.length === 0) return
    const { executor: id, incarnation } = offer
    executor = { id, incarnation, slots: 0, tools: new Set(), heardAt: now, leases: new Map(), foreign: new Set() }
    state.executors.set(name, executor)
  }
  executor.heardAt = now
  executor.slots = offer.slots
  executor.tools = new Set(offer.tools)
  const { leases } = executor
  executor.foreign = new Set()
  for (const key of offer.held) {
    // A call whose lease had ended may be queued again; while this executor holds it, no other may run it.
    const call = leases.get(key)?.call ?? unqueue(state, key)
    if (call === undefined) executor.foreign.add(key)
    else leases.set(key, { call, until: now + leaseMs })
  }
  if (offer.slots > 0) return
  // The executor has left: a call that it does not hold now will never reach it.
  const held = new Set(offer.held)
  for (const key of [...leases.keys()]) if (!held.has(key)) reclaim(state, executor, key)
  if (leases.size === 0) state.executors.delete(name)
}

function end(state: DispatcherState, { calls, slots, ...from }: EndTools): void {
  const executor = state.executors.get(nameOf(from))
  if (executor !== undefined && executor.slots > 0) executor.slots = slots
  for (const key of calls) {
    state.ended.add(key, state.clock.now)
    const lease = executor?.leases.get(key)
    executor?.leases.delete(key)
    executor?.foreign.delete(key)
    if (lease !== undefined) {
      forget(state, lease.call)
      continue
    }
    // The call's lease had ended. If the call waits to run again, it is taken out of the queue.
    const call = unqueue(state, key)
    if (call !== undefined) forget(state, call)
  }
  if (executor?.slots === 0 && executor.leases.size === 0) state.executors.delete(nameOf(from))
}

function lapse(state: DispatcherState, leaseMs: number): void {
  const now = state.clock.leaseNow
  for (const [name, executor] of state.executors) {
    const gone = now - executor.heardAt > leaseMs
    for (const [key, { until }] of executor.leases) if (gone || now > until) reclaim(state, executor, key)
    if (gone) state.executors.delete(name)
  }
}

/** Takes a call back from its executor and puts it first in its queue, unless a newer attempt has replaced it. */
function reclaim(state: DispatcherState, executor: Executor, key: string): void {
  const lease = executor.leases.get(key)
  executor.leases.delete(key)
  if (lease === undefined || state.calls.get(placeOf(lease.call.ask)) !== lease.call) return
  // A returned call ignores the bounds on waiting calls: it was accepted before, and slots bound the assigned calls.
  enqueue(state, lease.call, queue => queue.pushFirst(lease.call.ask.trajectory, lease.call))
}

const free = (executor: Executor) => executor.slots - executor.leases.size - executor.foreign.size
const load = (executor: Executor) => (executor.leases.size + executor.foreign.size) / executor.slots

/** Assigns each waiting call to the executor with a free slot that has the smallest share of its slots in use. */
function assign(state: DispatcherState, leaseMs: number): readonly Command[] {
  if (state.waiting === 0) return []
  const open = [...state.executors.values()].filter(executor => free(executor) > 0)
  const given = new Map<Executor, Call[]>()
  while (open.length > 0 && state.waiting > 0) {
    const executor = open.reduce((best, other) => (load(other) < load(best) ? other : best))
    const call = next(state, executor)
    if (call !== undefined) {
      executor.leases.set(toolKey(call.ask), { call, until: state.clock.leaseNow + leaseMs })
      const calls = given.get(executor)
      if (calls === undefined) given.set(executor, [call])
      else calls.push(call)
    }
    if (call === undefined || free(executor) <= 0) open.splice(open.indexOf(executor), 1)
  }
  return [...given].flatMap(([executor, calls]) => assignCommands(executor, calls))
}

/** Takes a waiting call, for a tool that the executor offers, out of its queue and returns it; the tools take turns. */
function next(state: DispatcherState, executor: Executor): Call | undefined {
  for (const [tool, queue] of state.queues) {
    if (!executor.tools.has(tool)) continue
    const call = queue.take()
    state.queues.delete(tool)
    state.queues.set(tool, queue)
    if (call !== undefined) dequeued(state, call)
    return call
  }
  return undefined
}

/**
 * Raises an alarm once for each tool that no executor offers and whose first call has waited `unservedMs` or more;
 * again only after an executor offered the tool or no call waited for it.
 */
function alarms(state: DispatcherState, fx: Effects, unservedMs: number): Decision['facts'] {
  const offered = new Set([...state.executors.values()].flatMap(({ slots, tools }) => (slots > 0 ? [...tools] : [])))
  for (const tool of state.unserved) if (offered.has(tool) || !state.queues.has(tool)) state.unserved.delete(tool)
  const now = state.clock.now
  const lacking = [...state.queues].filter(
    ([tool, queue]) =>
      !offered.has(tool) && !state.unserved.has(tool) && now - (queue.peek()?.waitsSince ?? now) >= unservedMs,
  )
  return lacking.map(([tool, queue]) => {
    state.unserved.add(tool)
    const message = `no executor offers the tool '${tool}', for which ${queue.size} calls wait`
    return { type: 'alarm.raised', at: fx.now(), alarm: 'tools-unserved', message }
  })
}

const nameOf = ({ executor, incarnation }: { readonly executor: ExecutorId; readonly incarnation: string }) =>
  `${executor} ${incarnation}`
