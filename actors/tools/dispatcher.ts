/**
 * Dispatcher: gives tool calls to the executors that have slots for them (DESIGN §7).
 *
 * in   tool.execute, tool.cancel from coordinators; executor.slots, tools.ended from executors        out  tools.assign
 * Invariant: an executor never holds more calls than it has offered slots, as far as its leases tell; a call that is
 * taken is assigned until an executor says that it ended, and again, elsewhere, when the lease of whoever held it ends.
 * An answer that comes after that counts at most once, since the coordinator takes one answer to an attempt.
 * What it knows is soft: executors say every second what they offer and hold, coordinators ask again for what is lost.
 * A state is a view of queues that change in place, not a value of its own.
 */
import { FairQueue } from '../../kernels'
import type { CancelTools, Command, EndTools, ExecuteTool, OfferSlots } from '../../messages/commands'
import type { ExecutorId } from '../../messages/ids'
import { Awake } from '../../runtime/activeClock'
import type { Effects } from '../../runtime/effects'
import { type Decision, nothing, type Reactive } from '../../runtime/host/behaviour'
import { argumentBytes } from './argumentBytes'
import { toolKey } from './toolPort'

export interface DispatcherOptions {
  /** An executor that is not heard of for this long is gone, and so is a call that it does not say it holds. */
  readonly leaseMs?: number
  /** Calls that may wait. One more is not taken: its coordinator asks again for it. */
  readonly maxWaiting?: number
  /** Bytes of arguments that may wait, as text. */
  readonly maxWaitingBytes?: number
  /** A call for which there is no executor raises an alarm after this long. */
  readonly unservedMs?: number
}

interface Call {
  ask: ExecuteTool
  readonly bytes: number
  /** Since when it waits, on the dispatcher's clock; undefined while an executor has it. */
  waitsSince: number | undefined
}

interface Executor {
  readonly id: ExecutorId
  readonly incarnation: string
  slots: number
  tools: ReadonlySet<string>
  heardAt: number
  /** By key of the attempt that was assigned. */
  readonly leases: Map<string, { readonly call: Call; until: number }>
  /** What it holds that was assigned by a dispatcher before this one. */
  foreign: Set<string>
}

export interface DispatcherState {
  /** By tool, in the order in which tools are served. None is empty. */
  readonly queues: Map<string, FairQueue<Call>>
  /** The call of each place in a trajectory, under its latest attempt, until it has ended. */
  readonly calls: Map<string, Call>
  readonly executors: Map<string, Executor>
  /** Time in which this dispatcher was awake, ms: when it stood still it heard of nobody, and no lease ran out. */
  readonly clock: Awake
  waiting: number
  waitingBytes: number
  /** Calls that were not taken because too many waited. */
  refused: number
  /** Tools that nobody offers and that an alarm was raised for. */
  readonly unserved: Set<string>
}

type DispatcherInput = ExecuteTool | CancelTools | OfferSlots | EndTools

const defaults = { leaseMs: 5000, maxWaiting: 65_536, maxWaitingBytes: 256 * 1024 * 1024, unservedMs: 30_000 }
/** Of one command (DESIGN §7), and so many bytes of arguments, so that it fits into a record. */
const maxBatch = 64
const maxBatchBytes = 512 * 1024

export function dispatcher(options: DispatcherOptions = {}): Reactive<DispatcherState, DispatcherInput> {
  const limits = { ...defaults, ...options }
  return {
    name: 'dispatcher',
    initial: () => ({
      queues: new Map(),
      calls: new Map(),
      executors: new Map(),
      // A process that was stopped for a minute must not take every executor for dead that it could not hear.
      clock: new Awake(limits.leaseMs / 4),
      waiting: 0,
      waitingBytes: 0,
      refused: 0,
      unserved: new Set(),
    }),
    evolve: state => state,
    decide(state, input, fx) {
      state.clock.look(fx)
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
          lapse(state, limits.leaseMs)
          return { facts: alarms(state, fx, limits.unservedMs), commands: assign(state, limits.leaseMs) }
        default:
          return nothing
      }
      const commands = assign(state, limits.leaseMs)
      return commands.length === 0 ? nothing : { facts: [], commands }
    },
    pending: () => nothing,
  }
}

const placeOf = (ask: ExecuteTool) => `${ask.trajectory}#${ask.turn}#${ask.call}`

