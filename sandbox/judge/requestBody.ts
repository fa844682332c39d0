/**
 * Reads a request's body into memory, out of a budget that all requests share.
 *
 * in   a request      out  its bytes, or the status that it is refused with
 * Invariant: bodies that are being read or worked on take at most the budget; nothing is read beyond it.
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
  /** 413: this body is too long. 503: all of them are. 400: it ended before it was complete. */
  readonly refused?: 400 | 413 | 503
}

/** A refused body is read on and thrown away, so that its sender reads the answer; one this many times too long is cut. */
const PATIENCE = 8

export function readBody(request: IncomingMessage, maxBytes: number, budget: ByteBudget): Promise<BodyRead> {
  return new Promise(resolve => {
    let chunks: Buffer[] = []
    let length = 0
    let taken = 0
    let refused = false
    const refuse = (status: 400 | 413 | 503) => {
      refused = true
      chunks = []
      resolve({ bytes: Buffer.alloc(0), taken, refused: status })
    }
    const announced = Number(request.headers['content-length'] ?? 0)
    if (announced > maxBytes) refuse(413)
    else if (!budget.take(announced)) refuse(503)
    else taken = announced
    request.on('data', (chunk: Buffer) => {
      length += chunk.length
      if (refused) {
        if (length > PATIENCE * maxBytes) request.destroy()
        return
      }
      if (length > maxBytes) return refuse(413)
      // A chunked body announces nothing: it takes as it grows.
      if (length > taken) {
        if (!budget.take(length - taken)) return refuse(503)
        taken = length
      }
      chunks.push(chunk)
    })
    request.once('end', () => refused || resolve({ bytes: Buffer.concat(chunks), taken }))
    request.once('close', () => refused || refuse(400)) // without an end: the client left in the middle of it
    request.on('error', () => undefined) // it is closed next
  })
}
