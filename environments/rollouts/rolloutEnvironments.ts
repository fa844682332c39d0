/**
 * Holds the environments of rollouts in one process: each rollout has an environment, which lives between its calls.
 *
 * in   a call, with the calls that have run before it
 * out  its outcome, and the snapshot after it if files changed
 * Invariant: a call runs on the files that its earlier calls left; if these had to be made again and differ, its
 * outcome says so (`other-files`). If there is no environment in that state (after an attempt that was not counted, a
 * fork, or a restart of Troupe), one is started with these files. Calls of a rollout run one after the other. If `live`
 * environments live when another is needed, the idle one that was used longest ago is ended first; if none is idle, the
 * new one starts nevertheless. An environment without a call for `idleMs` is ended.
 */
import { type ToolOutcome, toolOutcome } from '../../kernels'
import type { EnvironmentAt, FilesChanged, RestoredFrom, TaskEnvironment } from '../../messages/facts'
import type { Effects } from '../../runtime/effects'
import type { Log } from '../../runtime/log'
import { dockerDriver } from '../docker/dockerDriver'
import type { Environment } from '../drivers/driver'
import { isEnded } from '../drivers/errors'
import { localDriver } from '../drivers/local'
import { ociDriver } from '../drivers/oci'
import { SnapshotBound, touchSnapshot } from '../snapshots/bound'
import { changesBetween, readManifest } from '../snapshots/manifest'
import type { AllowedVariables } from '../tasks/variables'
import { type PreparedTask, prepareTask, type RolloutDriver } from './prepareTask'
import { type Restored, restore } from './restore'
import { runCall } from './runCall'

export interface RolloutEnvironmentsOptions {
  /** Run and epoch that own the environments. */
  readonly run: string
  readonly epoch: number
  readonly fx: Effects
  /** Directory of images, snapshots and environments. Default: `<TROUPE_HOME>/environments`. */
  readonly directory?: string
  readonly live: number
  /** Time in ms after an environment's last call at which the idle environment is ended. */
  readonly idleMs: number
  readonly snapshotMb: number
  readonly allowed?: AllowedVariables
  readonly log?: Pick<Log, 'warn'>
}

interface Live {
  readonly environment: Environment
  /** Number of the rollout's calls that have run, those before a restore included. */
  position: number
  snapshot: string
  usedAt: number
  /**
   * True if the files may differ from those of `snapshot`, or the processes may be dead: while a call runs, after a
   * call that failed, and once the processes are dead.
   */
  dirty: boolean
}

const mostListed = 100
const drivers = { local: localDriver, oci: ociDriver, docker: dockerDriver } as const

/** False if the environment's processes are dead: the next call then needs a new environment, from the snapshot. */
const isAlive = (environment: Environment): Promise<boolean> =>
  environment.exec({ command: 'true', timeoutMs: 10_000 }).then(
    ({ status }) => status !== 'lost',
    () => false,
  )

export class RolloutEnvironments {
  private readonly drivers = new Map<string, Promise<RolloutDriver>>()
  private readonly prepared = new Map<string, Promise<PreparedTask>>()
  private readonly live = new Map<string, Live>()
  /** By rollout, a promise that resolves when the rollout's latest call has ended. */
  private readonly turns = new Map<string, Promise<unknown>>()
  private readonly bound: SnapshotBound
  private readonly timer: NodeJS.Timeout
  private closed = false

  constructor(private readonly options: RolloutEnvironmentsOptions) {
    this.bound = new SnapshotBound(options.snapshotMb * 1024 * 1024)
    this.timer = setInterval(() => void this.endIdle(), Math.min(options.idleMs, 10_000)).unref()
  }

  /**
   * Runs a tool call in the rollout's environment. Rejects if it is aborted, if no environment can be started, or if
   * the call or the snapshot after it throws; but an environment that ends during the call gives the outcome `killed`.
   */
  async call(
    rollout: string,
    at: EnvironmentAt,
    call: { readonly tool: string; readonly arguments: Readonly<Record<string, unknown>>; readonly timeoutMs: number },
    signal?: AbortSignal,
  ): Promise<ToolOutcome> {
    return this.inTurn(rollout, async () => {
      signal?.throwIfAborted()
      const { live, from } = await this.liveAt(rollout, at, signal)
      live.dirty = true
      const prepared = await this.prepare(at.task)
      const { allowed = {} } = this.options
      const outcome = await runCall(prepared, at.calls, live.environment, call, allowed, signal).catch(thrown => {
        if (!isEnded(thrown) || signal?.aborted) throw thrown
        return toolOutcome({ status: 'killed' })
      })
      const files = await this.filesAfter(live, prepared, from).catch(thrown => {
        if (outcome.status !== 'killed' || signal?.aborted) throw thrown
        return 'ended' as const
      })
      if (files === 'ended')
        return toolOutcome({ ...outcome, reason: 'the environment ended; its files are as before this call' })
      live.position++
      live.usedAt = this.options.fx.elapsed()
      live.dirty = outcome.status === 'killed' && !(await isAlive(live.environment))
      return files === undefined ? outcome : { ...outcome, files }
    })
  }

