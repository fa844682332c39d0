/**
 * The dashboard's HTTP server: the page's files, answers about runs, and a stream of each run's new facts.
 *
 * in   GET requests; POST requests for actions        out  files, JSON, server-sent events
 * Invariant: the server only reads; an action is a process of its own. Each request passes the guard (Host, Origin,
 * method, body, token) before anything is done for it. On an address off loopback the server does not start without a
 * token.
 */
import { randomBytes } from 'node:crypto'
import type { IncomingMessage, Server, ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { asError, TroupeError } from '../../runtime/errors'
import { boundedServer } from '../../sandbox/http/boundedServer'
import { requestTarget } from '../../sandbox/http/requestTarget'
import { bearerCheck, tokenCheck } from '../../sandbox/judge/bearerToken'
import { isLoopback } from '../../sandbox/loopback'
import { answerActions } from './actions/answerActions'
import { RunningActions } from './actions/runningActions'
import { answer, placeOfRun, statusOf } from './answers'
import { OpenRuns, type RunsOptions } from './openRuns'
import { type PageFiles, pageFiles } from './pageFiles'
import { requestGuard } from './requestGuard'
import { streamFacts } from './stream'

export interface DashboardOptions extends RunsOptions {
  /** Port to listen on; 0 chooses a free one. */
  readonly port: number
  /** Address to listen on. Any other than loopback needs `tokenFile`. */
  readonly host: string
  readonly tokenFile?: string
  /** Names that requests may carry in their Host header, besides those of loopback. */
  readonly allowedHosts?: readonly string[]
  /** Command and first words of `troupe`, which runs the page's actions. Absent: the page only reads. */
  readonly actions?: readonly string[]
}

export interface Dashboard {
  readonly url: string
  /** Random token that actions need if there is no `tokenFile`; the address that is shown to the user contains it. */
  readonly actionToken: string | undefined
  close(): Promise<void>
}

/** Upper bound on open connections: a browser keeps up to six, and one stream. */
const maxConnections = 256
/** Upper bound on streams; each polls the log. */
const maxStreams = 64

/**
 * Starts the dashboard's server.
 * @throws TroupeError dashboard.unsafe_bind, dashboard.cannot_listen, dashboard.no_page; SandboxError judge.bad_token
 */
export async function openDashboard(options: DashboardOptions): Promise<Dashboard> {
  const { host, port, tokenFile, allowedHosts = [] } = options
  if (!isLoopback(host) && tokenFile === undefined) {
    throw failed(
      'unsafe_bind',
      `the dashboard shows every run of the bus, so it needs a token to listen on ${host}`,
      'give --token-file FILE, or listen on 127.0.0.1',
    )
  }
  const token = tokenFile === undefined ? undefined : tokenCheck(tokenFile)
  const own = options.actions === undefined || token !== undefined ? undefined : randomBytes(24).toString('hex')
  const actionToken = options.actions === undefined ? undefined : own === undefined ? token : bearerCheck(own)
  const guard = requestGuard({ host, allowedHosts, token, actionToken })
  const actions = options.actions === undefined ? undefined : new RunningActions(options.actions)
  const handler = requestHandler(new OpenRuns(options), await pageFiles(), guard, actions)
  const server = boundedServer((request, response) => handler.serve(request, response), { maxConnections })
  await listening(server, host, port)
  const address = server.address() as AddressInfo
  const name = address.family === 'IPv6' ? `[${address.address}]` : address.address
  return {
    url: `http://${name}:${address.port}/`,
    actionToken: own,
    async close() {
      const closed = new Promise<void>(resolve => server.close(() => resolve()))
      handler.end()
      server.closeAllConnections()
      await closed
      await actions?.close()
      await handler.close()
    },
  }
}

function requestHandler(
  runs: OpenRuns,
  files: PageFiles,
  guard: ReturnType<typeof requestGuard>,
  actions: RunningActions | undefined,
) {
  const ending = new AbortController()
  let streams = 0

  async function serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    for (const [name, value] of Object.entries(safeHeaders)) response.setHeader(name, value)
    try {
      const target = requestTarget(request.url)
      const path = target.path
        .split('/')
        .slice(1)
        .map(part => decodeURIComponent(part))
      const isData = path[0] === 'api'
      const isAction = isData && path[1] === 'runs' && path[3] === 'actions'
      const refusal = guard({ method: request.method ?? '', headers: request.headers, isData, isAction })
      if (refusal !== undefined) {
        response.setHeader('connection', 'close')
        return json(response, refusal.status, { code: refusal.code, message: refusal.message })
      }
      // A target such as `*` has no path.
      if (!target.path.startsWith('/')) return nothingThere(response)
      if (!isData) return file(response, files, path.join('/'))
      if (path[1] !== 'runs') return nothingThere(response)
      if (path.length === 2) return json(response, 200, await runs.list())
      await ofRun(request, response, path, target.query)
    } catch (thrown) {
      if (response.headersSent) return void response.destroy()
      const error =
        thrown instanceof URIError
          ? new TroupeError('dashboard.bad_query', {
              boundary: 'cli',
              retriable: false,
              message:
                'the URL of the request has a malformed escape: expected UTF-8, as % and two hexadecimal digits for each byte',
            })
          : asError(thrown)
      const code = error instanceof TroupeError ? error.code : 'dashboard.failed'
      const hint = error instanceof TroupeError ? error.hint : undefined
      json(response, statusOf(error), { code, message: error.message, ...(hint === undefined ? {} : { hint }) })
    }
  }

  async function ofRun(
    request: IncomingMessage,
    response: ServerResponse,
    path: readonly string[],
    query: URLSearchParams,
  ) {
    const [, , name = '', ...rest] = path
    if (rest[0] === 'stream' && rest.length === 1) return stream(request, response, name, query)
    if (rest[0] === 'actions') {
      const place = placeOfRun(runs, name)
      const answered = await runs.with(name, run =>
        answerActions({ actions, run, place, request, path: rest.slice(1) }),
      )
      return answered === undefined ? nothingThere(response) : json(response, answered.status, answered.value)
    }
    const found = await runs.with(name, run => answer({ run, place: placeOfRun(runs, name), path: rest, query }))
    return found === undefined ? nothingThere(response) : json(response, 200, found)
  }

  async function stream(request: IncomingMessage, response: ServerResponse, name: string, query: URLSearchParams) {
    if (streams >= maxStreams)
      return json(response, 503, {
        code: 'dashboard.busy',
        message: `${streams} streams of facts are open already, the most that this server allows`,
      })
    const gone = new AbortController()
    response.once('close', () => gone.abort())
    streams++
    try {
      const last = request.headers['last-event-id']
      const from = typeof last === 'string' && last !== '' ? last : (query.get('from') ?? undefined)
      await runs.with(name, run => streamFacts(run, response, from, AbortSignal.any([gone.signal, ending.signal])))
      response.end()
    } finally {
      streams--
    }
  }

  return { serve, end: () => ending.abort(), close: () => runs.close() }
}

