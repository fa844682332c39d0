/**
 * Reads a request's body into memory, out of a budget that all requests share.
 *
 * in   a request      out  its bytes, or the status that it is refused with
 * Invariant: bodies that are being read or worked on take at most the budget; nothing is read beyond it. What a client only
 * announces takes nothing, and a body that does not come is given up, so that nobody holds the budget by doing nothing.
 */
import type { IncomingMessage } from 'node:http'

/** Bytes that may be held at once. */
export class ByteBudget {
  #held = 0

  constructor(private readonly most: number) {}

  get held(): number {
    return this.#held
  }

  /** False where they do not fit. */
  take(bytes: number): boolean {
    if (this.#held + bytes > this.most) return false
    this.#held += bytes
    return true
  }

  give(bytes: number): void {
    this.#held -= bytes
  }
}

export interface BodyRead {
  readonly bytes: Buffer
  /** What was taken from the budget; it is the caller's to give back, also when nothing was read. */
  readonly taken: number
  /** 413: this body is too long. 503: all of them are. 408: it does not come. 400: it ended before it was complete. */
  readonly refused?: BodyRefusal
}

export type BodyRefusal = 400 | 408 | 413 | 503

export interface BodyLimits {
  readonly maxBodyBytes: number
  /** A body that brings less than 64 KiB in this time, and not its end, is given up. */
  readonly bodyWaitMs: number
}

const LEAST_BYTES = 65_536
/** A refused body is read on and thrown away, so that its sender reads the answer; one this many times too long is cut. */
const PATIENCE = 8

export function readBody(request: IncomingMessage, limits: BodyLimits, budget: ByteBudget): Promise<BodyRead> {
  const { maxBodyBytes, bodyWaitMs } = limits
  return new Promise(resolve => {
    let chunks: Buffer[] = []
    let taken = 0
    let length = 0
    let before = 0
    let refused = false
    const refuse = (status: BodyRefusal) => {
      clearInterval(watch)
      refused = true
      chunks = []
      resolve({ bytes: Buffer.alloc(0), taken, refused: status })
    }
    const look = () => {
      if (!request.complete && !refused && length - before < LEAST_BYTES) refuse(408)
      before = length
    }
    // After what has come meanwhile was read: this process may have been busy itself.
    const watch = setInterval(() => setImmediate(look), bodyWaitMs)
    if (Number(request.headers['content-length'] ?? 0) > maxBodyBytes) refuse(413)
    request.on('data', (chunk: Buffer) => {
      length += chunk.length
      if (refused) {
        if (length > PATIENCE * maxBodyBytes) request.destroy()
        return
      }
      if (length > maxBodyBytes) return refuse(413)
      if (!budget.take(chunk.length)) return refuse(503)
      taken = length
      chunks.push(chunk)
    })
    request.once('end', () => {
      clearInterval(watch)
      if (!refused) resolve({ bytes: Buffer.concat(chunks), taken })
    })
    request.once('close', () => refused || refuse(400)) // without an end: the client left in the middle of it
    request.on('error', () => undefined) // it is closed next
  })
}
