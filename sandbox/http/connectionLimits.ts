/**
 * Bounds the connections of an HTTP server: their number, in all and for one client address, and the time that a client
 * may take to send a request's headers.
 *
 * in   a server before it listens      out  the same server, bounded
 * Invariant: at the bound, a new connection replaces an idle one: one that never sent a request if there is one, else
 * the one that has been idle for longest; so a client that only connects locks nobody out. A connection with an open
 * request is never closed; if all have one, the new connection is closed. At the bound of one address, only an idle
 * connection of that address is replaced.
 */
import { readFileSync } from 'node:fs'
import type { IncomingMessage, Server, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'

export interface ConnectionLimits {
  /** Upper bound on open connections. */
  readonly maxConnections: number
  /** Milliseconds from the start of a connection, or of a request, within which the request's headers must arrive. */
  readonly headersMs: number
  /** Share of `maxConnections` that one client address may have, so that a client cannot take every connection. */
  readonly shareOfAddress?: number
}

/** Options of createServer: the interval at which Node closes connections that have exceeded `headersMs`. */
export const checking = (headersMs: number) => ({ connectionsCheckingInterval: Math.min(1000, headersMs) })
export const HEADERS_MS = 8000
/**
 * Milliseconds that a server keeps an idle connection open: longer than clients keep theirs, so that no client sends a
 * request on a connection that the server is closing.
 */
export const KEEP_ALIVE_MS = 75_000
/** Milliseconds after which the connection of a client that does not read its answer is closed. */
export const STALLED_MS = 60_000
const OF_ONE_ADDRESS = 0.75
const MOST = 8192

/**
 * Returns half the descriptors that this process may open, at least 8 and at most 8192: the rest is for its own files
 * and children.
 */
export function defaultMaxConnections(): number {
  let most = MOST * 2
  try {
    most = Number(/^Max open files +(\d+)/m.exec(readFileSync('/proc/self/limits', 'latin1'))?.[1] ?? most)
  } catch {
    // There is no /proc: `most` keeps its default.
  }
  return Math.max(8, Math.min(MOST, Math.floor(most / 2)))
}

interface Connection {
  readonly socket: Socket
  readonly address: string
  open: number
  asked: boolean
}

export function limitConnections(
  server: Server,
  { maxConnections, headersMs, shareOfAddress = OF_ONE_ADDRESS }: ConnectionLimits,
): void {
  server.headersTimeout = headersMs
  const mostOfOne = Math.max(1, Math.floor(shareOfAddress * maxConnections))
  /** Connections without an open request, the longest without one first. */
  const idle = new Set<Connection>()
  const all = new Map<Socket, Connection>()
  const counts = new Map<string, number>()

  server.on('connection', (socket: Socket) => {
    const address = socket.remoteAddress ?? ''
    const hasItsShare = (counts.get(address) ?? 0) >= mostOfOne
    if (hasItsShare || all.size >= maxConnections) {
      const victim = longestIdle(idle, hasItsShare ? address : undefined)
      if (victim === undefined) {
        socket.destroy() // no answer is sent: Node could send one only after it has read a request
        return
      }
      forget(victim)
      victim.socket.destroy()
    }
    const connection: Connection = { socket, address, open: 0, asked: false }
    all.set(socket, connection)
    idle.add(connection)
    counts.set(address, (counts.get(address) ?? 0) + 1)
    socket.once('close', () => forget(connection))
  })
  server.on('request', ({ socket }: IncomingMessage, response: ServerResponse) => {
    const connection = all.get(socket)
    if (connection === undefined) return
    connection.open++
    connection.asked = true
    idle.delete(connection)
    response.once('close', () => {
      if (--connection.open === 0 && all.has(socket)) idle.add(connection)
    })
  })

  function forget(connection: Connection): void {
    if (!all.delete(connection.socket)) return
    idle.delete(connection)
    const left = (counts.get(connection.address) ?? 1) - 1
    if (left === 0) counts.delete(connection.address)
    else counts.set(connection.address, left)
  }
}

function longestIdle(idle: Iterable<Connection>, address: string | undefined): Connection | undefined {
  let found: Connection | undefined
  for (const connection of idle) {
    if (address !== undefined && connection.address !== address) continue
    if (!connection.asked) return connection
    found ??= connection
  }
  return found
}
