/**
 * Client of a Docker engine's HTTP API (1.41, Docker 20.10 or newer) over its Unix socket or TCP without TLS.
 *
 * in   requests        out  JSON, streams; for attach and exec the raw connection
 * Invariant: every request has a deadline (default 60 s) for its answer's header. The body has no deadline, but `raw`
 * and `call` accept a signal that aborts it. A status of 400 or more (for attach and exec: any but 101) is thrown as an
 * EngineError with the engine's own message; a lost connection is Node's own error.
 */
import { existsSync } from 'node:fs'
import { Agent, request as httpRequest, type IncomingMessage } from 'node:http'
import { connect, type Socket } from 'node:net'
import type { Readable } from 'node:stream'

export class EngineError extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message)
  }
}

export interface EngineRequest {
  readonly query?: Readonly<Record<string, string | number | undefined>>
  readonly json?: unknown
  readonly stream?: Readable
  readonly deadlineMs?: number
  readonly signal?: AbortSignal | undefined
}

const version = 'v1.41'
const usualDeadlineMs = 60_000

/** Address of the Docker engine: DOCKER_HOST, else the default socket if it exists. */
export function engineAddress(env: NodeJS.ProcessEnv = process.env): string | undefined {
  if (env.DOCKER_HOST) return env.DOCKER_HOST
  return existsSync('/var/run/docker.sock') ? 'unix:///var/run/docker.sock' : undefined
}

export class Engine {
  private readonly agent: Agent

  constructor(private readonly address: string) {
    // Only `raw` and `call` use these keep-alive connections: a hijacked connection ends with its command.
    this.agent = new Agent({ keepAlive: true, maxSockets: 64 })
  }

  /** Sends a request; the answer's body is a stream. @throws EngineError */
  async raw(method: string, path: string, options: EngineRequest = {}): Promise<IncomingMessage> {
    const { json, stream, deadlineMs = usualDeadlineMs, signal } = options
    const body = json === undefined ? undefined : JSON.stringify(json)
    const answer = await new Promise<IncomingMessage>((resolve, reject) => {
      const request = httpRequest({
        ...this.place(),
        ...{ method, path: target(path, options.query), agent: this.agent },
        ...(signal === undefined ? {} : { signal }),
        headers: headersOf(body, stream),
      })
      const timer = setTimeout(
        () => request.destroy(new Error(`the Docker engine did not answer ${method} ${path} in ${deadlineMs} ms`)),
        deadlineMs,
      )
      request.once('response', response => {
        clearTimeout(timer)
        resolve(response)
      })
      request.once('error', error => {
        clearTimeout(timer)
        reject(error)
      })
      if (stream === undefined) request.end(body)
      else stream.once('error', error => request.destroy(error)).pipe(request)
    })
    if ((answer.statusCode ?? 500) < 400) return answer
    throw new EngineError(answer.statusCode ?? 500, messageOf(await textOf(answer)))
  }

  /** Sends a request and parses the answer; undefined for an empty one. @throws EngineError */
  async call<T = unknown>(method: string, path: string, options: EngineRequest = {}): Promise<T> {
    const text = await textOf(await this.raw(method, path, options))
    return (text === '' ? undefined : JSON.parse(text)) as T
  }

  /** Sends a request whose connection becomes a raw stream in both directions. @throws EngineError */
  hijack(path: string, options: EngineRequest = {}): Promise<Socket> {
    const { deadlineMs = usualDeadlineMs } = options
    const body = JSON.stringify(options.json ?? {})
    return new Promise((resolve, reject) => {
      const place = this.place()
      // Half-open, so that the end of standard input can be sent while output is still read.
      const socket =
        'socketPath' in place
          ? connect({ path: place.socketPath, allowHalfOpen: true })
          : connect({ host: place.host, port: place.port, allowHalfOpen: true })
      const request = httpRequest({
        ...place,
        ...{ method: 'POST', path: target(path, options.query), createConnection: () => socket },
        headers: { ...headersOf(body, undefined), connection: 'Upgrade', upgrade: 'tcp' },
      })
      const timer = setTimeout(
        () => request.destroy(new Error(`the Docker engine did not answer POST ${path} in ${deadlineMs} ms`)),
        deadlineMs,
      )
      request.once('upgrade', (_, raw, head) => {
        clearTimeout(timer)
        if (head.length > 0) raw.unshift(head)
        resolve(raw as Socket)
      })
      request.once('response', async answer => {
        clearTimeout(timer)
        reject(new EngineError(answer.statusCode ?? 500, messageOf(await textOf(answer))))
      })
      request.once('error', error => {
        clearTimeout(timer)
        reject(error)
      })
      request.end(body)
    })
  }

  close(): void {
    this.agent.destroy()
  }

  private place(): { readonly socketPath: string } | { readonly host: string; readonly port: number } {
    const url = new URL(this.address)
    if (url.protocol === 'unix:') return { socketPath: url.pathname }
    if (url.protocol === 'tcp:' || url.protocol === 'http:')
      return { host: url.hostname, port: Number(url.port || 2375) }
    throw new Error(`DOCKER_HOST=${this.address}: expected an address that starts with unix://, tcp:// or http://`)
  }
}

function target(path: string, query: EngineRequest['query'] = {}): string {
  const words = Object.entries(query).flatMap(([name, value]) =>
    value === undefined ? [] : [`${name}=${encodeURIComponent(value)}`],
  )
  return `/${version}${path}${words.length > 0 ? `?${words.join('&')}` : ''}`
}

const headersOf = (body: string | undefined, stream: Readable | undefined) => ({
  host: 'docker',
  ...(body === undefined ? {} : { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) }),
  ...(stream === undefined ? {} : { 'content-type': 'application/x-tar' }),
})

async function textOf(answer: IncomingMessage): Promise<string> {
  const parts: Buffer[] = []
  for await (const part of answer) parts.push(part as Buffer)
  return Buffer.concat(parts).toString()
}

function messageOf(text: string): string {
  try {
    return (JSON.parse(text) as { message?: string }).message ?? text
  } catch {
    return text
  }
}
