/**
 * Client of a keeper (keeper/keeper.py), the process that holds one environment.
 *
 * in   requests        out  answers; bytes of files
 * Invariant: each request has a connection of its own; closing it ends the command that the request started. `request`
 * has a deadline, `open` has none.
 */
import { connect, type Socket } from 'node:net'
import type { Readable } from 'node:stream'
import { within } from '../../runtime/within'
import type { EnvironmentLimits } from './driver'
import { environmentError } from './errors'

export interface KeeperConfig {
  readonly kind: 'oci' | 'local'
  /** Name of the environment and of its cgroups, unique on the machine. */
  readonly name: string
  readonly directory: string
  /** Read-only layers of the overlay, as directories, the topmost first; the last one is the image. */
  readonly lower: readonly string[]
  /** Directory of the store, which has the snapshots in `layers` and `objects`. */
  readonly store: string
  readonly limits: EnvironmentLimits
  /** True: the socket `proxy` in `directory` is the environment's only way to a network (keeper/forward.py). */
  readonly proxy?: boolean
}

export interface RequestOptions {
  /** Bytes to send after the header. The connection stays open, since its end would end a command. */
  readonly bytes?: Uint8Array
  /** Stream to send after the header. Its end ends the request. */
  readonly stream?: Readable
  readonly deadlineMs: number
  readonly signal?: AbortSignal | undefined
}

/** A keeper's process, as the fork server reports it. */
export interface KeeperProcess {
  readonly pid: number
  /** Resolves when the process has exited. */
  readonly ended: Promise<void>
  /** Asks the process to remove its environment and exit. */
  readonly stop: () => void
}

/** Error codes of a connection whose other end is closed, or was never there. */
const connectionErrors: ReadonlySet<string> = new Set(['EPIPE', 'ECONNRESET', 'ECONNREFUSED', 'ENOENT'])

export class Keeper {
  private isEnded = false

  constructor(
    private readonly process: KeeperProcess,
    readonly config: KeeperConfig,
  ) {
    void process.ended.then(() => {
      this.isEnded = true
    })
  }

  get pid(): number {
    return this.process.pid
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
      throw connectionErrors.has((thrown as NodeJS.ErrnoException).code ?? '') ? this.lost(thrown) : thrown
    } finally {
      options.signal?.removeEventListener('abort', abort)
      socket.destroy()
    }
  }

  /** Opens a connection and sends `header` on it; the caller reads the answer and closes the connection. */
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

  lost(cause?: unknown) {
    return environmentError(
      'environment.ended',
      `environment ${this.config.name} has ended, or its keeper (the process that holds the environment) closed the connection without an answer`,
      { retriable: true, cause },
    )
  }

  /** Lets the keeper remove its environment, and waits until it has. @throws environment.unresponsive after 30 s */
  async stop(): Promise<void> {
    if (!this.isEnded) this.process.stop()
    const late = () =>
      environmentError('environment.unresponsive', `environment ${this.config.name} did not stop in 30 s`)
    await within(this.process.ended, 30_000, late)
  }
}

function readAll(socket: Socket): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const parts: Buffer[] = []
    socket.on('data', part => parts.push(part))
    socket.once('error', reject)
    socket.once('close', () => resolve(Buffer.concat(parts)))
    socket.once('end', () => resolve(Buffer.concat(parts)))
  })
}
