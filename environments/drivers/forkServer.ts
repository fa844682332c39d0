/**
 * Client of the fork server (keeper/fork_server.py), one process that forks a keeper for each environment: the process
 * that holds it (keeper/keeper.py).
 *
 * in   configurations of keepers        out  keepers whose environments are ready
 * Invariant: the server's standard input is the lifeline of all its keepers: they end, and remove their environments,
 * when this process dies, however it dies, and when the server does. The next `start` then starts another server. An
 * idle server does not keep this process alive.
 */
import { type ChildProcessByStdio, spawn } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import type { Socket } from 'node:net'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import type { Readable, Writable } from 'node:stream'
import { sandboxPythonPath } from '../../runtime/python'
import { within } from '../../runtime/within'
import { environmentError } from './errors'
import { Keeper, type KeeperConfig } from './keeper'

/** Time in ms within which a keeper has to report that its environment is ready. */
const startDeadlineMs = 60_000

/** Time in ms that a failed start waits for its keeper to remove what it had made. */
const removalMs = 10_000

type Report =
  | { readonly ready: string; readonly pid: number }
  | { readonly failed: string; readonly reason: string }
  | { readonly ended: string }

interface Starting {
  readonly ready: (pid: number) => void
  readonly failed: (reason: Error) => void
}

export class ForkServer {
  private server: Server | undefined

  /** Starts a keeper. @throws TroupeError environment.start_failed, environment.unavailable without Python */
  start(config: KeeperConfig): Promise<Keeper> {
    if (this.server === undefined || this.server.isEnding) this.server = new Server()
    return this.server.start(config)
  }

  /** Ends the server, and waits until it and its keepers have exited. @throws environment.unresponsive after 30 s */
  async close(): Promise<void> {
    const { server } = this
    this.server = undefined
    await server?.close()
  }
}

class Server {
  isEnding = false
  private readonly child: ChildProcessByStdio<Writable, Readable, Readable>
  private readonly starting = new Map<string, Starting>()
  private readonly running = new Map<string, () => void>()
  private readonly exited: Promise<void>
  private errors = ''

  constructor() {
    // `-I -S` keeps site-packages and the user's paths out of sys.path; `-P` would do less, and needs Python 3.11.
    const program = join(__dirname, '../keeper/fork_server.py')
    this.child = spawn(sandboxPythonPath() ?? 'python3', ['-I', '-S', '-B', program], {
      stdio: ['pipe', 'pipe', 'pipe'],
      // The server gets none of this process's variables: they hold secrets, and the environments' processes descend
      // from it.
      env: { PATH: '/usr/sbin:/usr/bin:/sbin:/bin', LC_ALL: 'C.UTF-8' },
      detached: true, // a Ctrl-C at the terminal must not reach the server before its environments are removed
    })
    const { child } = this
    child.unref()
    for (const stream of [child.stdin, child.stdout, child.stderr]) (stream as unknown as Socket).unref()
    child.stdin.on('error', () => {}) // an error is ignored: the server has died, which the end of its output reports
    child.stderr.setEncoding('utf8').on('data', text => this.keepWords(text))
    createInterface({ input: child.stdout }).on('line', line => this.hear(line))
    this.exited = new Promise(resolve => {
      child.once('error', cause => {
        const hint = 'npx troupe setup, in a checkout npm run setup; or name an interpreter in TROUPE_SANDBOX_PYTHON'
        const message = `no Python to run environments: ${cause.message}`
        this.end(environmentError('environment.unavailable', message, { cause, hint }))
        resolve()
      })
      // Standard output ends when the server and all its keepers have exited.
      child.once('close', () => {
        const reason = 'the fork server, which starts the processes that hold environments, ended'
        this.end(environmentError('environment.start_failed', withWords(reason, this.wordsOf(undefined))))
        resolve()
      })
      child.once('exit', () => {
        this.isEnding = true
      })
    })
  }

  async start(config: KeeperConfig): Promise<Keeper> {
    const { name, directory } = config
    const file = join(directory, 'keeper.json')
    writeFileSync(file, JSON.stringify(config))
    const ended = new Promise<void>(resolve => this.running.set(name, resolve))
    const ready = new Promise<number>((resolve, reject) => this.starting.set(name, { ready: resolve, failed: reject }))
    const stop = () => this.ask({ stop: name })
    const late = () =>
      environmentError('environment.start_failed', `environment ${name} did not start in ${startDeadlineMs} ms`)
    this.ask({ start: file, name })
    try {
      return new Keeper({ pid: await within(ready, startDeadlineMs, late), ended, stop }, config)
    } catch (thrown) {
      stop()
      await within(ended, removalMs, late).catch(() => {}) // the sweeper removes what a keeper that hangs has made
      throw thrown
    } finally {
      this.starting.delete(name)
    }
  }

  async close(): Promise<void> {
    this.isEnding = true
    this.child.stdin.end()
    const late = () => environmentError('environment.unresponsive', 'the fork server of keepers did not end in 30 s')
    await within(this.exited, 30_000, late)
  }

  private ask(request: { readonly start: string; readonly name: string } | { readonly stop: string }): void {
    this.child.stdin.write(`${JSON.stringify(request)}\n`)
  }

  /** Reads a line of the server's standard output. A line that is no report is kept to explain a later error. */
  private hear(line: string): void {
    let report: Report
    try {
      report = JSON.parse(line)
    } catch {
      this.keepWords(`not a report: ${line}\n`)
      return
    }
    this.report(report)
  }

  private keepWords(text: string): void {
    this.errors = (this.errors + text).slice(-4096)
  }

  /**
   * Returns the latest lines that the keeper `name` wrote to standard error; without a name, those of the server. A
   * keeper begins each line with its name.
   */
  private wordsOf(name: string | undefined): string {
    const lines = this.errors.split('\n').filter(line => line !== '')
    const own = (line: string) => (name === undefined ? !line.startsWith('troupe-') : line.startsWith(`${name}: `))
    return lines
      .filter(own)
      .map(line => (name === undefined ? line : line.slice(name.length + 2)))
      .join('\n')
  }

  private report(report: Report): void {
    if ('ready' in report) this.starting.get(report.ready)?.ready(report.pid)
    else if ('failed' in report) this.fail(report.failed, report.reason)
    else {
      const reason = 'its keeper (the process that holds the environment) ended'
      this.fail(report.ended, withWords(reason, this.wordsOf(report.ended)))
      this.running.get(report.ended)?.()
      this.running.delete(report.ended)
    }
  }

  private fail(name: string, reason: string): void {
    this.starting.get(name)?.failed(environmentError('environment.start_failed', `environment ${name}: ${reason}`))
  }

  private end(error: Error): void {
    this.isEnding = true
    for (const { failed } of this.starting.values()) failed(error)
    for (const ended of this.running.values()) ended()
    this.running.clear()
  }
}

const withWords = (reason: string, words: string) => (words === '' ? reason : `${reason}:\n${words}`)
