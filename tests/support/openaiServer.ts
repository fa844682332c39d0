/**
 * A strict server of OpenAI's completions API for tests: accepts only documented fields, takes and returns only text.
 *
 * in   HTTP requests on loopback
 * out  text of the hash model (hashModel.ts), streamed if asked; `violations`: requests that OpenAI's reference does
 * not allow
 * Invariant: an answer has no token ids, no logprobs and no stop text. Source of every rule: OpenAI's API reference,
 * "Create completion" (parameters, ranges, the completion object and its stream), "List models".
 */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { drawAt, sampleAt, stateAfter, textOf, vocabulary, weightsOf } from './hashModel'

export interface OpenaiServerOptions {
  readonly directory: string
  /** false: /v1/completions answers 404, as on a server with chat completions only. Default true. */
  readonly completions?: boolean
  readonly maxModelLen?: number
}

export interface OpenaiServer {
  readonly url: string
  readonly violations: string[]
  readonly asked: Readonly<Record<string, unknown>>[]
  /** Changes each event of a stream before it is sent; returns undefined to send nothing more. */
  mangle: ((line: string, n: number) => string | undefined) | undefined
  kill(): Promise<void>
}

const inRange = (least: number, most: number) => (value: unknown) =>
  typeof value === 'number' && value >= least && value <= most
const fields: Readonly<Record<string, (value: unknown) => boolean>> = {
  model: value => value === 'hash',
  prompt: value => typeof value === 'string',
  max_tokens: value => Number.isInteger(value) && inRange(0, 1e6)(value),
  temperature: inRange(0, 2),
  top_p: inRange(0, 1),
  n: value => value === 1,
  presence_penalty: inRange(-2, 2),
  frequency_penalty: inRange(-2, 2),
  seed: value => Number.isInteger(value),
  stop: value =>
    Array.isArray(value) && value.length <= 4 && value.every(each => typeof each === 'string' && each !== ''),
  stream: value => typeof value === 'boolean',
}

export const tokensOf = (text: string): Int32Array =>
  Int32Array.from(text.matchAll(/<(\d+)>/g), ([, id]) => Number(id) % vocabulary)

export async function startOpenaiServer(options: OpenaiServerOptions): Promise<OpenaiServer> {
  const weights = weightsOf(options.directory)
  const violations: string[] = []
  const asked: OpenaiServer['asked'] = []
  const json = (reply: ServerResponse, status: number, value: object) =>
    reply.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(value))
  const bad = (reply: ServerResponse, message: string, status = 400) =>
    json(reply, status, { error: { message, type: 'invalid_request_error', param: null, code: null } })

  async function handle(request: IncomingMessage, reply: ServerResponse): Promise<void> {
    let raw = ''
    for await (const chunk of request) raw += chunk
    if (request.method === 'GET' && request.url === '/v1/models') {
      const length = options.maxModelLen === undefined ? {} : { max_model_len: options.maxModelLen }
      return void json(reply, 200, {
        object: 'list',
        data: [{ id: 'hash', object: 'model', owned_by: 'us', ...length }],
      })
    }
    if (request.method !== 'POST' || request.url !== '/v1/completions' || options.completions === false) {
      if (options.completions !== false) violations.push(`${request.method} ${request.url}`)
      return void bad(reply, 'Not Found', 404)
    }
    const body = JSON.parse(raw) as Record<string, unknown>
    asked.push(body)
    const wrong = Object.entries(body).find(([name, value]) => fields[name]?.(value) !== true)
    if (wrong !== undefined || !('model' in body && 'prompt' in body)) {
      violations.push(`Unrecognized request argument: ${JSON.stringify(wrong)}`)
      return void bad(reply, violations.at(-1)!)
    }
    await complete(body as unknown as Asked, reply)
  }

  interface Asked {
    readonly prompt: string
    readonly max_tokens?: number
    readonly temperature?: number
    readonly top_p?: number
    readonly seed?: number
    readonly stop?: readonly string[]
    readonly stream?: boolean
  }

  async function complete(body: Asked, reply: ServerResponse): Promise<void> {
    const { max_tokens: most = 16, temperature = 1, top_p: topP = 1, seed = 1, stop = [], stream } = body
    const prompt = tokensOf(body.prompt)
    let state = prompt.reduce((before, token) => stateAfter(weights, before, token), weights)
    const made: number[] = []
    let finish: 'stop' | 'length' = 'length'
    let events = 0
    const chunk = (text: string, finish_reason: string | null) => ({
      ...{ id: 'cmpl-1', object: 'text_completion', created: 1, model: 'hash' },
      choices: [{ index: 0, text, logprobs: null, finish_reason }],
    })
    const send = (event: object) => {
      const text = self.mangle === undefined ? JSON.stringify(event) : self.mangle(JSON.stringify(event), events++)
      if (text !== undefined) reply.write(`data: ${text}\n\n`)
      return text !== undefined
    }
    if (stream) reply.writeHead(200, { 'content-type': 'text/event-stream' }).flushHeaders()
    while (made.length < most && !reply.destroyed) {
      const rule = { temperature, topP, topK: -1, minP: 0 }
      const { token } = sampleAt(state, rule, drawAt(seed, prompt.length + made.length))
      if (stop.includes(textOf([token]))) {
        finish = 'stop'
        break
      }
      made.push(token)
      state = stateAfter(weights, state, token)
      if (stream && !send(chunk(textOf([token]), null))) return
      await new Promise(resolve => setTimeout(resolve, 1))
    }
    if (!stream) return void json(reply, 200, chunk(textOf(made), finish))
    send(chunk('', finish))
    reply.end('data: [DONE]\n\n')
  }

  const server = createServer(
    (request, reply) => void handle(request, reply).catch(error => violations.push(`${error}`)),
  )
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  const self: OpenaiServer = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    violations,
    asked,
    mangle: undefined,
    async kill() {
      const closed = new Promise<void>(resolve => server.close(() => resolve()))
      server.closeAllConnections()
      await closed
    },
  }
  return self
}
