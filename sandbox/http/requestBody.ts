/**
 * Reads the body of a request into memory, within a byte budget that all requests share.
 *
 * in   a request      out  its bytes, or the HTTP status that refuses it
 * Invariant: the bytes held of all bodies are at most the budget; an announced length does not count. A body that does
 * not begin, stops arriving, or arrives too slowly is refused, so that an idle client cannot hold the budget. The
 * promise settles for every request, also for one that was closed before it is read.
 */
import type { IncomingMessage } from 'node:http'

/** Budget of bytes that may be held in memory at once. */
export class ByteBudget {
  #held = 0

  constructor(private readonly most: number) {}

  get held(): number {
    return this.#held
  }

  /** Takes bytes from the budget. Returns false, and takes none, if they do not fit. */
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
  /** Number of bytes taken from the budget. The caller gives them back, also for a refused body. */
  readonly taken: number
  /**
   * HTTP status of a refusal. 413: this body is too long. 503: the budget is used up. 408: the body arrives too slowly.
   * 400: it ended too early.
   */
  readonly refused?: BodyRefusal
}

export type BodyRefusal = 400 | 408 | 413 | 503

export interface BodyLimits {
  readonly maxBodyBytes: number
  /** Period in ms in which at least 64 KiB of a body, or its end, must arrive; otherwise the body is refused. */
  readonly bodyWaitMs: number
  /**
   * Period in ms in which a body's first byte must arrive. Default: FIRST_BYTE_MS, or bodyWaitMs if that is longer. A
   * body that has not begun holds nothing of the budget, and its client may be busy.
   */
  readonly firstByteMs?: number
}

export const FIRST_BYTE_MS = 30_000

const LEAST_BYTES = 65_536
/**
 * Multiple of maxBodyBytes up to which a refused body is read and discarded, so that its sender reads the answer.
 * Beyond it the connection is closed.
 */
const PATIENCE = 8

export function readBody(request: IncomingMessage, limits: BodyLimits, budget: ByteBudget): Promise<BodyRead> {
  const { maxBodyBytes, bodyWaitMs, firstByteMs = Math.max(FIRST_BYTE_MS, bodyWaitMs) } = limits
  // A closed request emits neither 'end' nor 'close' any more.
  if (request.destroyed) return Promise.resolve({ bytes: Buffer.alloc(0), taken: 0, refused: 400 })
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
    const look = (least: number) => {
      if (!request.complete && !refused && length - before < least) refuse(408)
      before = length
    }
    // setImmediate lets this process first read bytes that arrived while it was busy.
    const every = (ms: number, least: number) => setInterval(() => setImmediate(look, least), ms).unref()
    let watch = every(firstByteMs, 1)
    if (Number(request.headers['content-length'] ?? 0) > maxBodyBytes) refuse(413)
    request.on('data', (chunk: Buffer) => {
      length += chunk.length
      if (refused) {
        if (length > PATIENCE * maxBodyBytes) request.destroy()
        return
      }
      if (length === chunk.length) {
        clearInterval(watch)
        watch = every(bodyWaitMs, LEAST_BYTES)
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
    // A request that closes before 'end' means that the client disconnected.
    request.once('close', () => refused || refuse(400))
    request.on('error', () => undefined) // An error needs no handling here: 'close' follows it.
  })
}