  /** Starts an environment with the files that the rollout left, for its verifier. The caller stops it. */
  async start(at: EnvironmentAt, signal?: AbortSignal): Promise<Restored & { readonly prepared: PreparedTask }> {
    const restored = await restore(() => this.prepare(at.task), at, this.options.allowed ?? {}, signal)
    return { ...restored, prepared: await this.prepare(at.task) }
  }

  /** Ends the rollout's environment, if this process has one. */
  end(rollout: string): Promise<void> {
    return this.inTurn(rollout, () => this.drop(rollout))
  }

  async close(): Promise<void> {
    this.closed = true
    clearInterval(this.timer)
    this.live.clear()
    for (const driver of this.drivers.values()) await driver.then(one => one.close()).catch(() => {})
  }

  /**
   * Returns the prepared task. Prepares it at the first request, and again if its first snapshot has left the store.
   */
  async prepare(task: TaskEnvironment): Promise<PreparedTask> {
    const key = `${task.driver} ${task.network ?? ''} ${task.storage ?? ''} ${task.digest} ${task.directory}`
    const known = await this.prepared.get(key)
    if (known !== undefined && (await known.driver.hasSnapshot(known.base))) return known
    const preparing = this.driver(task.driver).then(driver =>
      prepareTask(task, driver, { allowed: this.options.allowed ?? {} }),
    )
    this.prepared.set(key, preparing)
    preparing.catch(() => this.prepared.delete(key))
    return preparing
  }

  private driver(name: TaskEnvironment['driver']): Promise<RolloutDriver> {
    const open = async () => {
      const { run, epoch, fx, directory } = this.options
      const options = { run, epoch, fx, ...(directory === undefined ? {} : { directory }) }
      const driver = drivers[name](options)
      await driver.sweep()
      return driver
    }
    const known = this.drivers.get(name) ?? open()
    this.drivers.set(name, known)
    known.catch(() => this.drivers.delete(name))
    return known
  }

  private async liveAt(rollout: string, at: EnvironmentAt, signal?: AbortSignal) {
    const known = this.live.get(rollout)
    if (known !== undefined && !known.dirty && known.position === at.calls.length) return { live: known }
    await this.drop(rollout)
    await this.makeRoom()
    const { environment, snapshot, from } = await restore(
      () => this.prepare(at.task),
      at,
      this.options.allowed ?? {},
      signal,
    )
    if (this.closed) await environment.stop()
    touchSnapshot((await this.prepare(at.task)).driver.store, snapshot, this.options.fx.now())
    if (from === 'other-files')
      this.options.log?.warn(
        { rollout },
        "a rollout's earlier calls ran again, and left other files than were recorded",
      )
    const usedAt = this.options.fx.elapsed()
    const live: Live = { environment, position: at.calls.length, snapshot, usedAt, dirty: false }
    this.live.set(rollout, live)
    return { live, ...(from === undefined ? {} : { from }) }
  }

  /** Takes the snapshot after a call. Returns undefined if the files are those that were recorded before the call. */
  private async filesAfter(
    live: Live,
    { driver }: PreparedTask,
    restored: RestoredFrom | undefined,
  ): Promise<FilesChanged | undefined> {
    const { digest, files, bytes } = await live.environment.snapshot()
    const before = live.snapshot
    live.snapshot = digest
    if (digest === before && restored !== 'other-files') return undefined
    const [was, is] = [readManifest(driver.store, before), readManifest(driver.store, digest)]
    const changed = was && is ? changesBetween(was, is, driver.inImage(live.environment)) : []
    if (this.bound.added(driver.store, bytes, this.options.fx.now()).length > 0) await driver.prune()
    const listed = changed.slice(0, mostListed)
    const made = restored === undefined ? {} : { restored }
    return { snapshot: digest, before, files, bytes, changed: listed, changes: changed.length, ...made }
  }

  private async drop(rollout: string): Promise<void> {
    const known = this.live.get(rollout)
    this.live.delete(rollout)
    await known?.environment.stop()
  }

  private async makeRoom(): Promise<void> {
    while (this.live.size >= this.options.live) {
      const idle = [...this.live]
        .filter(([rollout]) => !this.turns.has(rollout))
        .sort(([, a], [, b]) => a.usedAt - b.usedAt)
      const oldest = idle[0]
      if (oldest === undefined) return // none is idle: the number of workers bounds the number of environments
      await this.drop(oldest[0])
    }
  }

  private async endIdle(): Promise<void> {
    const since = this.options.fx.elapsed() - this.options.idleMs
    for (const [rollout, { usedAt }] of this.live)
      if (usedAt < since && !this.turns.has(rollout)) await this.end(rollout).catch(() => {})
  }

  private async inTurn<T>(rollout: string, work: () => Promise<T>): Promise<T> {
    const before = this.turns.get(rollout) ?? Promise.resolve()
    const mine = before.then(work, work)
    const settled = mine.then(
      () => {},
      () => {},
    )
    this.turns.set(rollout, settled)
    try {
      return await mine
    } finally {
      if (this.turns.get(rollout) === settled) this.turns.delete(rollout)
    }
  }
}
