/**
 * Decides which requests the dashboard serves.
 *
 * in   a request's method and headers        out  undefined, or the status and reason of the refusal
 * Invariant: a page of another site reads nothing: its requests carry another Host (DNS rebinding) or another Origin.
 * A server on another address than loopback serves no data without the token. An action is a POST of JSON from this
 * server's own page with the token, on loopback too: other users of the machine can reach a port of loopback.
 */
import type { IncomingHttpHeaders } from 'node:http'
import { hostCheck } from '../../sandbox/http/hostHeader'
import type { TokenCheck } from '../../sandbox/judge/bearerToken'

export interface Refusal {
  readonly status: 400 | 401 | 403 | 405 | 413 | 415
  readonly code: string
  readonly message: string
}

export interface GuardOptions {
  readonly host: string
  readonly allowedHosts: readonly string[]
  /** Check of the bearer token; undefined on loopback without a token. */
  readonly token: TokenCheck | undefined
  /** Check of the bearer token of actions; undefined if actions are not allowed. */
  readonly actionToken?: TokenCheck | undefined
}

export interface GuardedRequest {
  readonly method: string
  readonly headers: IncomingHttpHeaders
  /** True for requests that answer with data of a run; the page's own files hold none. */
  readonly isData: boolean
  /** True for the address of a run's actions. */
  readonly isAction?: boolean
}

/** Upper bound on the body of an action, bytes. */
const mostBody = 4096

export function requestGuard({
  host,
  allowedHosts,
  token,
  actionToken,
}: GuardOptions): (request: GuardedRequest) => Refusal | undefined {
  const isHost = hostCheck(host, allowedHosts)
  return ({ method, headers, isData, isAction = false }) => {
    if (!isHost(headers.host))
      return refusal(
        403,
        'bad_host',
        `the host ${JSON.stringify(headers.host ?? '')} is not allowed: start the dashboard with --allow-host NAME`,
      )
    if (headers.origin !== undefined && hostOf(headers.origin) !== headers.host)
      return refusal(403, 'bad_origin', 'pages of another origin get no answer')
    if (headers['sec-fetch-site'] === 'cross-site' && isData)
      return refusal(403, 'bad_origin', 'pages of another site get no answer')
    if (method === 'POST' && isAction && actionToken !== undefined) return actionRefusal(headers, actionToken)
    if (method !== 'GET' && method !== 'HEAD')
      return refusal(405, 'bad_method', `${method} is not served here: only actions take a POST, with --allow-actions`)
    if (headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > 0)
      return refusal(413, 'body', 'a request that is no action must have no body')
    if (isData && token !== undefined && !token(headers.authorization))
      return refusal(
        401,
        'no_token',
        'the request has no valid token: open the page with #token=TOKEN at the end of its address',
      )
    return undefined
  }
}

function actionRefusal(headers: IncomingHttpHeaders, token: TokenCheck): Refusal | undefined {
  if (headers.origin === undefined)
    return refusal(403, 'bad_origin', "an action needs the Origin header of this server's page")
  if (headers['content-type']?.split(';')[0] !== 'application/json')
    return refusal(415, 'bad_type', 'the body of an action is JSON: content-type application/json')
  const length = Number(headers['content-length'] ?? Number.NaN)
  if (headers['transfer-encoding'] !== undefined || !(length <= mostBody))
    return refusal(413, 'body', `the body of an action has a content-length of at most ${mostBody} bytes`)
  if (token(headers.authorization)) return undefined
  return refusal(
    401,
    'no_token',
    'an action needs the token: open the address that `troupe dashboard --allow-actions` printed, in this tab',
  )
}

const refusal = (status: Refusal['status'], code: string, message: string): Refusal => ({
  status,
  code: `dashboard.${code}`,
  message,
})

function hostOf(origin: string): string | undefined {
  try {
    return new URL(origin).host
  } catch {
    return undefined
  }
}
