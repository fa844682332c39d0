/**
 * Client of a keeper (keeper/keeper.py), the process that holds one environment.
 *
 * in   the keeper's configuration, requests        out  answers; bytes of files
 * Invariant: the keeper's standard input is its lifeline: it ends, and removes its environment, when this process dies,
 * however it dies. Each request has a connection of its own; closing it ends the command that the request started.
 * `request` has a deadline, `open` has none.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { mkdirSync, writeFileSync } from 'node:fs'
import { connect, type Socket } from 'node:net'
import { join } from 'node:path'
import type { Readable } from 'node:stream'
import { sandboxPythonPath } from '../../runtime/python'
import { within } from '../../runtime/within'
import type { EnvironmentLimits } from './driver'
import { environmentError } from './errors'

export interface KeeperConfig {
  readonly kind: 'oci' | 'local'
  /** Name that is unique on the machine, also that of the cgroup and of runc's container. */
  readonly name: string
  readonly directory: string
  /** Read-only directories below the environment's files, the topmost first; the last one is the image. */
  readonly lower: readonly string[]
  /** Directory of layers and objects. */
  readonly store: string
  readonly limits: EnvironmentLimits
  /** True: the socket `proxy` in the directory is the environment's only way out (keeper/forward.py). */
  readonly proxy?: boolean
  readonly runc?: string
  /** State directory of runc. */
  readonly state?: string
}

export interface RequestOptions {
  /** Bytes to send after the header. The connection stays open, since its end would end a command. */
  readonly bytes?: Uint8Array
  /** Stream to send after the header. Its end ends the request. */
  readonly stream?: Readable
  readonly deadlineMs: number
  readonly signal?: AbortSignal | undefined
}

/** Time in ms within which a keeper has to report that its environment is ready. */
const startDeadlineMs = 60_000

export class Keeper {
  private isEnded = false
  readonly ended: Promise<void>

  private constructor(
    private readonly child: ChildProcess,
    readonly config: KeeperConfig,
  ) {
    this.ended = new Promise(resolve => {
      child.once('exit', () => {
        this.isEnded = true
        resolve()
      })
    })
  }

  static async start(config: KeeperConfig): Promise<Keeper> {
    const file = join(config.directory, 'keeper.json')
    mkdirSync(config.directory, { recursive: true, mode: 0o700 })
    writeFileSync(file, JSON.stringify(config))
    const program = join(__dirname, '../keeper/keeper.py')
    // `-P` does not exist before Python 3.11; `-I -S` leaves out site and the user's paths.
    const child = spawn(sandboxPythonPath() ?? 'python3', ['-I', '-S', '-B', program, file], {
      stdio: ['pipe', 'pipe', 'pipe'],
      // The keeper gets none of this process's variables: they hold secrets, and the environment's processes descend
      // from it.
      env: { PATH: '/usr/sbin:/usr/bin:/sbin:/bin', LC_ALL: 'C.UTF-8' },
      detached: true, // a Ctrl-C at the terminal must not reach it before its environment is removed
    })
    const keeper = new Keeper(child, config)
    let errors = ''
    child.stderr.setEncoding('utf8').on('data', text => {
      errors = (errors + text).slice(-4096)
    })
    child.stdin.on('error', () => {}) // an error is ignored: the keeper has died, which `ended` reports
    const late = () =>
      environmentError('environment.start_failed', `environment ${config.name} did not start in ${startDeadlineMs} ms`)
    try {
      const said = await within(Promise.race([firstLine(child.stdout), failed(child)]), startDeadlineMs, late)
      const answer = JSON.parse(said || '{}') as { readonly ready?: boolean; readonly failed?: string }
      if (answer.ready) {
        child.stdout.resume()
        child.unref()
        return keeper
      }
      throw environmentError(
        'environment.start_failed',
        `environment ${config.name}: ${answer.failed ?? (errors.trim() || 'its keeper, the process that holds it, ended')}`,
      )
    } catch (thrown) {
      child.stdin.end()
      throw thrown
    }
  }

  get pid(): number {
    return this.child.pid as number
  }

  /** Sends one request and returns the answer's header and the bytes after it. */
  async request(
    header: Readonly<Record<string, unknown>>,
    options: RequestOptions,
  ): Promise<{ readonly header: Record<string, unknown>; readonly body: Buffer }> {
    const socket = this.open(header)
    const abort = () => socket.destroy()
    options.signal?.addEventListener('abort', abort, { once: true })
    try {
      // An empty write fails once the keeper has answered and closed the connection.
      if (options.bytes !== undefined && options.bytes.length > 0) socket.write(options.bytes)
      options.stream?.pipe(socket)
      const answer = await within(readAll(socket), options.deadlineMs, () =>
        environmentError(
          'environment.unresponsive',
          `environment ${this.config.name} did not answer ${header.op} in ${options.deadlineMs} ms`,
          { retriable: true },
        ),
      )
      if (answer.length < 4) throw this.lost()
      const size = answer.readUInt32LE(0)
      return { header: JSON.parse(answer.subarray(4, 4 + size).toString()), body: answer.subarray(4 + size) }
    } catch (thrown) {
      options.signal?.throwIfAborted()
      throw thrown
    } finally {
      options.signal?.removeEventListener('abort', abort)
      socket.destroy()
    }
  }

  /** Opens a connection that has sent `header`; the caller reads and ends it. */
  open(header: Readonly<Record<string, unknown>>): Socket {
    if (this.isEnded) throw this.lost()
    const text = Buffer.from(JSON.stringify(header))
    const head = Buffer.alloc(4)
    head.writeUInt32LE(text.length)
    // A path through /proc is short, wherever the directory lies: socket paths have at most 107 bytes.
    const socket = connect({ path: `/proc/${this.pid}/cwd/s`, allowHalfOpen: true })
    socket.write(Buffer.concat([head, text]))
    return socket
  }

  lost() {
    return environmentError(
      'environment.ended',
      `environment ${this.config.name} has ended, or its keeper, the process that holds it, closed the connection without an answer`,
    )
  }

  /** Lets the keeper remove its environment, and waits until it has. @throws environment.unresponsive after 30 s */
  async stop(): Promise<void> {
    this.child.stdin?.end()
    const late = () =>
      environmentError('environment.unresponsive', `environment ${this.config.name} did not stop in 30 s`)
    await within(this.ended, 30_000, late)
  }
}

function firstLine(stream: Readable): Promise<string> {
  return new Promise(resolve => {
    let text = ''
    stream.setEncoding('utf8')
    const take = (more: string) => {
      text += more
      if (!text.includes('\n')) return
      stream.off('data', take)
      resolve(text.slice(0, text.indexOf('\n')))
    }
    stream.on('data', take)
    stream.once('end', () => resolve(text))
  })
}

const failed = (child: ChildProcess) =>
  new Promise<never>((_, reject) => {
    child.once('error', cause =>
      reject(
        environmentError('environment.unavailable', `no Python to run environments: ${cause.message}`, {
          cause,
          hint: 'npx troupe setup, in a checkout npm run setup; or name an interpreter in TROUPE_SANDBOX_PYTHON',
        }),
      ),
    )
  })

function readAll(socket: Socket): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const parts: Buffer[] = []
    socket.on('data', part => parts.push(part))
    socket.once('error', reject)
    socket.once('close', () => resolve(Buffer.concat(parts)))
    socket.once('end', () => resolve(Buffer.concat(parts)))
  })
}