function take(state: DispatcherState, ask: ExecuteTool, limits: typeof defaults): void {
  const known = state.calls.get(placeOf(ask))
  if (known !== undefined) {
    // Delivered again, or a stray of an attempt before.
    if (ask.attempt <= known.ask.attempt) return
    if (known.waitsSince !== undefined) {
      known.ask = ask // it keeps its place in the queue
      return
    }
    // Somebody has an older attempt, whose answer will not be taken any more.
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

/** The queue has let go of the call already. */
function dequeued(state: DispatcherState, call: Call): void {
  call.waitsSince = undefined
  state.waiting--
  state.waitingBytes -= call.bytes
  if (state.queues.get(call.ask.tool)?.size === 0) state.queues.delete(call.ask.tool)
}

/** The call with this key, taken out of its queue; undefined where none waits. */
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
  const { now } = state.clock
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
    // It was not heard of for a while, and still has what waits to be made by somebody else.
    const call = leases.get(key)?.call ?? unqueue(state, key)
    if (call === undefined) executor.foreign.add(key)
    else leases.set(key, { call, until: now + leaseMs })
  }
  if (offer.slots > 0) return
  // It has stopped listening: what it does not hold now it will never have.
  const held = new Set(offer.held)
  for (const key of [...leases.keys()]) if (!held.has(key)) reclaim(state, executor, key)
  if (leases.size === 0) state.executors.delete(name)
}

function end(state: DispatcherState, { calls, slots, ...from }: EndTools): void {
  const executor = state.executors.get(nameOf(from))
  if (executor !== undefined && executor.slots > 0) executor.slots = slots
  for (const key of calls) {
    const lease = executor?.leases.get(key)
    executor?.leases.delete(key)
    executor?.foreign.delete(key)
    if (lease !== undefined) {
      forget(state, lease.call)
      continue
    }
    // Its lease had ended. Where the call waits to be made again, that is not needed any more.
    const call = unqueue(state, key)
    if (call !== undefined) forget(state, call)
  }
  if (executor?.slots === 0 && executor.leases.size === 0) state.executors.delete(nameOf(from))
}

function lapse(state: DispatcherState, leaseMs: number): void {
  const { now } = state.clock
  for (const [name, executor] of state.executors) {
    const gone = now - executor.heardAt > leaseMs
    for (const [key, { until }] of executor.leases) if (gone || now > until) reclaim(state, executor, key)
    if (gone) state.executors.delete(name)
  }
}

/** Takes a call back from its executor. One that was asked for again meanwhile is in the queue already. */
function reclaim(state: DispatcherState, executor: Executor, key: string): void {
  const lease = executor.leases.get(key)
  executor.leases.delete(key)
  if (lease === undefined || state.calls.get(placeOf(lease.call.ask)) !== lease.call) return
  // Not bounded by `maxWaiting`: it was taken, and what executors hold is bounded by their slots.
  enqueue(state, lease.call, queue => queue.pushFirst(lease.call.ask.trajectory, lease.call))
}

const free = (executor: Executor) => executor.slots - executor.leases.size - executor.foreign.size
const load = (executor: Executor) => (executor.leases.size + executor.foreign.size) / executor.slots

/** Each call to the executor of least load, so that those with more slots get more and all end at the same time. */
function assign(state: DispatcherState, leaseMs: number): readonly Command[] {
  if (state.waiting === 0) return []
  const open = [...state.executors.values()].filter(executor => free(executor) > 0)
  const given = new Map<Executor, Call[]>()
  while (open.length > 0 && state.waiting > 0) {
    const executor = open.reduce((best, other) => (load(other) < load(best) ? other : best))
    const call = next(state, executor)
    if (call !== undefined) {
      executor.leases.set(toolKey(call.ask), { call, until: state.clock.now + leaseMs })
      const calls = given.get(executor)
      if (calls === undefined) given.set(executor, [call])
      else calls.push(call)
    }
    if (call === undefined || free(executor) <= 0) open.splice(open.indexOf(executor), 1)
  }
  return [...given].flatMap(([executor, calls]) => batches(executor, calls))
}

/** The next call of a tool that the executor has; tools are served in turn. */
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

function batches({ id, incarnation }: Executor, calls: readonly Call[]): Command[] {
  const commands: Command[] = []
  let batch: ExecuteTool[] = []
  let bytes = 0
  for (const call of calls) {
    if (batch.length >= maxBatch || (batch.length > 0 && bytes + call.bytes > maxBatchBytes)) {
      commands.push({ type: 'tools.assign', executor: id, incarnation, calls: batch })
      batch = []
      bytes = 0
    }
    batch.push(call.ask)
    bytes += call.bytes
  }
  commands.push({ type: 'tools.assign', executor: id, incarnation, calls: batch })
  return commands
}

/** Once for each tool that has calls and no executor, and again when that was mended and comes back. */
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
