/**
 * The sandbox of levels `full` and `degraded`, and of `bare`. Zygotes (warm interpreters) fork a child per call.
 *
 * in   requests, at most lanes (calls that run) + queueLimit (calls that wait) at once
 * out  results, in the order in which calls end
 * Invariant: a call is answered once, after every process that it started is dead, except the paused process of a
 * session's cell. When a zygote dies, its calls that had begun are answered as killed, with the reason: their processes
 * are dead, since the kernel kills a zygote's children with it. Its calls that had not begun are sent again to any
 * zygote, until each was sent ATTEMPTS times; a cell that forks from a lost state is answered as orphan, and its
 * session is rebuilt.
 */
import { setMaxListeners } from 'node:events'
import { rmSync } from 'node:fs'
import { type Call, callOf } from '../limits'
import type { MemoryBudget } from '../memoryBudget'
import { aborted, closed, queueFull, rejected } from '../refusals'
import { MACHINE_OUT_OF_MEMORY, type RunRequest, type RunResult, type Sandbox, type SandboxLevel } from '../sandbox'
import { orphan } from '../sessions/outcome'
import { Sessions } from '../sessions/sessions'
import { stateBound } from '../sessions/stateBound'
import { Clients } from './clients'
import { controlFrame, type Reply, runFrame } from './frames'
import {
  callAborted,
  childFailed,
  type Job,
  killedWithZygote,
  newJob,
  type Outcome,
  outcomeOf,
  type Placed,
  startFailed,
} from './job'
import { ZygoteKinds } from './kinds'
import { ZygoteLink } from './link'
import { WaitingJobs } from './waitingJobs'
import type { ZygoteSetup } from './worker'

export interface PoolSetup {
  readonly level: SandboxLevel
  readonly lanes: number
  readonly queueLimit: number
  readonly sessionMemoryMb: number
  readonly budget: MemoryBudget
  /** Upper bound on the wait of a call for memory, ms, from the moment at which it has its turn. */
  readonly memoryWaitMs: number
  readonly noSessions: string | undefined
  /** For each kind (kind 0: without preloads), the setup of one zygote for each core. */
  readonly zygotes: readonly (readonly ZygoteSetup[])[]
  /** Preloads by which each kind is larger than the one before it, from kind 1 on. */
  readonly preloads: readonly (readonly string[])[]
  readonly workerFile: string
  /** Private directory of the sandbox; the pool removes it when it closes. */
  readonly base: string
}

/** Upper bound on the times that a call is sent to a zygote. */
const ATTEMPTS = 3
/** Error number of a failed call that was aborted before it began. */
const CANCELED = 125
/** Milliseconds after which the pool tries a call that waits for memory again. */
const MEMORY_LOOK_MS = 100
const GONE = 2 // error number of a failed call whose parent state is gone or cannot be used

