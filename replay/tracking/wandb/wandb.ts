/**
 * Weights & Biases as a tracker: a Python process that writes through the package `wandb`, online or offline as
 * WANDB_MODE says.
 *
 * in   `run.started`, points of a run, `run.finished`        out  requests to the process (python/wandb_run.py), one
 * line each
 * Invariant: a request ends within `deadlineMs`. A process that failed is ended. The next request starts another, which
 * logs those points of the request that wandb's files (offline) or the server (online) lack, and online its alarms in
 * any case.
 */
import { type ChildProcessByStdio, spawn } from 'node:child_process'
import { once } from 'node:events'
import { homedir } from 'node:os'
import { join } from 'node:path'
import { createInterface, type Interface } from 'node:readline'
import type { Readable, Writable } from 'node:stream'
import type { RunStarted } from '../../../messages/facts'
import { endedHow, TroupeError } from '../../../runtime/errors'
import { wandbPythonPath } from '../../../runtime/python'
import { knowNetrc, knowVariables } from '../../../runtime/secrets/credentials'
import { excerpt } from '../../../runtime/secrets/knownSecrets'
import { outputTail } from '../../../runtime/secrets/outputTail'
import type { Tracker } from '../runPoints'

export interface WandbOptions {
  readonly project: string
  readonly entity?: string
  /** Deadline of one request, in ms. */
  readonly deadlineMs?: number
}

interface Process {
  readonly child: ChildProcessByStdio<Writable, Readable, Readable>
  readonly lines: Interface
  /** Exit code of the process (null after a signal, or if it could not be started), and how it ended, in words. */
  readonly exited: Promise<{ readonly code: number | null; readonly how: string }>
}

const usualDeadlineMs = 60_000
/** Time in ms in which the process must end after its stdin has ended; it allows wandb 20 s for the last uploads. */
const closeMs = 25_000
const script = join(__dirname, 'python/wandb_run.py')

/** @throws TroupeError process.no_wandb before `troupe setup wandb` */
export function wandbTracker(run: string, options: WandbOptions): Tracker {
  const { project, entity, deadlineMs = usualDeadlineMs } = options
  const python = wandbPythonPath()
  let running: Process | undefined
  let described: Pick<RunStarted, 'recipe' | 'versions'> | undefined

  function start(): Process {
    // detached: an interrupt at the terminal ends this process first, which then lets wandb finish its file.
    const { env } = process
    knowVariables(env)
    knowNetrc(env.NETRC ?? join(homedir(), '.netrc'))
    const child = spawn(python, [script], { stdio: ['pipe', 'pipe', 'pipe'], detached: true, env })
    outputTail([child.stderr], { chars: 0, onLines: text => process.stderr.write(text) })
    child.stdin.on('error', () => {}) // 'exit' reports the end of the process
    const exited = new Promise<Awaited<Process['exited']>>(resolve => {
      child.once('exit', (code, signal) => resolve({ code, how: `its process ${endedHow(code, signal)}` }))
      child.once('error', ({ message }) => resolve({ code: null, how: message }))
    })
    return { child, lines: createInterface({ input: child.stdout }), exited }
  }

  /**
   * Sends a request to the Python process and waits for the answer. Kills the process if it answers with an error, or
   * does not answer within `deadlineMs`. @throws TroupeError tracker.unreachable, tracker.refused
   */
  async function ask(request: Readonly<Record<string, unknown>>): Promise<void> {
    const { child, lines, exited } = running!
    const answered = once(lines, 'line').then(([line]) => JSON.parse(line) as { error?: string; refused?: boolean })
    child.stdin.write(`${JSON.stringify(request)}\n`)
    let timer: NodeJS.Timeout | undefined
    const late = new Promise<{ error: string; refused?: boolean }>(resolve => {
      timer = setTimeout(() => resolve({ error: `no answer in ${deadlineMs / 1000} s` }), deadlineMs)
    })
    const died = exited.then(({ how }) => ({ error: how, refused: false }))
    const { error, refused } = await Promise.race([answered, late, died]).finally(() => clearTimeout(timer))
    if (error === undefined) return
    child.kill('SIGKILL')
    running = undefined
    throw new TroupeError(refused ? 'tracker.refused' : 'tracker.unreachable', {
      boundary: 'process',
      retriable: refused !== true,
      message: `wandb: ${excerpt(error, 500)}`,
      hint: refused
        ? 'set WANDB_API_KEY, or WANDB_MODE=offline to write files that `wandb sync` uploads later'
        : "the run's log keeps every point until wandb takes it; WANDB_MODE=offline needs no server",
    })
  }

  async function begun(): Promise<void> {
    if (running !== undefined) return
    running = start()
    const { recipe: config, versions } = described!
    await ask({ op: 'begin', project, ...(entity === undefined ? {} : { entity }), run, config, versions })
  }

  return {
    async begin({ recipe, versions }) {
      described = { recipe, versions }
      await begun()
    },
    async keep(points) {
      await begun()
      await ask({ op: 'keep', points })
    },
    async end({ outcome }) {
      await begun()
      await ask({ op: 'end', outcome })
    },
    async close() {
      if (running === undefined) return
      const { child, exited } = running
      child.stdin.end()
      const limit = setTimeout(() => child.kill('SIGKILL'), closeMs)
      const { code, how } = await exited.finally(() => clearTimeout(limit))
      if (code === 0) return
      throw new TroupeError('tracker.unreachable', {
        boundary: 'process',
        retriable: true,
        message: `wandb did not take the last points: ${how}`,
        hint: 'call `troupe track` again: it continues after the points that wandb has',
      })
    },
  }
}
