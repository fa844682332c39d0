/**
 * HTTP to one inference server: JSON in and out, and server-sent events, over keep-alive connections.
 *
 * in   a path, a body, a deadline        out  the reply whatever its status; or the `data:` lines of a stream
 * Invariant: every call ends: with a whole reply (`stream`: as soon as the status is there), with the reason of its
 * signal, or with a retriable TroupeError: `engine.lost` if the connection fails, `engine.timeout` if no answer comes
 * in time, `engine.failed` if the reply is too long. Reading `lines` has no deadline. Bodies are returned as the server
 * sent them, since they are parsed: `excerpt` and `messageOf` of reply.ts remove secrets from what an error quotes.
 */
import {
  Agent,
  type ClientRequest,
  type IncomingMessage,
  request as plainRequest,
  type RequestOptions,
} from 'node:http'
import { Agent as TlsAgent, request as tlsRequest } from 'node:https'
import { urlFault } from '../../../config/engineAddress'
import { asError, TroupeError } from '../../../runtime/errors'
import { knowAddress } from '../../../runtime/secrets/credentials'
import { knowSecret } from '../../../runtime/secrets/knownSecrets'
import { garbage, type Reply } from './reply'

export interface ServerHttp {
  readonly url: string
  get(path: string, timeoutMs: number): Promise<Reply>
  post(path: string, body: object, timeoutMs: number): Promise<Reply>
  /**
   * Sends a request; resolves when the status has arrived. The caller must read `lines` or `text()` to the end, or
   * abort the signal.
   */
  stream(path: string, body: object, timeoutMs: number, signal: AbortSignal): Promise<StreamReply>
  close(): void
}

export interface StreamReply {
  readonly status: number
  /**
   * The reply's Retry-After header, converted from seconds to milliseconds; undefined if it is absent or no number of
   * seconds.
   */
  readonly retryAfterMs: number | undefined
  /**
   * Texts of the `data:` lines up to [DONE], or to the end of the body if that comes first. Throws `engine.lost` when
   * the connection breaks, `engine.failed` at a line of more than 4 Mi characters.
   */
  readonly lines: AsyncIterable<string>
  /** Reads the whole body of a reply whose status says that it is not a stream. */
  text(): Promise<string>
}

/**
 * Closes idle connections after 4 s: vLLM and SGLang run on uvicorn, which closes connections that were idle for 5 s.
 */
const kept = { keepAlive: true, timeout: 4000 }
/** Upper bound on the characters of a reply that is read whole; no inference server sends a longer one. */
const maxReplyChars = 64 * 1024 * 1024
const maxLineChars = 4 * 1024 * 1024
/** Milliseconds after [DONE] at which the connection is dropped if the body has not ended. */
const lingerMs = 1000

/**
 * Makes the client. @param token value of the server's --api-key, sent as a bearer token. @throws TroupeError
 * config.bad_engine if `url` is not a valid http or https address
 */
