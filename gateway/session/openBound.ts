/**
 * Bounds the sessions that are open at once, on a gateway that anyone on this machine may use.
 *
 * in   the sessions, the number of those that are being opened        out  a refusal that tells the client to wait
 * Invariant: a session counts until it has ended or expired.
 */
import { GatewayError } from '../gatewayError'
import type { SessionState } from './session'

/** @throws GatewayError `busy` if `mostOpen` sessions are open or being opened */
export function checkRoom(
  sessions: ReadonlyMap<string, SessionState>,
  opening: number,
  mostOpen: number,
  now: number,
): void {
  if (sessions.size + opening < mostOpen) return
  const isOpen = ({ ended, calls }: SessionState) => ended === null && calls.tree.opened!.expiresAt >= now
  const open = opening + [...sessions.values()].filter(isOpen).length
  if (open < mostOpen) return
  throw new GatewayError({
    kind: 'busy',
    code: 'too_many_sessions',
    message: `${open} sessions are open, the most that a gateway without a key allows: end some (POST /troupe/v1/sessions/ID/end), let them expire (--ttl-hours), or start the gateway with --key-file`,
  })
}
