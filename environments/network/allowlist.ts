/**
 * HTTP proxy that reaches the hosts of an allowlist alone, for one environment without any other network.
 *
 * in   connections on a Unix socket, which a forwarder in the environment's network makes (keeper/forward.py)
 * out  forwarded HTTP requests, CONNECT tunnels, refusals
 * Invariant: a host is reached only if an entry names it, or if its address lies in a listed range. A listed name whose
 * address is this machine's, private or link-local is refused, unless a listed range contains that address. A listed
 * address is reached wherever it lies. Neither side is trusted: nothing that one of them sends throws into this
 * process, which is Troupe's own.
 */
import { lookup } from 'node:dns/promises'
import { once } from 'node:events'
import { closeSync, constants, openSync } from 'node:fs'
import {
  createServer,
  request as httpRequest,
  type IncomingMessage,
  type Server,
  type ServerResponse,
  STATUS_CODES,
} from 'node:http'
import { BlockList, connect, isIP, type Socket } from 'node:net'
import { pipeline } from 'node:stream'
import { asError } from '../../runtime/errors'
import { hostPort } from './hostPort'

/** Entry of an allowlist, as in Harbor: `host`, `*.host`, an address or a range of addresses; here also `host:port`. */
interface Entry {
  readonly host: string
  readonly port: number | undefined
  readonly range: BlockList | undefined
}

export const proxyPort = 3128
/** Variables by which programs find the proxy. */
export const proxyVariables = (): Readonly<Record<string, string>> => {
  const url = `http://127.0.0.1:${proxyPort}`
  const [here, names] = ['localhost,127.0.0.1,::1', ['http_proxy', 'https_proxy', 'HTTP_PROXY', 'HTTPS_PROXY']]
  return { ...Object.fromEntries(names.map(name => [name, url])), no_proxy: here, NO_PROXY: here }
}

const mostConnections = 128
const connectMs = 30_000
const idleMs = 600_000

const own = new BlockList()
for (const [network, bits] of [
  ['0.0.0.0', 8],
  ['10.0.0.0', 8],
  ['100.64.0.0', 10],
  ['127.0.0.0', 8],
  ['169.254.0.0', 16],
  ['172.16.0.0', 12],
  ['192.168.0.0', 16],
  ['224.0.0.0', 3],
] as const)
  own.addSubnet(network, bits, 'ipv4')
for (const [network, bits] of [
  ['::', 127],
  ['fc00::', 7],
  ['fe80::', 10],
  ['ff00::', 8],
] as const)
  own.addSubnet(network, bits, 'ipv6')

const familyOf = (address: string) => (isIP(address) === 6 ? 'ipv6' : 'ipv4')

/** Parses an entry of a task's allowlist. Targets of CONNECT requests are parsed by hostPort.ts. */
export function parseEntry(text: string): Entry {
  const [network = '', bits] = text.split('/')
  if (bits !== undefined) {
    const range = new BlockList()
    range.addSubnet(network, Number(bits), familyOf(network))
    return { host: '', port: undefined, range }
  }
  const [, host = text, port] = /^(\[[^\]]+\]|[^:]+)(?::(\d+))?$/.exec(text) ?? []
  return {
    host: host.toLowerCase().replace(/^\[|\]$/g, ''),
    port: port === undefined ? undefined : Number(port),
    range: undefined,
  }
}

export function isAllowed(entries: readonly Entry[], name: string, port: number): boolean {
  const host = name.toLowerCase().replace(/\.$/, '')
  return entries.some(
    entry =>
      (entry.port === undefined || entry.port === port) &&
      (entry.host.startsWith('*.') ? host.endsWith(entry.host.slice(1)) : host === entry.host),
  )
}

const isInRange = (entries: readonly Entry[], address: string) =>
  entries.some(({ range }) => range?.check(address, familyOf(address)))

/** Returns the address to connect to, or why there is none. */
async function addressOf(
  entries: readonly Entry[],
  host: string,
  port: number,
): Promise<{ to: string } | { no: string }> {
  const isNamed = isAllowed(entries, host, port)
  const unlisted = { no: `${host}:${port} is not among the allowed hosts of this task` }
  if (isIP(host) !== 0) return isNamed || isInRange(entries, host) ? { to: host } : unlisted
  if (!isNamed && entries.every(({ range }) => range === undefined)) return unlisted
  const found = await lookup(host).catch(() => undefined)
  if (found === undefined) return isNamed ? { no: `${host} has no address` } : unlisted
  if (isInRange(entries, found.address)) return { to: found.address }
  if (!isNamed) return unlisted
  if (!own.check(found.address, familyOf(found.address))) return { to: found.address }
  return { no: `${host} leads to ${found.address}, which is not public` }
}

export class AllowlistProxy {
  private constructor(
    private readonly server: Server,
    private readonly folder: number,
  ) {}

