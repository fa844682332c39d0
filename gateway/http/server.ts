/**
 * The gateway's HTTP server: finds the session of a request and passes it on to a dialect or to the sessions API.
 *
 * in   requests        out  answers, in the form of the dialect that was asked
 * Invariant: every request is answered, whatever its target and body, unless its connection closes first.
 */
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { percentDecoded } from '../../config/percentDecoded'
import { TroupeError } from '../../runtime/errors'
import type { Log } from '../../runtime/log'
import { boundedServer } from '../../sandbox/http/boundedServer'
import { KEEP_ALIVE_MS } from '../../sandbox/http/connectionLimits'
import { requestTarget } from '../../sandbox/http/requestTarget'
import { isLoopback } from '../../sandbox/loopback'
import { chat } from '../dialects/chat'
import { completions } from '../dialects/completions'
import type { DialectAdapter } from '../dialects/dialect'
import { messages } from '../dialects/messages'
import { openaiError } from '../dialects/openaiError'
import { responses } from '../dialects/responses'
import { GatewayError, invalid, refusalOf } from '../gatewayError'
import { chatMessage } from '../rendering/chatMessage'
import type { ConversationRenderer } from '../rendering/conversationRenderer'
import { accessTo } from './access'
import { answerById, answerCall, type CallRouteParts, sendError } from './callRoute'
import { sendJson } from './exchange'
import { type BodyBounds, JsonBodies } from './jsonBodies'
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

export interface ServerOptions extends Omit<CallRouteParts, 'bodies'>, BodyBounds {
  readonly host: string
  readonly port: number
  /** Key of the gateway: opens sessions. Required off loopback. */
  readonly key?: string
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
 * Upper bound on connections that wait to be accepted. With Node's default of 511, if a thousand agents connect at
 * once, those beyond it get a connection only seconds later, by a retry.
 */
const mostConnecting = 4096

/** @throws TroupeError gateway.no_key off loopback without a key; gateway.cannot_listen */
export async function openServer(options: ServerOptions): Promise<GatewayServer> {
  const { host, port, key, log } = options
  if (key === undefined && !isLoopback(host)) {
    throw new TroupeError('gateway.no_key', {
      boundary: 'config',
      retriable: false,
      message: `the gateway would listen on ${host} without a key, so that anyone in the network could use and reward its sessions`,
      hint: 'give --key-file FILE, or listen on 127.0.0.1',
    })
  }
  const routes = routesOf({ ...options, bodies: new JsonBodies(options) })
  const answer = (request: IncomingMessage, response: ServerResponse) => {
    const { path: pathname, query } = requestTarget(request.url)
    const form = /\/v1\/messages/.test(pathname) ? messages : { error: openaiError }
    return routes(request, response, pathname, query).catch(thrown => {
      const refusal = refusalOf(thrown)
      if (refusal.status === 500)
        log.warn({ err: thrown, path: pathname }, 'a request failed by a fault of the gateway')
      sendError(form, refusal, response)
      // The rest of an unread body would be taken for the next request, so the connection is closed. It stays open if
      // JsonBodies discards the rest, unless the body was refused because it comes too slowly.
      const isDiscarded = request.readableFlowing === true && refusal.kind !== 'slow'
      if (!request.complete && !isDiscarded) response.once('finish', () => request.destroy())
    })
  }
  // On loopback all agents have the same address, so one address may have all connections.
  const server = boundedServer(answer, isLoopback(host) ? { shareOfAddress: 1 } : {})
  server.requestTimeout = 120_000
  server.keepAliveTimeout = KEEP_ALIVE_MS
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

type Route = (
  request: IncomingMessage,
  response: ServerResponse,
  pathname: string,
  query: URLSearchParams,
) => Promise<void>

function routesOf(options: ServerOptions & CallRouteParts): Route {
  const { sessions, calls, model, renderer, bodies } = options
  const { checkSender, isMaster, checkMaster, sessionOf, owned } = accessTo(options)
  const urlOf = (request: IncomingMessage) => `http://${request.headers.host ?? '127.0.0.1'}`

  const sessionsApi: Route = async (request, response, pathname, query) => {
    const match = /^\/troupe\/v1\/sessions(?:\/(.+?))?(?:\/(reward|end|events|tree|fork))?\/?$/.exec(pathname)
    if (match === null) throw noRoute(request, pathname)
    const [, id, verb] = match
    const isPost = request.method === 'POST'
    if (id === undefined) {
      checkMaster(request)
      if (!isPost) return sendJson(response, 200, { data: sessions.list().map(stateOf) })
      const opened = await openFrom(sessions, await bodies.read(request, response))
      return sendJson(response, 200, openedBody(opened, urlOf(request)))
    }
    const session = owned(request, idIn(id))
    if (verb === undefined && !isPost) return sendState(response, session)
    if (verb === 'tree' && !isPost) return sendJson(response, 200, treeOf(session))
    if (verb === 'events' && !isPost) {
      const from = Number(query.get('from') ?? 0)
      return sendEvents(sessions, session, Number.isSafeInteger(from) ? from : 0, response)
    }
    if (!isPost || verb === undefined || verb === 'tree' || verb === 'events') throw noRoute(request, pathname)
    const body = await bodies.read(request, response)
    if (verb === 'reward') return sendJson(response, 200, await rewardFrom(sessions, session, body))
    if (verb === 'end') return sendJson(response, 200, await endFrom(sessions, session, body))
    checkMaster(request)
    return sendJson(response, 200, openedBody(await forkFrom(sessions, session, body), urlOf(request)))
  }

  return async (request, response, pathname, query) => {
    checkSender(request)
    if (pathname === '/health') return sendJson(response, 200, { status: 'ok', running: calls.running })
    if (pathname.startsWith('/troupe/')) return sessionsApi(request, response, pathname, query)
    const match = /^(?:\/s\/(.+?))?\/v1\/(.+?)\/?$/.exec(pathname)
    if (match === null) throw noRoute(request, pathname)
    const named = match[1] === undefined ? undefined : idIn(match[1])
    const route = match[2]!
    // These routes need no session. If calls need a key, these routes need one too.
    const isOfNoSession = route === 'models' || route === 'messages/count_tokens'
    if (isOfNoSession && !isMaster(request)) await sessionOf(request, named)
    if (route === 'models' && request.method === 'GET') return sendJson(response, 200, modelsBody(model))
    if (request.method !== 'POST') throw noRoute(request, pathname)
    if (route === 'messages/count_tokens') {
      const { messages: list, tools } = messages.parse(await bodies.read(request, response), () => undefined)
      const { tokens } = await renderer.whole(list.map(chatMessage), tools)
      return sendJson(response, 200, { input_tokens: tokens.length })
    }
    const dialect = dialects[route]
    if (dialect === undefined) throw noRoute(request, pathname)
    const session = await sessionOf(request, named)
    await options.atPoint?.('session.found')
    const parsed = dialect.parse(await bodies.read(request, response), id => answerById(session, id))
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
