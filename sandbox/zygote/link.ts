/**
 * Connection to one zygote (a warm interpreter that forks a child for each call): a piscina thread of its own, a port
 * to that thread, and the calls that the zygote has.
 *
 * in   frames      out  replies, and `down` when the zygote or its thread died
 * Invariant: after `down` no reply concerns a call sent before it. Frames that are sent without an await between them
 * travel as one message.
 */
import { MessageChannel, type MessagePort } from 'node:worker_threads'
import { Piscina } from 'piscina'
import { type Reply, replies } from './frames'
import type { FromWorker, ZygoteSetup } from './worker'

/** Load of a core, shared by the zygotes that are pinned to it. */
export interface Core {
  /** Number of calls that these zygotes have. */
  calls: number
}

export interface LinkEvents {
  reply(reply: Reply): void
  down(reason: string): void
}

export class ZygoteLink<Job> {
  /** true: the zygote accepts calls. */
  ready = false
  /** Calls sent to the zygote and not ended, by their number in the pool. */
  readonly calls = new Map<number, Job>()
  /** Number of `calls` whose code has not begun. */
  notBegun = 0
  pid = 0
  /** true: the zygote was started; it may not serve yet, or may have died since. */
  started = false
  #piscina: Piscina | undefined
  #port: MessagePort | undefined
  #held = false
  #frames: Buffer[] = []
  #closing: Promise<void> | undefined

  constructor(
    private readonly filename: string,
    private readonly setup: ZygoteSetup,
    private readonly events: LinkEvents,
    /** Number of the zygote's kind: the modules that it imports before the first call. */
    readonly kind: number,
    readonly core: Core,
  ) {}

  /** Starts the zygote, once. */
  start(): void {
    if (this.started || this.#closing) return
    this.started = true
    this.#attach()
  }

  #attach(): void {
    const options = { minThreads: 1, maxThreads: 1, concurrentTasksPerWorker: 8, execArgv: [], env: {} }
    // atomics are disabled: with them an idle thread blocks its event loop, and with it the zygote's replies
    const piscina = new Piscina({ filename: this.filename, atomics: 'disabled', ...options })
    // When a thread dies, its port closes; the 'close' handler below handles that.
    piscina.on('error', () => undefined)
    this.#piscina = piscina
    const { port1, port2 } = new MessageChannel()
    this.#port = port1
    port1.on('message', (message: FromWorker) => {
      if (message.kind === 'frames') {
        for (const reply of replies(message.bytes)) this.#reply(reply)
      } else this.#down(message.reason)
    })
    port1.once('close', () => {
      if (this.#closing) return
      this.#down('its worker thread died')
      void piscina.destroy() // Ends the pool of the dead thread, since piscina would still give that thread work.
      this.#attach()
    })
    this.keepAlive(this.#held)
    piscina.run({ port: port2, setup: this.setup }, { transferList: [port2] }).catch(() => port1.close())
  }

  #reply(reply: Reply): void {
    if (reply.kind === 'pong') return
    if (reply.kind === 'ready') {
      this.ready = true
      this.pid = reply.pid
    }
    this.events.reply(reply)
  }

  #down(reason: string): void {
    this.ready = false
    this.#frames = []
    this.events.down(reason)
  }

  send(frame: Buffer): void {
    if (this.#frames.push(frame) > 1) return
    queueMicrotask(() => {
      if (this.#frames.length === 0) return
      const bytes = new Uint8Array(Buffer.concat(this.#frames))
      this.#frames = []
      this.#port?.postMessage(bytes, [bytes.buffer])
    })
  }

  /** Keeps this process alive while it waits for the zygote's replies (true), or lets it exit (false). */
  keepAlive(held: boolean): void {
    if (this.#closing) return // The process must not exit before the zygote has closed.
    this.#held = held
    if (held) this.#port?.ref()
    else this.#port?.unref()
  }

  close(): Promise<void> {
    this.#closing ??= (async () => {
      const port = this.#port
      if (port) {
        port.ref()
        const closed = new Promise(resolve => port.once('close', resolve))
        port.postMessage(null)
        await closed
      }
      await this.#piscina?.destroy()
    })()
    return this.#closing
  }
}