  /** Listens on `<directory>/proxy`. */
  static async open(directory: string, hosts: readonly string[]): Promise<AllowlistProxy> {
    const entries = hosts.map(parseEntry)
    const server = createServer((request, response) => {
      response.on('error', () => response.destroy())
      forward(entries, request, response).catch(thrown => refuse(response, 502, asError(thrown).message))
    })
    server.maxConnections = mostConnections
    server.on('connect', (request, socket, head) => {
      tunnel(entries, request, socket as Socket, head).catch(() => socket.destroy())
    })
    // A path through a descriptor is short, wherever the directory lies: socket paths have at most 107 bytes.
    const folder = openSync(directory, constants.O_RDONLY | constants.O_DIRECTORY)
    await new Promise<void>((resolve, reject) => {
      server.once('error', reject).listen(`/proc/self/fd/${folder}/proxy`, resolve)
    })
    server.unref()
    return new AllowlistProxy(server, folder)
  }

  close(): void {
    this.server.close()
    this.server.closeAllConnections()
    closeSync(this.folder)
  }
}

/** Answers a CONNECT request with a status and a reason, and closes the connection. */
const refuseTunnel = (socket: Socket, status: number, why: string): void =>
  void socket.end(
    `HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\ncontent-length: 0\r\nconnection: close\r\nx-reason: ${why}\r\n\r\n`,
  )

async function tunnel(
  entries: readonly Entry[],
  request: IncomingMessage,
  socket: Socket,
  head: Buffer,
): Promise<void> {
  socket.on('error', () => socket.destroy())
  const target = hostPort(request.url)
  if (target === undefined) return refuseTunnel(socket, 400, 'a tunnel leads to HOST:PORT')
  const place = await addressOf(entries, target.host, target.port)
  if ('no' in place) return refuseTunnel(socket, 403, place.no)
  if (socket.destroyed) return
  // Each direction ends by itself: either side may go on to send after the other has ended.
  const far = connect({ host: place.to, port: target.port, allowHalfOpen: true })
  socket.once('close', () => endAfter(socket, far))
  try {
    await once(far, 'connect', { signal: AbortSignal.timeout(connectMs) })
  } catch (thrown) {
    far.on('error', () => {}).destroy()
    return refuseTunnel(socket, 502, `${target.host}:${target.port} cannot be reached: ${reasonOf(thrown)}`)
  }
  for (const side of [far, socket]) side.setTimeout(idleMs, () => side.destroy())
  socket.write('HTTP/1.1 200 Connection established\r\n\r\n')
  if (head.length > 0) far.write(head)
  far.pipe(socket).pipe(far)
  far.on('error', () => undefined).on('close', () => endAfter(far, socket)) // 'close' follows an error
}

/**
 * Ends `side` of a tunnel after its other side closed. If the other side's data was read to its end, `side` still gets
 * all of it, however slowly it reads (its idle timeout bounds the wait); otherwise `side` is closed at once.
 */
function endAfter(closed: Socket, side: Socket): void {
  if (closed.readableEnded) side.destroySoon()
  else side.destroy()
}

/** Returns the code of a system error, not its message, which may have characters that no header may have. */
const reasonOf = (thrown: unknown): string => String((thrown as { readonly code?: unknown }).code ?? 'no answer')

async function forward(entries: readonly Entry[], request: IncomingMessage, response: ServerResponse): Promise<void> {
  let url: URL
  try {
    url = new URL(request.url ?? '')
  } catch {
    return refuse(response, 400, 'this is a proxy: ask for a whole URL')
  }
  if (url.protocol !== 'http:') return refuse(response, 400, 'only http is forwarded; https goes through CONNECT')
  const host = url.hostname.replace(/^\[|\]$/g, '')
  const place = await addressOf(entries, host, Number(url.port || 80))
  if ('no' in place) return refuse(response, 403, place.no)
  if (response.destroyed) return
  const far = httpRequest({
    host: place.to,
    port: url.port || 80,
    path: url.pathname + url.search,
    method: request.method,
    // The host that the allowlist was asked about, whatever the client's header says (RFC 9112 §3.2.2).
    headers: { ...endToEnd(request.headers), host: url.host },
    timeout: idleMs,
  })
  far.on('response', answer => {
    try {
      response.writeHead(answer.statusCode ?? 502, endToEnd(answer.headers))
    } catch (thrown) {
      far.destroy()
      return refuse(response, 502, `the server's answer cannot be passed on: ${asError(thrown).message}`)
    }
    pipeline(answer, response, () => {})
  })
  far.on('timeout', () => far.destroy())
  // Once the answer has begun, an error here is ignored, and `pipeline` ends the answer: a server that has answered
  // completely may close before it has read the request's body.
  far.on('error', error => response.headersSent || refuse(response, 502, error.message))
  // An answer that changes the protocol closes the request without an error.
  far.on('close', () => response.headersSent || refuse(response, 502, 'the server gave no answer'))
  response.on('close', () => far.destroy())
  request.on('error', () => far.destroy()).pipe(far)
}

/** Answers with a status and a reason; an answer that has begun is cut off. */
function refuse(response: ServerResponse, status: number, why: string): void {
  if (response.headersSent) response.destroy()
  else response.writeHead(status, { 'content-type': 'text/plain; charset=utf-8' }).end(`${why}\n`)
}

/** Leaves out hop-by-hop headers, which hold for one of the proxy's two connections only. */
const endToEnd = (headers: IncomingMessage['headers']) =>
  Object.fromEntries(
    Object.entries(headers).filter(([name]) => !/^(proxy-.*|connection|keep-alive|te|trailer|upgrade)$/.test(name)),
  )
