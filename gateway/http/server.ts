/**
 * The gateway's HTTP server: finds the session of a request and passes it on to a dialect or to the sessions API.
 *
 * in   requests        out  answers, in the form of the dialect that was asked
 * Invariant: a session is named by its path or by its key; a request whose path and key name two sessions is refused.
 * A gateway with a key of its own answers only `/health` without a key; a gateway without a key is on loopback, and
 * answers only requests whose Host header is a loopback name.
 */
import { timingSafeEqual } from 'node:crypto'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { percentDecoded } from '../../config/percentDecoded'
import { TroupeError } from '../../runtime/errors'
import type { Log } from '../../runtime/log'
import { chat } from '../dialects/chat'
import { completions } from '../dialects/completions'
import type { DialectAdapter } from '../dialects/dialect'
import { messages } from '../dialects/messages'
import { openaiError } from '../dialects/openaiError'
import { responses } from '../dialects/responses'
import { GatewayError, invalid, refusalOf } from '../gatewayError'
import { chatMessage } from '../rendering/chatMessage'
import type { ConversationRenderer } from '../rendering/conversationRenderer'
import type { SessionState } from '../session/session'
import { keyDigest } from '../session/sessions'
import { answerById, answerCall, type CallRouteParts, sendError } from './callRoute'
import { keyOf, readJson, sendJson } from './exchange'
import {
  endFrom,
  forkFrom,
  openedBody,
  openFrom,
  rewardFrom,
  sendEvents,
  sendState,
  stateOf,
  treeOf,
} from './sessionRoutes'

export interface ServerOptions extends CallRouteParts {
  readonly host: string
  readonly port: number
  /** Key of the gateway: opens sessions. Required off loopback. */
  readonly key?: string
  readonly maxBodyBytes: number
  readonly model: string
  /** True: calls that name another model than `model` are refused. */
  readonly strictModel: boolean
  readonly renderer: ConversationRenderer
  readonly log: Pick<Log, 'warn'>
}

export interface GatewayServer {
  readonly url: string
  /** Stops listening, and closes each connection when it is idle, at the latest after `longestCloseMs`. */
  close(): Promise<void>
}

const dialects: Readonly<Record<string, DialectAdapter>> = {
  'chat/completions': chat,
  completions,
  responses,
  messages,
}

/**
 * Pause between two looks for idle connections while the server closes, and the time after which all are closed, ms.
 */
const closeLookMs = 20
const longestCloseMs = 2000

/**
 * Connections that may wait to be accepted. Of a thousand agents that begin at once, Node's default of 511 leaves the
 * others to try again after seconds.
 */
const mostConnecting = 4096

const loopback: ReadonlySet<string> = new Set(['127.0.0.1', '::1', 'localhost'])

/** @throws TroupeError gateway.no_key off loopback without a key; gateway.cannot_listen */
export async function openServer(options: ServerOptions): Promise<GatewayServer> {
  const { host, port, key, log } = options
  if (key === undefined && !loopback.has(host)) {
    throw new TroupeError('gateway.no_key', {
      boundary: 'config',
      retriable: false,
      message: `the gateway would listen on ${host} without a key, so that anyone in the network could use and reward its sessions`,
      hint: 'give --key-file FILE, or listen on 127.0.0.1',
    })
  }
  const routes = routesOf(options)
  const server = createServer((request, response) => {
    const { pathname } = new URL(request.url ?? '/', 'http://gateway')
    const form = /\/v1\/messages/.test(pathname) ? messages : { error: openaiError }
    routes(request, response, pathname).catch(thrown => {
      const refusal = refusalOf(thrown)
      if (refusal.status === 500)
        log.warn({ err: thrown, path: pathname }, 'a request failed by a fault of the gateway')
      sendError(form, refusal, response)
      // A body that was not read to its end would be taken for the next request.
      if (!request.complete) response.once('finish', () => request.destroy())
    })
  })
  server.requestTimeout = 120_000
  server.headersTimeout = 30_000
  await new Promise<void>((resolve, reject) => {
    server.once('error', cause =>
      reject(
        new TroupeError('gateway.cannot_listen', {
          ...{ boundary: 'config', retriable: false, cause },
          message: `the gateway cannot listen on ${host}:${port}: ${cause.message}`,
          hint: 'if the port is in use, give another --port (0 takes a free one); else give another --host',
        }),
      ),
    )
    server.listen({ port, host, backlog: mostConnecting }, resolve)
  })
  const bound = (server.address() as AddressInfo).port
  return {
    url: `http://${host.includes(':') ? `[${host}]` : host}:${bound}`,
    close: () =>
      new Promise(resolve => {
        // A connection whose answer was just sent becomes idle a moment later.
        const idle = setInterval(() => server.closeIdleConnections(), closeLookMs)
        const end = setTimeout(() => server.closeAllConnections(), longestCloseMs)
        server.close(() => {
          clearInterval(idle)
          clearTimeout(end)
          resolve()
        })
        server.closeIdleConnections()
      }),
  }
}

