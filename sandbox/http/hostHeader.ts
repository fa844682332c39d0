/**
 * Checks the Host header of requests, against DNS rebinding: a web page whose host name is made to resolve to 127.0.0.1
 * can send requests to a local server, but they carry the page's host name.
 *
 * in   the address that a server listens on, further allowed names; a request's Host header
 * out  true if the request may be served
 * Invariant: a server on loopback answers requests for localhost, 127.x.x.x, [::1] and the allowed names only. A server
 * on any other address must require a token, which no page knows. It answers every name; if names are allowed
 * explicitly, only those, the address that it listens on, and loopback. A request without a Host header, which no
 * browser sends, is always served.
 */
import { isLoopback } from '../loopback'

export type HostCheck = (header: string | undefined) => boolean

/** Makes the check. @param allowed names, without a port, that requests may carry besides those of loopback */
export function hostCheck(listensOn: string, allowed: readonly string[] = []): HostCheck {
  if (!isLoopback(listensOn) && allowed.length === 0) return () => true
  const names = new Set([listensOn, ...allowed].map(name => name.toLowerCase()))
  return header => {
    if (header === undefined) return true // HTTP/1.0, which no browser speaks; Node refuses HTTP/1.1 without it.
    const name = /^(\[[^\]]*\]|[^:]*)(?::\d{1,5})?$/.exec(header)?.[1]?.toLowerCase()
    return name !== undefined && (names.has(name) || isLoopback(name.replace(/^\[|\]$/g, '')))
  }
}
