/** Reads headers of requests and writes JSON answers, with node:http's classes. */
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { GatewayError } from '../gatewayError'

/** Returns the key of a request: a bearer token, or Anthropic's header. */
export function keyOf({ headers }: IncomingMessage): string | undefined {
  const bearer = /^Bearer\s+(\S+)$/i.exec(headers.authorization ?? '')?.[1]
  const other = headers['x-api-key']
  return bearer ?? (typeof other === 'string' && other !== '' ? other : undefined)
}

export function headerOf({ headers }: IncomingMessage, name: string): string | undefined {
  const value = headers[name]
  return typeof value === 'string' && value !== '' ? value : undefined
}

export function sendJson(
  response: ServerResponse,
  status: number,
  body: object,
  headers: Readonly<Record<string, string>> = {},
): void {
  const text = JSON.stringify(body)
  response.writeHead(status, {
    'content-type': 'application/json',
    'content-length': Buffer.byteLength(text),
    ...headers,
  })
  response.end(text)
}

/** Headers that tell client libraries whether to retry. Without them, the libraries retry every 409 and 500. */
export function retryHeaders(error: GatewayError): Record<string, string> {
  const after = error.retryAfterSeconds
  return after === undefined ? { 'x-should-retry': 'false' } : { 'retry-after': String(after) }
}
