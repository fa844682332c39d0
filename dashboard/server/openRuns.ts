/**
 * Lists the newest runs of a bus (up to `mostListed`), each with a line for the page, for which it opens the run, and
 * opens those that are looked at.
 *
 * in   a bus address        out  lines of runs; opened runs, shared by all readers
 * Invariant: when a run is opened and more than `mostOpen` are open, those used longest ago are closed; a run that a
 * request or a stream uses is never closed under it.
 */
import { statSync } from 'node:fs'
import { join } from 'node:path'
import { runId } from '../../messages/ids'
import { scored } from '../../replay/learning/evaluationScore'
import { openBus } from '../../runtime/bus/open'
import { asError } from '../../runtime/errors'
import { directoryOf, runsOn } from '../../runtime/openRun'
import { runDirectory, runsByLastWrite } from '../../runtime/runDirectory'
import type { RunLine } from '../api'
import { OpenedRun } from './openedRun'
import { shownLine } from './shownText'

const mostOpen = 8
/**
 * Upper bound on the runs that are listed: those that were written last; on Kafka, those whose names sort last, which
 * are the newest of a recipe, since default names end in the time of the start.
 */
const mostListed = 200

export interface RunsOptions {
  readonly bus: string
  readonly directory?: string
  /** Name of the only run to show; absent: all runs of the bus. */
  readonly only?: string
}

export class OpenRuns {
  /** Opened runs, the most recently used last. */
  readonly #open = new Map<string, Promise<OpenedRun>>()
  /** Number of requests and streams that use a run now, by its name. */
  readonly #users = new Map<string, number>()
  readonly #lines = new Map<string, { readonly stamp: string; readonly line: RunLine }>()

  constructor(readonly options: RunsOptions) {}

  async names(): Promise<readonly string[]> {
    const { bus, only } = this.options
    if (only !== undefined) return [only]
    if (!bus.startsWith('kafka:')) return runsByLastWrite(directoryOf(bus)).slice(-mostListed)
    const opened = await openBus(bus, { mode: 'read' })
    try {
      return (await runsOn(opened)).slice(-mostListed)
    } finally {
      await opened.close()
    }
  }

  async list(): Promise<readonly RunLine[]> {
    const lines: RunLine[] = []
    for (const name of [...(await this.names())].reverse()) lines.push(await this.#line(name))
    return lines.sort((a, b) => b.startedAt - a.startedAt)
  }

  /** Calls `use` with a run that is up to date, and keeps it open meanwhile. @throws TroupeError run.not_found */
  async with<T>(name: string, use: (run: OpenedRun) => Promise<T>): Promise<T> {
    // The use is counted before the run is awaited; otherwise the run could be closed in between.
    this.#users.set(name, (this.#users.get(name) ?? 0) + 1)
    try {
      const run = await this.#opened(name)
      await run.refresh()
      return await use(run)
    } finally {
      const left = this.#users.get(name)! - 1
      if (left === 0) this.#users.delete(name)
      else this.#users.set(name, left)
    }
  }

  async close(): Promise<void> {
    const all = [...this.#open.values()]
    this.#open.clear()
    for (const opening of all) await opening.then(run => run.close()).catch(() => {})
  }

  #opened(name: string): Promise<OpenedRun> {
    const known = this.#open.get(name)
    this.#open.delete(name)
    const opening = known ?? OpenedRun.open(this.options.bus, name, this.options.directory)
    this.#open.set(name, opening)
    opening.catch(() => {
      if (this.#open.get(name) === opening) this.#open.delete(name)
    })
    void this.#closeOldest()
    return opening
  }

  async #closeOldest(): Promise<void> {
    for (const [name, opening] of [...this.#open]) {
      if (this.#open.size <= mostOpen) return
      const run = await opening.catch(() => undefined)
      if (run === undefined || this.#users.has(name) || this.#open.size <= mostOpen) continue
      if (this.#open.get(name) !== opening) continue // another call of this method closes the run
      this.#open.delete(name)
      await run.close().catch(() => {})
    }
  }

  async #line(name: string): Promise<RunLine> {
    const stamp = this.#stamp(name)
    const known = this.#lines.get(name)
    if (known !== undefined && stamp !== undefined && known.stamp === stamp && known.line.state !== 'live')
      return known.line
    const line = await this.with(name, async run => lineOf(name, run)).catch(thrown =>
      unreadable(name, asError(thrown)),
    )
    if (stamp !== undefined) this.#lines.set(name, { stamp, line })
    return line
  }

  /** Returns a text that changes when the log's file changes; undefined on Kafka. */
  #stamp(name: string): string | undefined {
    const { bus } = this.options
    if (bus.startsWith('kafka:')) return undefined
    try {
      const { mtimeMs, size } = statSync(join(runDirectory(directoryOf(bus), runId(name)).log, 'data.mdb'))
      return `${mtimeMs} ${size}`
    } catch {
      return undefined
    }
  }
}

/** Makes the line of an opened run. */
export function lineOf(name: string, run: OpenedRun): RunLine {
  const { facts, newest, state } = run
  const last = facts.evaluations.at(-1)
  return {
    run: name,
    state,
    recipe: shownLine(String(facts.started?.recipe.name ?? '')),
    startedAt: facts.started?.at ?? 0,
    lastAt: newest.at,
    step: facts.step,
    plannedSteps: plannedSteps(run),
    passAt1: last === undefined ? null : scored(last).passAt1,
    alarms: facts.alarms.length,
  }
}

export function plannedSteps({ facts }: OpenedRun): number | null {
  const steps = (facts.started?.recipe.train as { readonly steps?: unknown } | undefined)?.steps
  return typeof steps === 'number' ? steps : null
}

const unreadable = (run: string, error: Error): RunLine => ({
  ...{
    run,
    state: 'cut-off',
    recipe: '',
    startedAt: 0,
    lastAt: 0,
    step: 0,
    plannedSteps: null,
    passAt1: null,
    alarms: 0,
  },
  error: shownLine(error.message),
})
