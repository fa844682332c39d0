/**
 * Reads the JSON bodies of requests, within a byte budget that all requests of a gateway share.
 *
 * in   requests        out  the values of their bodies
 * Invariant: a body counts against the budget from its first byte until its call is placed or its request is answered.
 * From then on the bound on waiting calls limits what is held. A refused body is read and discarded, up to a multiple
 * of the bound, so that its sender reads the refusal.
 */
import type { IncomingMessage, ServerResponse } from 'node:http'
import { type BodyRefusal, ByteBudget, FIRST_BYTE_MS, readBody } from '../../sandbox/http/requestBody'
import { GatewayError, invalid } from '../gatewayError'

const MIB = 1024 * 1024
/** Default bound on all bodies together: 1,000 agents may each send 500 KiB, about 130,000 tokens, at the same time. */
const mostHeldBytes = 512 * MIB
/** Period in ms in which, once a body has begun, at least 64 KiB of it, or its end, must arrive. */
const bodyWaitMs = 10_000

export interface BodyBounds {
  readonly maxBodyBytes: number
  /** Upper bound on the bytes of all bodies together. Default: 512 MiB, or `maxBodyBytes` if that is larger. */
  readonly maxHeldBytes?: number
}

export class JsonBodies {
  private readonly budget: ByteBudget
  private readonly held = new WeakMap<ServerResponse, number>()

  constructor(private readonly bounds: BodyBounds) {
    const { maxBodyBytes, maxHeldBytes = Math.max(mostHeldBytes, maxBodyBytes) } = bounds
    this.budget = new ByteBudget(maxHeldBytes)
  }

  /** Reads a request's body; an empty body is `{}`. @throws GatewayError `invalid`, `too-large`, `slow`, `unavailable` */
  async read(request: IncomingMessage, response: ServerResponse): Promise<unknown> {
    const { maxBodyBytes } = this.bounds
    const { bytes, taken, refused } = await readBody(request, { maxBodyBytes, bodyWaitMs }, this.budget)
    this.held.set(response, taken)
    response.once('close', () => this.release(response))
    if (response.destroyed || refused !== undefined) this.release(response)
    if (refused !== undefined) throw refusal(refused, maxBodyBytes)
    if (bytes.length === 0) return {}
    try {
      return JSON.parse(bytes.toString('utf8'))
    } catch (cause) {
      throw invalid(`the body is not JSON: ${(cause as Error).message}`)
    }
  }

  /**
   * Gives the bytes of a request's body back to the budget. To be called when the request's call is placed, since other
   * bounds limit placed calls; for a request that ends without a call it happens by itself.
   */
  release(response: ServerResponse): void {
    this.budget.give(this.held.get(response) ?? 0)
    this.held.delete(response)
  }
}

function refusal(status: BodyRefusal, maxBodyBytes: number): GatewayError {
  switch (status) {
    case 413:
      return new GatewayError({
        kind: 'too-large',
        code: 'request_too_large',
        message: `the request body is too large: the gateway accepts at most ${maxBodyBytes} bytes (--max-body-mb)`,
      })
    case 503:
      return new GatewayError({
        kind: 'unavailable',
        code: 'bodies_too_large',
        message: 'the bodies of the requests in progress hold all bytes that the gateway allows: try again',
      })
    case 408:
      return new GatewayError({
        kind: 'slow',
        code: 'body_too_slow',
        message: `the body arrives too slowly: no byte in ${FIRST_BYTE_MS} ms, or less than 64 KiB in ${bodyWaitMs} ms: send it again`,
      })
    case 400:
      return invalid('the connection was closed before the end of the body')
  }
}