export function serverHttp(url: string, token?: string): ServerHttp {
  const fault = urlFault(url)
  if (fault !== undefined)
    throw new TroupeError('config.bad_engine', { boundary: 'config', retriable: false, message: fault })
  knowAddress(url, { isPassing: true })
  const base = new URL(url)
  const isTls = base.protocol === 'https:'
  const agent = isTls ? new TlsAgent(kept) : new Agent(kept)
  const send = isTls ? tlsRequest : plainRequest
  const prefix = base.pathname.replace(/\/+$/, '')
  const authorization = token === undefined ? {} : { authorization: `Bearer ${knowSecret(token)}` }

  const lost = (cause: unknown): TroupeError =>
    new TroupeError('engine.lost', {
      boundary: 'engine',
      retriable: true,
      message: `no answer from ${url}: ${asError(cause).message || (cause as { code?: string }).code}`,
      cause,
    })

  function open(method: string, path: string, body: object | undefined, timeoutMs: number, signal?: AbortSignal) {
    return new Promise<IncomingMessage>((resolve, reject) => {
      const payload = body === undefined ? undefined : Buffer.from(JSON.stringify(body))
      const sized =
        payload === undefined ? {} : { 'content-type': 'application/json', 'content-length': payload.length }
      const options: RequestOptions = {
        agent,
        method,
        host: base.hostname.replace(/^\[|\]$/g, ''),
        port: base.port || (isTls ? 443 : 80),
        path: prefix + path,
        headers: { ...authorization, ...sized },
        ...(signal === undefined ? {} : { signal }),
      }
      const attempt = (again: boolean) => {
        let timer: NodeJS.Timeout | undefined
        let isAnswered = false
        const asked: ClientRequest = send(again ? options : { ...options, agent: false })
        asked.once('response', reply => {
          isAnswered = true
          clearTimeout(timer)
          resolve(reply)
        })
        asked.on('error', error => {
          clearTimeout(timer)
          // After the reply has begun, its reader gets the error; a retry would start another generation, which has no
          // reader.
          if (isAnswered) return
          if (signal?.aborted) reject(asError(signal.reason))
          // The server closed an idle connection while this request was sent, so it never saw the request. Other kept
          // connections may be as old: the retry opens a new one.
          else if (again && asked.reusedSocket && (error as { code?: string }).code === 'ECONNRESET') attempt(false)
          else reject(error instanceof TroupeError ? error : lost(error))
        })
        timer = setTimeout(() => asked.destroy(late(url, path, timeoutMs)), timeoutMs)
        asked.end(payload)
      }
      attempt(true)
    })
  }

  /** Reads the whole body of a reply; fails after `timeoutMs`. */
  async function bodyOf(reply: IncomingMessage, path: string, timeoutMs: number): Promise<string> {
    const timer = setTimeout(() => reply.destroy(late(url, path, timeoutMs)), timeoutMs)
    try {
      reply.setEncoding('utf8')
      let text = ''
      for await (const chunk of reply) {
        text += chunk
        if (text.length > maxReplyChars)
          throw garbage(url, `${path} answered with more than ${maxReplyChars} characters`)
      }
      return text
    } catch (thrown) {
      throw thrown instanceof TroupeError ? thrown : lost(thrown)
    } finally {
      clearTimeout(timer)
    }
  }

  async function ask(method: string, path: string, body: object | undefined, timeoutMs: number): Promise<Reply> {
    const reply = await open(method, path, body, timeoutMs)
    return { status: reply.statusCode ?? 0, text: await bodyOf(reply, path, timeoutMs) }
  }

  /** Yields the texts of the `data:` lines up to [DONE]; the rest of the body after it is read in the background. */
  async function* linesOf(reply: IncomingMessage): AsyncGenerator<string> {
    reply.setEncoding('utf8')
    let rest = ''
    let isDone = false
    try {
      for await (const chunk of reply.iterator({ destroyOnReturn: false })) {
        rest += chunk
        for (let end = rest.indexOf('\n'); end >= 0; end = rest.indexOf('\n')) {
          const line = rest.slice(0, end).trimEnd()
          rest = rest.slice(end + 1)
          if (!line.startsWith('data:')) continue
          const data = line.slice(5).trimStart()
          isDone = data === '[DONE]'
          if (isDone) return
          yield data
        }
        if (rest.length > maxLineChars)
          throw garbage(url, `the answer has a line of more than ${maxLineChars} characters`)
      }
    } catch (thrown) {
      throw thrown instanceof TroupeError ? thrown : lost(thrown)
    } finally {
      if (isDone) letEnd(reply)
      else reply.destroy()
    }
  }

  return {
    url,
    get: (path, timeoutMs) => ask('GET', path, undefined, timeoutMs),
    post: (path, body, timeoutMs) => ask('POST', path, body, timeoutMs),
    async stream(path, body, timeoutMs, signal) {
      const reply = await open('POST', path, body, timeoutMs, signal)
      const after = reply.headers['retry-after']
      return {
        status: reply.statusCode ?? 0,
        retryAfterMs: after !== undefined && /^\d{1,6}$/.test(after) ? Number(after) * 1000 : undefined,
        lines: linesOf(reply),
        text: () => bodyOf(reply, path, timeoutMs),
      }
    },
    close: () => agent.destroy(),
  }
}

/** Reads a body to its end, so that the connection can be reused. */
function letEnd(reply: IncomingMessage): void {
  const timer = setTimeout(() => reply.destroy(), lingerMs).unref()
  reply.once('close', () => clearTimeout(timer))
  reply.on('error', () => {}) // the body is discarded, so an error concerns no caller
  reply.resume()
}

const late = (url: string, path: string, timeoutMs: number): TroupeError =>
  new TroupeError('engine.timeout', {
    boundary: 'engine',
    retriable: true,
    message: `${url}${path} did not answer within ${timeoutMs} ms`,
    hint: 'check the load of the server and its log',
  })
