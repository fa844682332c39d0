/**
 * Runs actions as processes, and keeps the end of what they print.
 *
 * in   the command line of an action        out  its state and the end of its output
 * Invariant: at most one action of a kind (orders, new work, questions) runs for a run at a time, and `mostRunning` in
 * all. Actions end with the server: each gets SIGTERM, and SIGKILL after `endMs`.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { systemEffects } from '../../../runtime/effects'
import { TroupeError } from '../../../runtime/errors'
import type { ActionLine, ActionName } from '../../apiActions'
import { commandText } from '../commands'
import { shownText } from '../shownText'
import type { ActionWords } from './actionWords'

/** Characters of output that are kept of an action; older ones are dropped. */
const mostOutput = 32_768
const mostRunning = 8
/** Upper bound on the actions of one run that are kept; beyond it, the oldest that have ended are dropped. */
const mostKept = 20
/** Time in ms from SIGTERM to SIGKILL: after SIGTERM a resumed run drains its step and writes a checkpoint. */
const endMs = 60_000

type Kind = 'orders' | 'work' | 'questions'

const kindOf: Readonly<Record<ActionName, Kind>> = {
  ...{ pause: 'orders', 'go-on': 'orders', drain: 'orders', abort: 'orders' },
  ...{ resume: 'work', fork: 'work' },
  ...{ rescore: 'questions', limits: 'questions', selection: 'questions', diff: 'questions' },
}

interface Started {
  readonly id: string
  readonly made: ActionWords
  readonly startedAt: number
  readonly child: ChildProcess
  readonly ended: Promise<void>
  output: string
  dropped: number
  endedAt: number | null
  exitCode: number | null
}

export class RunningActions {
  readonly #ofRun = new Map<string, Started[]>()
  #count = 0

  /** @param program command and first words of `troupe`, such as node and the path of bin.js */
  constructor(readonly program: readonly string[]) {}

  /** Starts an action. @throws TroupeError dashboard.action_running if one of its kind, or `mostRunning`, still run */
  start(run: string, made: ActionWords): ActionLine {
    const kind = kindOf[made.action]
    const all = [...this.#ofRun.values()].flat().filter(one => one.endedAt === null)
    const same = this.#of(run).find(one => one.endedAt === null && kindOf[one.made.action] === kind)
    if (same !== undefined)
      throw busy(`'${same.made.action}' of run ${run} is still running; ${kind} are done one at a time`)
    if (all.length >= mostRunning) throw busy(`${all.length} actions are running already`)
    const [command = '', ...first] = this.program
    // A process group of its own: Ctrl-C in the server's terminal reaches the action once, through `close`.
    const child = spawn(command, [...first, ...made.words], { stdio: ['ignore', 'pipe', 'pipe'], detached: true })
    const started: Started = {
      ...{ id: String(++this.#count), made, startedAt: systemEffects.now(), child },
      ...{ output: '', dropped: 0, endedAt: null, exitCode: null },
      ended: new Promise(resolve => {
        child.once('error', error => {
          add(`${error.message}\n`)
          end(null)
          resolve()
        })
        child.once('close', code => {
          end(code)
          resolve()
        })
      }),
    }
    const add = (text: string) => {
      const whole = started.output + text
      started.output = whole.slice(-mostOutput)
      started.dropped += whole.length - started.output.length
    }
    const end = (code: number | null) => {
      started.endedAt ??= systemEffects.now()
      started.exitCode = code
    }
    for (const stream of [child.stdout, child.stderr]) stream?.setEncoding('utf8').on('data', add)
    // An action that still runs is kept, however many came after it, so that it can be listed, stopped and ended.
    const kept = [started, ...this.#of(run)].filter((one, at) => one.endedAt === null || at < mostKept)
    this.#ofRun.set(run, kept)
    return lineOf(started)
  }

  list(run: string): readonly ActionLine[] {
    return this.#of(run).map(lineOf)
  }

  /** Asks an action to end; undefined when the run has no such action. */
  stop(run: string, id: string): ActionLine | undefined {
    const found = this.#of(run).find(one => one.id === id)
    if (found === undefined) return undefined
    if (found.endedAt === null) found.child.kill('SIGTERM')
    return lineOf(found)
  }

  async close(): Promise<void> {
    const running = [...this.#ofRun.values()].flat().filter(one => one.endedAt === null)
    for (const { child } of running) child.kill('SIGTERM')
    const timer = setTimeout(() => {
      for (const { child } of running) child.kill('SIGKILL')
    }, endMs)
    await Promise.all(running.map(({ ended }) => ended))
    clearTimeout(timer)
  }

  #of(run: string): readonly Started[] {
    return this.#ofRun.get(run) ?? []
  }
}

function lineOf({ id, made, startedAt, endedAt, exitCode, output, dropped }: Started): ActionLine {
  return {
    ...{ id, action: made.action, command: commandText(made.words), startedAt, endedAt, exitCode },
    state: endedAt === null ? 'running' : isDone(made.action, exitCode) ? 'done' : 'failed',
    ...{ output: shownText(lastStates(output)), dropped },
    // The output of a fork names its run once the run exists; before, a link would lead nowhere.
    opens: made.opens !== null && (endedAt !== null || output.includes(made.opens)) ? made.opens : null,
  }
}

/** `diff` exits with 1 when the two differ, and `roc` when today's code selects otherwise: answers, no failures. */
const isDone = (action: ActionName, exitCode: number | null): boolean =>
  exitCode === 0 || (exitCode === 1 && (action === 'diff' || action === 'selection'))

/** Keeps the last state of each progress line: what follows a carriage return replaces the line before it. */
const lastStates = (text: string): string => text.replace(/[^\n]*\r(?!\n)/g, '')

const busy = (message: string): TroupeError =>
  new TroupeError('dashboard.action_running', {
    ...{ boundary: 'cli', retriable: true, message },
    hint: 'wait until an action ends, or stop one',
  })
