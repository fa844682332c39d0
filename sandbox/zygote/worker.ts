/**
 * The piscina thread of one zygote (a warm interpreter that forks a child for each call): starts the zygote, passes
 * frames, checks its liveness, restarts it when it dies.
 *
 * in   over a port: frames for the zygote, `null` to end
 * out  over the port: whole reply frames, `down` with a reason
 * Invariant: a zygote that is silent for 12 ticks of this thread (`SILENT_TICKS`; 250 ms each), or before its first
 * reply for 480 (`BOOT_TICKS`), is killed, so that no call waits for a zygote that hangs; ticks that a starved thread
 * misses do not count as silence. The zygote dies with this thread.
 *
 * In a checkout this file is transpiled alone (see workerFile.ts): at run time it may import node: modules only.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import type { Readable, Writable } from 'node:stream'
import type { MessagePort } from 'node:worker_threads'

/** Command line, environment and settings of a zygote. */
export interface ZygoteSetup {
  readonly python: string
  readonly args: readonly string[]
  /** Settings for the zygote's argv, sent as JSON; this thread adds `parent`. */
  readonly settings: Readonly<Record<string, unknown>>
  readonly env: Readonly<Record<string, string>>
  /** Frame that asks the zygote for a heartbeat. */
  readonly ping: Uint8Array
}

export type FromWorker =
  | { readonly kind: 'frames'; readonly bytes: Uint8Array }
  | { readonly kind: 'down'; readonly reason: string; readonly served: boolean }

const TICK_MS = 250
const SILENT_TICKS = 12
/** Number of ticks allowed until the first reply: imports from a slow disk are part of the start. */
const BOOT_TICKS = 480
const END_MS = 5000
const AGAIN_MS = 50

/**
 * Starts a zygote and returns at once. A zygote that dies is started again until the port receives `null` or closes.
 */
export default function attach({ port, setup }: { port: MessagePort; setup: ZygoteSetup }): void {
  let zygote: Zygote | undefined
  let ending = false
  let wake = () => {}
  const end = () => {
    ending = true
    zygote?.end()
    wake()
  }
  port.on('message', (bytes: Uint8Array | null) => (bytes ? zygote?.write(bytes) : end()))
  port.once('close', end)
  const keepRunning = async () => {
    for (let quick = 0; !ending; ) {
      const began = performance.now()
      zygote = new Zygote(setup, bytes =>
        port.postMessage({ kind: 'frames', bytes } satisfies FromWorker, [bytes.buffer]),
      )
      const down = await zygote.gone
      if (ending) break
      port.postMessage({ kind: 'down', ...down } satisfies FromWorker)
      quick = performance.now() - began < 1000 ? quick + 1 : 0
      await new Promise<void>(resolve => {
        wake = resolve
        setTimeout(resolve, quick > 3 ? 20 * AGAIN_MS : AGAIN_MS)
      })
    }
    port.close()
  }
  void keepRunning()
}

class Zygote {
  readonly gone: Promise<{ reason: string; served: boolean }>
  readonly #child: ChildProcess
  #parts: Buffer[] = []
  #size = 0
  #needed = 4
  #served = false
  #silent = 0

  constructor(setup: ZygoteSetup, onFrames: (frames: Uint8Array<ArrayBuffer>) => void) {
    const settings = JSON.stringify({ ...setup.settings, parent: process.pid })
    this.#child = spawn(setup.python, [...setup.args, settings], {
      cwd: '/',
      stdio: ['pipe', 'ignore', 'pipe', 'pipe'],
      env: setup.env,
    })
    let errorText = ''
    let killed = ''
    const [input, , errors, output] = this.#child.stdio as unknown as [Writable, null, Readable, Readable]
    for (const stream of [input, errors, output]) stream?.on('error', () => undefined)
    errors?.setEncoding('utf8').on('data', (text: string) => {
      errorText = (errorText + text).slice(-2000)
    })
    output?.on('data', (chunk: Buffer) => {
      this.#silent = 0
      const frames = this.#whole(chunk)
      if (!frames) return
      this.#served = true
      onFrames(frames)
    })
    const watchdog = setInterval(() => {
      if (this.#silent++ < (this.#served ? SILENT_TICKS : BOOT_TICKS)) {
        if (this.#served) input.write(setup.ping)
        return
      }
      killed = `it did not answer for ${this.#silent * TICK_MS} ms and was killed`
      this.#child.kill('SIGKILL')
    }, TICK_MS)
    this.gone = new Promise(resolve => {
      const settle = (why: string, signal?: NodeJS.Signals | null) => {
        clearInterval(watchdog)
        for (const stream of [input, errors, output]) stream?.destroy()
        const said = errorText.trim()
        // A signal from outside is named beside what the zygote wrote to stderr before: open.ts tells a kill from a
        // failed start by it.
        const reason = signal && !killed && said ? `${why}: ${said}` : said || killed || why
        resolve({ reason, served: this.#served })
      }
      this.#child.once('error', error => settle(error.message))
      this.#child.once('exit', (code, signal) => setImmediate(settle, `it exited with ${code ?? signal}`, signal))
    })
  }

  /**
   * Sends frames to the zygote. Drops them until the zygote serves: they were meant for the previous zygote, whose
   * calls the pool has repeated or answered.
   */
  write(bytes: Uint8Array): void {
    if (this.#served) this.#child.stdin?.write(bytes)
  }

  end(): void {
    this.#child.stdin?.destroy()
    if (!this.#served) this.#child.kill('SIGKILL')
    setTimeout(() => this.#child.kill('SIGKILL'), END_MS).unref()
  }

  /**
   * Returns the whole frames received so far, in one piece; undefined if none is whole. A long frame is put together
   * once.
   */
  #whole(chunk: Buffer): Uint8Array<ArrayBuffer> | undefined {
    this.#parts.push(chunk)
    this.#size += chunk.length
    if (this.#size < this.#needed) return undefined
    const all = this.#parts.length === 1 ? chunk : Buffer.concat(this.#parts)
    let end = 0
    this.#needed = 4
    while (all.length - end >= 4) {
      const length = all.readUInt32LE(end)
      if (end + length > all.length) {
        this.#needed = length
        break
      }
      end += length
    }
    this.#parts = end < all.length ? [Buffer.from(all.subarray(end))] : []
    this.#size = all.length - end
    return end > 0 ? new Uint8Array(all.subarray(0, end)) : undefined
  }
}