/** The policy forbids inline scripts and styles, other origins, forms and frames. */
const safeHeaders = {
  'content-security-policy':
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
  'referrer-policy': 'no-referrer',
  'cross-origin-resource-policy': 'same-origin',
  'cross-origin-opener-policy': 'same-origin',
  'cache-control': 'no-store',
}

function json(response: ServerResponse, status: number, value: unknown): void {
  response.writeHead(status, { 'content-type': 'application/json; charset=utf-8' })
  response.end(JSON.stringify(value))
}

const nothingThere = (response: ServerResponse): void =>
  json(response, 404, { code: 'dashboard.not_found', message: 'nothing is at this address; the page is at /' })

function file(response: ServerResponse, files: PageFiles, name: string): void {
  const found = files.get(name === '' ? 'index.html' : name)
  if (found === undefined) {
    nothingThere(response)
    return
  }
  response.writeHead(200, { 'content-type': found.type })
  response.end(found.bytes)
}

const failed = (code: string, message: string, hint: string, retriable = false): TroupeError =>
  new TroupeError(`dashboard.${code}`, { boundary: 'cli', retriable, message, hint })

function listening(server: Server, host: string, port: number): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', (cause: NodeJS.ErrnoException) => {
      const isTaken = cause.code === 'EADDRINUSE'
      const message = isTaken
        ? `port ${port} of ${host} is taken`
        : `cannot listen on ${host}, port ${port}: ${cause.message}`
      reject(failed('cannot_listen', message, 'give another --port (0 takes a free one) or --host', isTaken))
    })
    server.listen({ host, port }, resolve)
  })
}
