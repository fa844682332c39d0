/**
 * Parses the target of a CONNECT request, which is HOST:PORT and nothing else (RFC 9110 §9.3.6).
 *
 * in   a target as a client sent it        out  host and port; undefined for anything else
 * Invariant: it never throws. The host is an IPv6 address (in brackets in the target), or up to 255 letters, digits,
 * `_`, `-` and `.`, which may be a name or an IPv4 address; the port is between 1 and 65535.
 */
import { isIPv6 } from 'node:net'

export interface HostPort {
  readonly host: string
  readonly port: number
}

export function hostPort(target = ''): HostPort | undefined {
  const [, inBrackets, name, digits] = /^(?:\[([\da-f:.]+)\]|([\w.-]{1,255})):(\d{1,5})$/i.exec(target) ?? []
  const port = Number(digits)
  const host = inBrackets ?? name
  if (host === undefined || port < 1 || port > 65_535) return undefined
  return inBrackets === undefined || isIPv6(inBrackets) ? { host, port } : undefined
}