export class ZygotePool implements Sandbox {
  readonly level: SandboxLevel
  readonly lanes: number
  readonly noSessions?: string
  readonly #kinds: ZygoteKinds
  readonly #waiting = new WaitingJobs()
  readonly #sessions: Sessions<ZygoteLink<Job>>
  readonly #removeBase = () => rmSync(this.setup.base, { recursive: true, force: true, maxRetries: 3 })
  #numbers = 0
  #running = 0
  #open = 0
  #closing: Promise<void> | undefined
  readonly #clients = new Clients()
  readonly #forgetBudget: () => void
  #again: NodeJS.Timeout | undefined
  constructor(private readonly setup: PoolSetup) {
    this.level = setup.level
    this.lanes = setup.lanes
    this.#forgetBudget = setup.budget.onGiven(() => this.#dispatch())
    if (setup.noSessions !== undefined) this.noSessions = setup.noSessions
    this.#kinds = new ZygoteKinds(setup.zygotes, setup.preloads, (zygote, kind, core) => {
      const reply = (said: Reply) => this.#reply(link, said)
      const down = (reason: string) => this.#down(link, reason)
      const link: ZygoteLink<Job> = new ZygoteLink(setup.workerFile, zygote, { reply, down }, kind, core)
      return link
    })
    this.#sessions = new Sessions({
      memoryBytes: setup.sessionMemoryMb * 2 ** 20,
      states: stateBound(setup.zygotes.at(-1)!.length),
      ...{ noSessions: setup.noSessions, lanes: setup.lanes, queueLimit: setup.queueLimit },
      submit: (id, call, place, signal, client) => this.#submit(id, call, place, signal, { client }),
      drop: (link, state) => link.send(controlFrame('drop', state)),
    })
    process.once('exit', this.#removeBase)
  }

  /** Pids of the zygotes that serve now. */
  get zygotePids(): readonly number[] {
    return this.#kinds.links.filter(link => link.ready).map(link => link.pid)
  }

  /** Memory of paused sessions, in bytes. */
  get sessionBytes(): number {
    return this.#sessions.bytes
  }

  /** Starts a zygote of every kind and waits for them. Resolves with the reason for which one cannot start, if any. */
  preloaded(): Promise<string | undefined> {
    this.#countOpen(1)
    return this.#kinds.allServe().finally(() => this.#countOpen(-1))
  }

  run(request: RunRequest, signal?: AbortSignal): Promise<RunResult> {
    if (request.session) return this.#sessions.run(request, request.session, signal)
    const call = callOf(request, 0)
    if (typeof call === 'string') return Promise.resolve(rejected(request.id, call))
    if (call.maxProcesses > 0 && this.level === 'degraded') {
      const reason = "processes outlive their call at level 'degraded', so none are allowed there"
      return Promise.resolve(rejected(request.id, `maxProcesses is ${call.maxProcesses}: ${reason}`))
    }
    const client = { client: request.client ?? '', named: request.client !== undefined }
    return this.#submit(request.id, call, undefined, signal, client).then(({ result }) => result)
  }

  forkSession(from: string, cell: number, to: string): boolean {
    return this.#sessions.fork(from, cell, to)
  }

  endSession(id: string): void {
    this.#sessions.end(id)
  }

  #submit(
    id: string,
    call: Call,
    place: Placed | undefined,
    signal: AbortSignal | undefined,
    { client, named = false }: { readonly client: string; readonly named?: boolean },
  ): Promise<Outcome> {
    if (this.#closing) return Promise.reject(closed())
    if (signal?.aborted) return Promise.reject(aborted(signal))
    if (this.#running + this.#waiting.size >= this.lanes + this.setup.queueLimit) {
      return Promise.reject(queueFull(this.lanes, this.setup.queueLimit))
    }
    this.#countOpen(1)
    return new Promise<Outcome>((resolve, reject) => {
      const onAbort = () => this.#stop(job)
      const settle = <T>(how: (value: T) => void, value: T) => {
        signal?.removeEventListener('abort', onAbort)
        how(value)
      }
      const job = newJob({
        ...{ id, call, client, named, place },
        kind: this.#kinds.kindOf(call, place !== undefined),
        answer: outcome => settle(resolve, outcome),
        refuse: error => settle(reject, error.code === 'sandbox.aborted' && signal ? aborted(signal) : error),
      })
      // One AbortSignal may abort many calls, so Node must not warn about many listeners.
      if (signal) setMaxListeners(0, signal)
      signal?.addEventListener('abort', onAbort, { once: true })
      this.#waiting.add(job)
      this.#dispatch()
    }).finally(() => this.#countOpen(-1))
  }

  /** Adds to the number of open calls. This process stays alive for open calls, not for an idle sandbox. */
  #countOpen(more: 1 | -1): void {
    this.#open += more
    if (this.#open === 0 || (this.#open === 1 && more === 1))
      for (const link of this.#kinds.links) link.keepAlive(this.#open > 0)
  }

  close(): Promise<void> {
    this.#closing ??= this.#close()
    return this.#closing
  }

  async #close(): Promise<void> {
    this.#forgetBudget()
    clearTimeout(this.#again)
    for (const job of this.#waiting.takeAll()) job.refuse(closed())
    await Promise.all(this.#kinds.links.map(link => link.close()))
    for (const link of this.#kinds.links)
      for (const [number, job] of link.calls) this.#release(link, number, job).refuse(closed())
    process.off('exit', this.#removeBase)
    this.#removeBase()
  }

  #dispatch(): void {
    while (this.#running < this.lanes) {
      const next = this.#waiting.next(this.#kinds.links, this.#isUrgent, this.#hasMemory, this.#kinds.grow)
      if (!next) return
      this.#send(next.link, next.job)
    }
  }

  readonly #isUrgent = (job: Job) => job.named && this.#clients.waitsForFlood(job.client)

  /**
   * Takes memory from the budget for the call whose turn it is; returns false if there is none. Then the calls behind
   * it wait too, or small calls would keep a large one waiting for ever. After `memoryWaitMs` the call is rejected.
   */
  readonly #hasMemory = (job: Job): boolean => {
    if (this.setup.budget.take(job.call.reservedBytes)) return true
    const now = performance.now()
    job.shortSince ||= now
    if (now - job.shortSince >= this.setup.memoryWaitMs) {
      this.#waiting.forget(job)
      job.answer({ result: rejected(job.id, MACHINE_OUT_OF_MEMORY), files: false, kept: undefined })
    }
    // Another process may free memory without a notice, so the pool looks again after MEMORY_LOOK_MS.
    clearTimeout(this.#again)
    this.#again = setTimeout(() => this.#dispatch(), MEMORY_LOOK_MS)
    return false
  }

  #send(link: ZygoteLink<Job>, job: Job): void {
    this.#numbers = (this.#numbers + 1) >>> 0
    const number = this.#numbers
    job.at = { link, number }
    job.attempts++
    link.calls.set(number, job)
    link.notBegun++
    link.core.calls++
    this.#running++
    job.killsBefore = this.setup.budget.killsBefore()
    link.send(runFrame(number, job.call, job.place, this.#isUrgent(job)))
    this.#clients.add(job.client)
  }

  #reply(link: ZygoteLink<Job>, reply: Reply): void {
    if (reply.kind === 'ready') {
      this.#kinds.serves(link)
      this.#dispatch()
      return
    }
    const job = link.calls.get(reply.id)
    if (!job) return
    if (reply.kind === 'begun') {
      job.begunAt = performance.now()
      link.notBegun--
      this.#dispatch()
    } else if (reply.kind === 'done' || reply.kind === 'failed') {
      this.#release(link, reply.id, job)
      if (job.stopped) {
        // The cell may have paused before the stop arrived. Its state is dropped, since nobody will fork from it.
        if (reply.kind === 'done' && reply.paused && job.place) link.send(controlFrame('drop', job.place.state))
        job.refuse(this.#closing ? closed() : callAborted())
      } else if (reply.kind === 'done') {
        const outOfMemory =
          reply.signal === 'SIGKILL' && reply.status === 'killed' && this.setup.budget.killedSince(job.killsBefore)
        job.answer(outcomeOf(link, job, reply, outOfMemory))
      } else this.#failed(job, reply.error)
      this.#dispatch()
    }
  }

  #release(link: ZygoteLink<Job>, number: number, job: Job): Job {
    link.calls.delete(number)
    if (job.begunAt === 0) link.notBegun--
    link.core.calls--
    job.at = undefined
    this.#running--
    this.#clients.remove(job.client)
    this.setup.budget.give(job.call.reservedBytes)
    return job
  }

  /**
   * Handles a call whose child could not be forked or isolated, often for lack of memory or processes. It is sent
   * again, ATTEMPTS times in all; a cell with a parent state is answered as orphan, an aborted call is refused.
   */
  #failed(job: Job, error: number): void {
    if (error === GONE || (job.place?.link && error !== CANCELED)) {
      job.answer(orphan(job.id))
      return
    }
    if (error !== CANCELED && job.attempts < ATTEMPTS) this.#waiting.addAgain(job)
    else job.refuse(childFailed(error))
  }

  #down(link: ZygoteLink<Job>, reason: string): void {
    const calls = [...link.calls]
    this.#sessions.zygoteLost(link)
    for (const job of this.#waiting.takeBound(link)) job.answer(orphan(job.id))
    const isGivenUp = this.#kinds.died(link, reason)
    link.pid = 0
    for (const [number, job] of calls) {
      const begun = job.begunAt > 0
      this.#release(link, number, job)
      if (job.stopped) job.refuse(callAborted())
      else if (begun) job.answer(killedWithZygote(job, reason, this.setup.budget.killedSince(job.killsBefore)))
      else if (job.place?.link) job.answer(orphan(job.id))
      else if (job.attempts < ATTEMPTS) this.#waiting.addAgain(job)
      else job.refuse(startFailed(reason))
    }
    if (isGivenUp) {
      const instead = this.#kinds.instead(link.kind)
      for (const job of this.#waiting.takeKind(link.kind)) {
        if (instead === undefined) job.refuse(startFailed(reason))
        else this.#waiting.add(Object.assign(job, { kind: instead }))
      }
    }
    this.#dispatch()
  }

  #stop(job: Job): void {
    job.stopped = true
    if (job.at) {
      job.at.link.send(controlFrame('stop', job.at.number))
      return
    }
    this.#waiting.forget(job)
    job.refuse(callAborted())
  }
}
