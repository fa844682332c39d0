/**
 * Decides which session a request may use, and what it may do with the gateway.
 *
 * in   a request's headers, the session that its path names        out  the session; a refusal
 * Invariant: a session is named by its path or by its key; a request whose path and key name two sessions is refused.
 * A gateway with a key of its own answers only `/health` without a key. A gateway without a key is on loopback; it
 * answers only requests whose Host header is a loopback name, and none of a web page.
 */
import { timingSafeEqual } from 'node:crypto'
import type { IncomingMessage } from 'node:http'
import { hostCheck } from '../../sandbox/http/hostHeader'
import { isOfWebPage } from '../../sandbox/http/webPage'
import { GatewayError } from '../gatewayError'
import type { SessionState } from '../session/session'
import { keyDigest, type Sessions } from '../session/sessions'
import { keyOf } from './exchange'

export interface AccessOptions {
  readonly sessions: Sessions
  /** Address that the gateway listens on. */
  readonly host: string
  /** Key of the gateway: opens sessions. */
  readonly key?: string
}

export interface Access {
  /** @throws GatewayError `forbidden` if a web page may have sent the request */
  checkSender(request: IncomingMessage): void
  /** True if calls need no key, or the request has the gateway's. */
  isMaster(request: IncomingMessage): boolean
  /** @throws GatewayError `unauthorized` unless the request may open and list sessions */
  checkMaster(request: IncomingMessage): void
  /** Finds the session of a call. If the gateway has no key, each unknown key gets a session of its own. */
  sessionOf(request: IncomingMessage, named: string | undefined): Promise<SessionState>
  /** Session that a request of the sessions API may read and change. */
  owned(request: IncomingMessage, id: string): SessionState
}

export function accessTo({ sessions, host, key }: AccessOptions): Access {
  const opening = new Map<string, Promise<SessionState>>()
  const isOurs = hostCheck(host)
  const isGatewayKey = (given: string | undefined): boolean =>
    given !== undefined &&
    key !== undefined &&
    timingSafeEqual(Buffer.from(keyDigest(given)), Buffer.from(keyDigest(key)))
  const isMaster = (request: IncomingMessage) => key === undefined || isGatewayKey(keyOf(request))

  return {
    isMaster,

    checkSender({ headers }) {
      if (key !== undefined) return
      if (!isOurs(headers.host)) {
        const name = (headers.host ?? '').slice(0, 100)
        throw forbidden(
          'bad_host',
          `a gateway without a key answers only requests to 127.0.0.1, ::1 or localhost, not to '${name}': start it with --key-file to use another name`,
        )
      }
      if (isOfWebPage(headers))
        throw forbidden(
          'web_page',
          'a web page may use a gateway with a key only: start it with --key-file, or send the request without the header Origin',
        )
    },

    checkMaster(request) {
      if (isMaster(request)) return
      throw noKey("give the gateway's key: Authorization: Bearer KEY")
    },

    async sessionOf(request, named) {
      // On a gateway without a key, all clients that send no key share one session.
      const given = keyOf(request) ?? (key === undefined && named === undefined ? 'none' : undefined)
      const byPath = named === undefined ? undefined : sessions.get(named)
      const ofKey = given === undefined ? undefined : sessions.ofKey(given)
      if (given !== undefined && (ofKey !== undefined || (key !== undefined && !isGatewayKey(given)))) {
        const session = ofKey ?? sessions.byKeyText(given)
        if (byPath === undefined || byPath === session) return session
        throw forbidden('other_session', `the key is of session ${session.id}, the path names ${byPath.id}`)
      }
      if (byPath !== undefined && (key === undefined || isGatewayKey(given))) return byPath
      if (key !== undefined) throw noKey('give the key of a session: Authorization: Bearer KEY, or x-api-key: KEY')
      const own = given!
      const known = opening.get(own)
      if (known !== undefined) return known
      const opened = sessions
        .open({ key: own })
        .then(one => one.session)
        .finally(() => opening.delete(own))
      opening.set(own, opened)
      return opened
    },

    owned(request, id) {
      const session = sessions.get(id)
      if (isMaster(request)) return session
      const given = keyOf(request)
      if (given !== undefined && sessions.byKeyText(given) === session) return session
      const message = `give the gateway's key, or that of session ${id}`
      throw given === undefined ? noKey(message) : forbidden('no_key', message)
    },
  }
}

const forbidden = (code: string, message: string) => new GatewayError({ kind: 'forbidden', code, message })
const noKey = (message: string) => new GatewayError({ kind: 'unauthorized', code: 'no_key', message })
