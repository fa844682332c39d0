/**
 * One zygote as its pool sees it: a piscina thread of its own, a port to it, and the calls that are with it.
 *
 * in   frames      out  replies, and `down` when the zygote or its thread was lost
 * Invariant: after `down` nothing is said of the calls that were with it before. Frames of one turn of the event loop
 * travel as one message.
 */
import { MessageChannel, type MessagePort } from 'node:worker_threads'
import { Piscina } from 'piscina'
import { type Reply, replies } from './frames'
import type { FromWorker, ZygoteSetup } from './worker'

export interface LinkEvents {
  reply(reply: Reply): void
  down(reason: string): void
}

export class ZygoteLink<Job> {
  /** It takes calls. */
  ready = false
  /** By the number that the zygote knows them by. */
  readonly calls = new Map<number, Job>()
  /** Of `calls`, those that have not begun. */
  unbegun = 0
  pid = 0
  #piscina: Piscina | undefined
  #port: MessagePort | undefined
  #held = false
  #frames: Buffer[] = []
  #closing: Promise<void> | undefined

  constructor(
    private readonly filename: string,
    private readonly setup: ZygoteSetup,
    private readonly events: LinkEvents,
  ) {
    this.#attach()
  }

  #attach(): void {
    const options = { minThreads: 1, maxThreads: 1, concurrentTasksPerWorker: 8, execArgv: [], env: {} }
    // atomics: otherwise an idle thread blocks its event loop, and with it its zygote's replies
    const piscina = new Piscina({ filename: this.filename, atomics: 'disabled', ...options })
    piscina.on('error', () => undefined) // a lost thread closes its port, which is what counts
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
      this.#down('its worker thread was lost')
      void piscina.destroy() // it gives work to a thread that ended by itself
      this.#attach()
    })
    this.hold(this.#held)
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

  /** Whether this process must stay alive for what the zygote will say. */
  hold(held: boolean): void {
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
