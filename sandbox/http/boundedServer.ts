/**
 * Makes an HTTP server that no client can crash or exhaust: connections, the time for headers, and the time for which a
 * client may read nothing of its answer are bounded, and a fault of a handler becomes an answer.
 *
 * in   a handler of requests, bounds        out  a server that does not listen yet
 * Invariant: nothing that a handler throws, at once or later, reaches the process: it is answered 500, or the
 * connection is closed if the answer has begun. A connection whose client reads nothing of a complete answer for
 * STALLED_MS is closed.
 */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import {
  type ConnectionLimits,
  checking,
  defaultMaxConnections,
  HEADERS_MS,
  limitConnections,
  STALLED_MS,
} from './connectionLimits'

export type Handler = (request: IncomingMessage, response: ServerResponse) => unknown

export function boundedServer(
  handle: Handler,
  { maxConnections = defaultMaxConnections(), headersMs = HEADERS_MS, ...share }: Partial<ConnectionLimits> = {},
): Server {
  const server = createServer(checking(headersMs), (request, response) => {
    // Once the answer is sent, keep-alive sets a timeout of its own.
    response.once('prefinish', () => request.socket.setTimeout(STALLED_MS))
    served(handle, request, response).catch(() => {
      if (response.headersSent) response.destroy()
      else response.writeHead(500).end()
    })
  })
  limitConnections(server, { maxConnections, headersMs, ...share })
  return server
}

/** Calls the handler. The promise also rejects if the handler throws at once. */
async function served(handle: Handler, request: IncomingMessage, response: ServerResponse): Promise<void> {
  await handle(request, response)
}