function routesOf(options: ServerOptions) {
  const { sessions, calls, key, maxBodyBytes, model, renderer } = options
  const opening = new Map<string, Promise<SessionState>>()
  const isGatewayKey = (given: string | undefined): boolean =>
    given !== undefined &&
    key !== undefined &&
    timingSafeEqual(Buffer.from(keyDigest(given)), Buffer.from(keyDigest(key)))

  function checkHost(request: IncomingMessage): void {
    if (key !== undefined) return
    const name = (request.headers.host ?? '').replace(/:\d+$/, '').replace(/^\[|\]$/g, '')
    if (loopback.has(name)) return
    throw new GatewayError({
      kind: 'forbidden',
      code: 'bad_host',
      message: `a gateway without a key answers only requests to 127.0.0.1, ::1 or localhost, not to '${name}': start it with --key-file to use another name`,
    })
  }

  /** Finds the session of a call. If the gateway has no key, each unknown key gets a session of its own. */
  async function sessionOf(request: IncomingMessage, named: string | undefined): Promise<SessionState> {
    // On a gateway without a key, all clients that send no key share one session.
    const given = keyOf(request) ?? (key === undefined && named === undefined ? 'none' : undefined)
    const byPath = named === undefined ? undefined : sessions.get(named)
    const ofKey = given === undefined ? undefined : sessions.ofKey(given)
    if (given !== undefined && (ofKey !== undefined || (key !== undefined && !isGatewayKey(given)))) {
      const session = ofKey ?? sessions.byKeyText(given)
      if (byPath === undefined || byPath === session) return session
      throw new GatewayError({
        kind: 'forbidden',
        code: 'other_session',
        message: `the key is of session ${session.id}, the path names ${byPath.id}`,
      })
    }
    if (byPath !== undefined && (key === undefined || isGatewayKey(given))) return byPath
    if (key !== undefined)
      throw new GatewayError({
        kind: 'unauthorized',
        code: 'no_key',
        message: 'give the key of a session: Authorization: Bearer KEY, or x-api-key: KEY',
      })
    const own = given!
    const known = opening.get(own)
    if (known !== undefined) return known
    const opened = sessions
      .open({ key: own })
      .then(one => one.session)
      .finally(() => opening.delete(own))
    opening.set(own, opened)
    return opened
  }

  /** Session that a request of the sessions API may read and change. */
  function owned(request: IncomingMessage, id: string): SessionState {
    const session = sessions.get(id)
    const given = keyOf(request)
    if (key === undefined || isGatewayKey(given)) return session
    if (given !== undefined && sessions.byKeyText(given) === session) return session
    throw new GatewayError({
      kind: given === undefined ? 'unauthorized' : 'forbidden',
      code: 'no_key',
      message: `give the gateway's key, or that of session ${id}`,
    })
  }

  function checkGatewayKey(request: IncomingMessage): void {
    if (key === undefined || isGatewayKey(keyOf(request))) return
    throw new GatewayError({
      kind: 'unauthorized',
      code: 'no_key',
      message: "give the gateway's key: Authorization: Bearer KEY",
    })
  }

  const urlOf = (request: IncomingMessage) => `http://${request.headers.host ?? '127.0.0.1'}`

  async function sessionsApi(request: IncomingMessage, response: ServerResponse, pathname: string): Promise<void> {
    const match = /^\/troupe\/v1\/sessions(?:\/(.+?))?(?:\/(reward|end|events|tree|fork))?\/?$/.exec(pathname)
    if (match === null) throw noRoute(request, pathname)
    const [, id, verb] = match
    const isPost = request.method === 'POST'
    if (id === undefined) {
      checkGatewayKey(request)
      if (!isPost) return sendJson(response, 200, { data: sessions.list().map(stateOf) })
      const opened = await openFrom(sessions, await readJson(request, maxBodyBytes))
      return sendJson(response, 200, openedBody(opened, urlOf(request)))
    }
    const session = owned(request, idIn(id))
    if (verb === undefined && !isPost) return sendState(response, session)
    if (verb === 'tree' && !isPost) return sendJson(response, 200, treeOf(session))
    if (verb === 'events' && !isPost) {
      const from = Number(new URL(request.url!, 'http://gateway').searchParams.get('from') ?? 0)
      return sendEvents(sessions, session, Number.isSafeInteger(from) ? from : 0, response)
    }
    if (!isPost || verb === undefined || verb === 'tree' || verb === 'events') throw noRoute(request, pathname)
    const body = await readJson(request, maxBodyBytes)
    if (verb === 'reward') return sendJson(response, 200, await rewardFrom(sessions, session, body))
    if (verb === 'end') return sendJson(response, 200, await endFrom(sessions, session, body))
    checkGatewayKey(request)
    return sendJson(response, 200, openedBody(await forkFrom(sessions, session, body), urlOf(request)))
  }

  return async (request: IncomingMessage, response: ServerResponse, pathname: string): Promise<void> => {
    checkHost(request)
    if (pathname === '/health') return sendJson(response, 200, { status: 'ok', running: calls.running })
    if (pathname.startsWith('/troupe/')) return sessionsApi(request, response, pathname)
    const match = /^(?:\/s\/(.+?))?\/v1\/(.+?)\/?$/.exec(pathname)
    if (match === null) throw noRoute(request, pathname)
    const named = match[1] === undefined ? undefined : idIn(match[1])
    const route = match[2]!
    // These routes need no session. If calls need a key, these routes need one too.
    const isOfNoSession = route === 'models' || route === 'messages/count_tokens'
    if (isOfNoSession && key !== undefined && !isGatewayKey(keyOf(request))) await sessionOf(request, named)
    if (route === 'models' && request.method === 'GET') return sendJson(response, 200, modelsBody(model))
    if (request.method !== 'POST') throw noRoute(request, pathname)
    if (route === 'messages/count_tokens') {
      const { messages: list, tools } = messages.parse(await readJson(request, maxBodyBytes), () => undefined)
      const { tokens } = await renderer.whole(list.map(chatMessage), tools)
      return sendJson(response, 200, { input_tokens: tokens.length })
    }
    const dialect = dialects[route]
    if (dialect === undefined) throw noRoute(request, pathname)
    const session = await sessionOf(request, named)
    await options.atPoint?.('session.found')
    const parsed = dialect.parse(await readJson(request, maxBodyBytes), id => answerById(session, id))
    await options.atPoint?.('request.read')
    if (options.strictModel && parsed.model !== model)
      throw new GatewayError({
        kind: 'not-found',
        code: 'model_not_found',
        message: `The model '${parsed.model}' does not exist; this gateway serves '${model}'`,
        param: 'model',
      })
    return answerCall(options, dialect, parsed, session, request, response)
  }
}

const noRoute = ({ method }: IncomingMessage, pathname: string) =>
  new GatewayError({
    kind: 'not-found',
    code: 'no_route',
    message: `${method} ${pathname} is not served; see docs/gateway.md for what is`,
  })

/** Decodes the session's id in a path. */
function idIn(path: string): string {
  const id = percentDecoded(path)
  if (id === undefined) throw invalid(`the session '${path}' is not percent-encoded: a % in it begins no escape`)
  return id
}

/** The list of models, with the fields of both OpenAI and Anthropic. */
const modelsBody = (id: string) => ({
  object: 'list',
  data: [
    {
      id,
      object: 'model',
      type: 'model',
      created: 0,
      created_at: '1970-01-01T00:00:00Z',
      owned_by: 'troupe',
      display_name: id,
    },
  ],
  ...{ has_more: false, first_id: id, last_id: id },
})
