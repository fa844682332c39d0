/**
 * A strict SGLang server for tests: it accepts documented requests in the documented order, and records all others.
 *
 * in   HTTP requests on loopback
 * out  tokens of the hash model (hashModel.ts), streamed; `violations`: requests that SGLang's documents do not allow
 * Invariant: it refuses what the real server would ignore, and ends where the real server would end. It proves only
 * that the engine keeps to the documents. Sources: sglangRules.ts, and at each rule.
 */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { logprobsAt, textOf, vocabulary } from './hashModel'
import { endpoints, judgeBody, judgeSampling } from './sglangRules'
import { type SglangFinish, type SglangRequest, SglangScheduler } from './sglangScheduler'

export interface SglangServerOptions {
  readonly directory: string
  /**
   * Version to imitate. older: answers have no spans of weight versions, `stream_interval` is unknown, and the routes
   * are /get_server_info, /get_model_info and /get_load. Default: current.
   */
  readonly age?: 'current' | 'older'
  /**
   * true: an event has only the new tokens (--incremental-streaming-output); false: all tokens so far. Default false.
   */
  readonly incremental?: boolean
  readonly contextTokens?: number
  readonly stepMs?: number
  /** true: logprobs before temperature, as with SGLANG_RETURN_ORIGINAL_LOGPROB. */
  readonly rawLogprobs?: boolean
  readonly token?: string
  /** Milliseconds from a request's arrival to its dispatch to the scheduler. Default 0. */
  readonly dispatchMs?: number
  readonly serverArgs?: Readonly<Record<string, unknown>>
  /** Size of the vocabulary that the server reports. */
  readonly vocabulary?: number
  readonly textOf?: (tokens: readonly number[]) => string
  readonly missing?: readonly string[]
  /**
   * Returns the text that a gateway before a busy server answers, with status 503; undefined to let the request pass.
   */
  readonly instead?: (path: string, body: { readonly sampling_params?: object }) => string | undefined
}

export interface SglangServer {
  readonly url: string
  readonly violations: string[]
  /** Requests in the order of their arrival: path, and body of a POST. */
  readonly asked: { readonly path: string; readonly body: Readonly<Record<string, unknown>> }[]
  /**
   * Changes each event of a stream before it is sent; returns undefined to send nothing more and keep the connection.
   */
  mangle: ((line: string, n: number) => string | undefined) | undefined
  /** Number of tokens sampled so far. */
  readonly sampled: number
  /** Path whose next request is carried out, but whose connection breaks in the middle of the answer. */
  dropped: string | undefined
  /** Closes the server and breaks its connections, as SIGKILL does. */
  kill(): Promise<void>
}

const maxRunning = 8
const kvTokens = 40_000

export async function startSglangServer(options: SglangServerOptions): Promise<SglangServer> {
  const { age = 'current', incremental = false, contextTokens = 1030, stepMs = 1, dispatchMs = 0 } = options
  const scheduler = new SglangScheduler(options.directory, 'default', maxRunning, stepMs)
  const violations: string[] = []
  const asked: SglangServer['asked'] = []
  const streams = new Set<ServerResponse>()
  /**
   * Open requests (rid_to_state of the tokenizer manager); some wait for the end of a pause, unknown to the scheduler.
   */
  const known = new Map<string, SglangRequest & { isDispatched: boolean; isAbortSent: boolean }>()
  const state = { isPause: false, readers: 0, writing: false, asleep: new Set<string>(), seeds: 1 }
  const older = new Set(['/get_server_info', '/get_model_info', '/get_load'])
  const newer = new Set(['/server_info', '/model_info', '/v1/loads', '/detokenize'])
  let release: (() => void)[] = []
  const turn = () => new Promise<void>(resolve => release.push(resolve))
  const changed = () => {
    const woken = release
    release = []
    for (const each of woken) each()
  }

  const args = {
    model_path: options.directory,
    page_size: 1,
    disable_radix_cache: false,
    enable_priority_scheduling: false,
    schedule_low_priority_values_first: false,
    enable_deterministic_inference: false,
    enable_memory_saver: true,
    incremental_streaming_output: incremental,
    preferred_sampling_params: null,
    ...options.serverArgs,
  }

  const violate = (what: string): string => {
    violations.push(what)
    return what
  }
  const json = (reply: ServerResponse, status: number, value: unknown) => {
    const body = typeof value === 'string' ? value : JSON.stringify(value)
    reply.writeHead(status, { 'content-type': 'application/json' }).end(body)
  }
  // http_server.py, _create_error_response
  const bad = (reply: ServerResponse, message: string, status = 400) => json(reply, status, { error: { message } })

  const server = createServer((request, reply) => {
    void handle(request, reply).catch(error => {
      violate(`the server failed: ${error}`)
      if (!reply.headersSent) bad(reply, String(error), 500)
    })
  })

  async function handle(request: IncomingMessage, reply: ServerResponse): Promise<void> {
    let raw = ''
    for await (const chunk of request) raw += chunk
    const { pathname, searchParams } = new URL(request.url ?? '/', 'http://localhost')
    if (options.token !== undefined && request.headers.authorization !== `Bearer ${options.token}`) {
      return json(reply, 401, { error: 'Unauthorized' }) // utils.py, add_api_key_middleware
    }
    const busy = options.instead?.(pathname, raw === '' ? {} : JSON.parse(raw))
    if (busy !== undefined) return void reply.writeHead(503, { 'content-type': 'text/html' }).end(busy)
    const endpoint = endpoints[pathname]
    const known404 = age === 'older' ? newer.has(pathname) : older.has(pathname) && pathname !== '/get_server_info'
    if (known404 || options.missing?.includes(pathname)) return json(reply, 404, { detail: 'Not Found' })
    if (endpoint === undefined) return bad(reply, violate(`no endpoint ${pathname}`), 404)
    if (!endpoint.methods.includes(request.method ?? '')) return json(reply, 405, { detail: 'Method Not Allowed' })
    let body: Readonly<Record<string, unknown>> = {}
    if (request.method === 'POST') {
      if (request.headers['content-type'] !== 'application/json')
        return bad(reply, violate('no JSON content type'), 415)
      body = JSON.parse(raw)
      asked.push({ path: pathname, body })
      const verdict = judgeBody(endpoint, body)
      if (verdict !== undefined) {
        return bad(reply, verdict.undocumented ? violate(`${pathname}: ${verdict.reason}`) : verdict.reason)
      }
    }
    if (self.dropped === pathname) {
      self.dropped = undefined
      reply.end = () => {
        reply.write(' ')
        setTimeout(() => reply.destroy(), 20)
        return reply
      }
    }
    await answer(pathname, searchParams, body, reply)
  }

  async function answer(
    path: string,
    query: URLSearchParams,
    body: Readonly<Record<string, unknown>>,
    reply: ServerResponse,
  ): Promise<void> {
    switch (path) {
      case '/ping':
        return void reply.writeHead(200).end()
      case '/server_info':
      case '/get_server_info': // answers with server_args, scheduler_info, internal_states and version, as SGLang does
        return json(reply, 200, {
          ...args,
          // scheduler.py: max_req_len = min(context_len - 1, …), max_req_input_len = max_req_len - 5
          ...{ max_total_num_tokens: kvTokens, max_req_input_len: contextTokens - 6 },
          ...{ internal_states: [{}], version: age === 'older' ? '0.5.3' : '0.5.23' },
        })
      case '/model_info':
      case '/get_model_info':
        return json(reply, 200, { model_path: options.directory, is_generation: true, weight_version: scheduler.label })
      case '/v1/models':
        return json(reply, 200, { object: 'list', data: [{ id: options.directory, max_model_len: contextTokens }] })
      case '/v1/loads': {
        // load_snapshot.py, VALID_SECTIONS
        const sections = (query.get('include') ?? 'all').split(',')
        const wrong = sections.find(
          name => !['core', 'memory', 'spec', 'lora', 'disagg', 'queues', 'all'].includes(name),
        )
        if (wrong !== undefined) return bad(reply, violate(`Invalid include sections: ${wrong}`))
        return json(reply, 200, { version: '0.5.23', loads: [load()] })
      }
      case '/get_load': {
        const { num_running_reqs: runs, num_waiting_reqs: waits, num_used_tokens: tokens } = load()
        return json(reply, 200, [{ dp_rank: 0, num_reqs: runs + waits, num_waiting_reqs: waits, num_tokens: tokens }])
      }
      case '/detokenize':
        return json(reply, 200, { text: (options.textOf ?? textOf)(body.tokens as number[]) })
      case '/generate':
        return generate(body, reply)
      case '/abort_request': {
        const { rid = '', abort_all: all = false } = body as { rid?: string; abort_all?: boolean }
        // tokenizer_manager.py, abort_request: an empty or unknown rid is ignored
        if (rid === '' && !all) violate('/abort_request without a rid')
        if (all) scheduler.abort('', true)
        else abortOnce(rid)
        return void reply.writeHead(200).end()
      }
      case '/pause_generation':
        return pause((body.mode ?? 'abort') as 'abort' | 'retract' | 'in_place', reply)
      case '/continue_generation':
        // [rl] "pause_generation --- update weights --- continue_generation is the correct execution flow"
        if (!state.isPause) return bad(reply, violate('/continue_generation without a pause'))
        if (state.asleep.size > 0) violate('/continue_generation while memory is given back')
        state.isPause = false
        scheduler.goOn()
        changed()
        return json(reply, 200, { message: 'Generation continued successfully.', status: 'ok' })
      case '/update_weights_from_disk':
        return update(body as { model_path: string; weight_version?: string; flush_cache?: boolean }, reply)
      case '/flush_cache':
        return void reply.writeHead(scheduler.flush() ? 200 : 400).end('Cache flushed.\n')
      case '/release_memory_occupation': {
        // [rl] "This call asserts there are no ongoing requests."
        if (args.enable_memory_saver !== true) violate('/release_memory_occupation without --enable-memory-saver')
        if (!scheduler.idle) return die('/release_memory_occupation while requests run')
        for (const tag of body.tags as string[]) state.asleep.add(tag)
        if (state.asleep.has('weights')) scheduler.dropWeights()
        scheduler.flush() // "If kv_cache is released, SGLang flushes cache"
        return json(reply, 200, null)
      }
      case '/resume_memory_occupation':
        for (const tag of body.tags as string[]) {
          if (!state.asleep.delete(tag)) violate(`/resume_memory_occupation of ${tag}, which was not released`)
        }
        return json(reply, 200, null)
      default:
        return bad(reply, violate(`no answer to ${path}`), 404)
    }
  }

  /** Sends the first abort of a request to the scheduler, which may not have the request yet (ReqState.abort_sent). */
  function abortOnce(rid: string): void {
    const request = known.get(rid)
    if (request === undefined || (request.isAbortSent && age === 'current')) return
    request.isAbortSent = true
    scheduler.abort(rid, false)
  }

  const load = () => ({
    dp_rank: 0,
    num_running_reqs: scheduler.running.length,
    num_waiting_reqs: scheduler.waiting.length,
    num_used_tokens: scheduler.usedTokens,
    max_total_num_tokens: kvTokens,
    max_running_requests: maxRunning,
  })

  /** Pauses; `abort` repeats aborting until no request holds the lock (tokenizer_manager.py, pause_generation). */
  async function pause(mode: 'abort' | 'retract' | 'in_place', reply: ServerResponse): Promise<void> {
    if (state.isPause) violate('/pause_generation twice')
    state.isPause = true
    if (mode !== 'abort') scheduler.pause(mode)
    else {
      while (state.readers > 0) {
        scheduler.abort('', true)
        await new Promise(resolve => setTimeout(resolve, 20))
      }
    }
    json(reply, 200, { message: 'Generation paused successfully.', status: 'ok' })
  }

  /** Loads weights (tokenizer_manager.py, update_weights_from_disk); ends the server if the cache cannot be flushed. */
  async function update(
    body: { readonly model_path: string; readonly weight_version?: string; readonly flush_cache?: boolean },
    reply: ServerResponse,
  ): Promise<void> {
    if (!state.isPause) violate('/update_weights_from_disk without a pause') // [rl] "Easy To Postpone Generation"
    if (state.asleep.has('weights')) violate('/update_weights_from_disk into memory that was given back')
    try {
      scheduler.load(body.model_path, body.weight_version)
    } catch (error) {
      return json(reply, 400, { success: false, message: String(error), num_paused_requests: 0 })
    }
    if ((body.flush_cache ?? true) && !scheduler.flush()) return die('Cache flush failed after updating weights')
    json(reply, 200, { success: true, message: 'Succeeded to update model weights.', num_paused_requests: 0 })
  }

  async function generate(body: Readonly<Record<string, unknown>>, reply: ServerResponse): Promise<void> {
    const params = (body.sampling_params ?? {}) as Record<string, number & boolean & number[]>
    if (age === 'older' && 'stream_interval' in params) return bad(reply, "unexpected keyword 'stream_interval'", 500)
    const input = body.input_ids as number[]
    const rid = (body.rid as string | undefined) ?? `server-${state.seeds}`
    const stream = body.stream === true
    const verdict = judgeSampling(params)
    const total = input.length + (params.max_new_tokens ?? 128)
    let refusal: string | undefined
    if (verdict !== undefined) {
      const named = verdict.reason.replace(`${vocabulary - 1}]`, `${(options.vocabulary ?? vocabulary) - 1}]`)
      refusal = verdict.undocumented ? violate(`sampling_params: ${verdict.reason}`) : named
    }
    // tokenizer_manager.py, _validate_one_request
    else if (input.length >= contextTokens) {
      refusal = `The input (${input.length} tokens) is longer than the model's context length (${contextTokens} tokens).`
    } else if (total > contextTokens) {
      refusal = `Requested token count exceeds the model's maximum context length of ${contextTokens} tokens.`
    } else if (known.has(rid)) refusal = violate(`Duplicate request ID detected: ${rid}`)
    if ([...known.keys()].some(other => other.startsWith(rid) || rid.startsWith(other))) {
      violate(`request ${rid} would be aborted with another: scheduler.py aborts by prefix`)
    }
    if (refusal !== undefined) {
      if (!stream) return bad(reply, refusal)
      // http_server.py, stream_results: the error is an event of a stream with status 200
      reply.writeHead(200, { 'content-type': 'text/event-stream' })
      return void reply.end(`data: ${JSON.stringify({ error: { message: refusal } })}\n\ndata: [DONE]\n\n`)
    }
    const interval = params.stream_interval ?? 1
    let sent = 0
    let events = 0
    const emit: SglangRequest['emit'] = (finish, inQueue) => {
      const count = made.output.length
      if (finish === null && !(stream && (count === 1 || count % interval === 0))) return
      const event = JSON.stringify({ text: textOf([]), output_ids: [], meta_info: meta(made, finish, inQueue, sent) })
      sent = incremental ? count : 0
      if (finish !== null) {
        known.delete(rid)
        state.readers--
        changed()
      }
      if (!stream) return json(reply, 200, event)
      const line = self.mangle === undefined ? event : self.mangle(event, events++)
      if (line === undefined) return
      // Sends the event in two packets: a client must not take a packet for an event.
      const data = `data: ${line}\n\n`
      reply.write(data.slice(0, data.length >> 1))
      reply.write(data.slice(data.length >> 1))
      if (finish !== null) reply.end('data: [DONE]\n\n')
    }
    const seed = params.sampling_seed ?? state.seeds++
    const top = Number(body.top_logprobs_num ?? 0)
    const made: SglangRequest & { top?: number; isDispatched: boolean; isAbortSent: boolean } = {
      ...{ rid, input, seed, emit, top, isDispatched: false, isAbortSent: false },
      ...{ states: [], output: [], cached: 0, retractions: 0, toAbort: false },
      rule: {
        temperature: params.temperature ?? 1,
        topP: params.top_p ?? 1,
        topK: params.top_k ?? -1,
        minP: params.min_p ?? 0,
      },
      maxNewTokens: params.max_new_tokens ?? 128,
      stopTokens: params.stop_token_ids ?? [],
      ignoreEos: params.ignore_eos ?? false,
    }
    known.set(rid, made)
    if (stream) {
      reply.writeHead(200, { 'content-type': 'text/event-stream' }).flushHeaders()
      streams.add(reply)
    }
    let gone = false
    reply.on('close', () => {
      streams.delete(reply)
      if (known.get(rid) !== made) return
      gone = true
      if (made.isDispatched)
        abortOnce(rid) // _release_req_states_on_failure
      else known.delete(rid)
      changed()
    })
    while (state.isPause && !gone) await turn() // is_pause_cond
    if (dispatchMs > 0) await new Promise(resolve => setTimeout(resolve, dispatchMs))
    if (gone) return void known.delete(rid)
    made.isDispatched = true
    state.readers++
    scheduler.add(made)
  }

  /**
   * Makes meta_info as _handle_batch_output does, or _handle_abort_req for a request aborted in the queue. Only the
   * last event has the spans of weight versions (output_streamer.py); others have the version that is current when they
   * are sent.
   */
  function meta(
    request: SglangRequest & { top?: number },
    finish: SglangFinish | null,
    inQueue: boolean,
    sent: number,
  ) {
    const shared = { id: request.rid, finish_reason: finish, weight_version: scheduler.label }
    if (inQueue && age === 'older') return shared
    const entries = request.output.map(({ token, logprob }) => [logprob, token, null])
    const spans: { version: string; start: number; end: number }[] = []
    request.output.forEach(({ label }, i) => {
      const last = spans.at(-1)
      if (last?.version === label) last.end = i + 1
      else spans.push({ version: label, start: i, end: i + 1 })
    })
    if (spans.length === 0) spans.push({ version: scheduler.label, start: 0, end: 0 })
    const likeliest = (at: number) =>
      Array.from(logprobsAt(at, options.rawLogprobs ? 1 : request.rule.temperature), (p, v) => [p, v, null] as const)
        .sort((a, b) => b[0] - a[0])
        .slice(0, request.top)
    const labelled = {
      ...shared,
      // weight_versions.py, add_weight_versions_to_meta_info
      ...(age === 'older' || finish === null ? {} : { weight_versions: spans, weight_version: spans.at(-1)!.version }),
    }
    if (inQueue) return { ...labelled, output_token_logprobs: entries, completion_tokens: entries.length }
    return {
      ...labelled,
      prompt_tokens: request.input.length,
      completion_tokens: request.output.length,
      cached_tokens: request.cached,
      num_retractions: request.retractions,
      input_token_logprobs: [],
      output_token_logprobs: entries.slice(sent),
      ...(request.top ? { output_top_logprobs: request.output.map(({ state: at }) => likeliest(at)) } : {}),
    }
  }

  /** Ends the server, as a failed assertion in SGLang's scheduler does: SIGQUIT to the process tree. */
  function die(why: string): void {
    violate(`ended by an assertion: ${why}`)
    void self.kill()
  }

  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  const self: SglangServer = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    violations,
    asked,
    get sampled() {
      return scheduler.sampled
    },
    mangle: undefined,
    dropped: undefined,
    async kill() {
      scheduler.stop()
      const closed = new Promise<void>(resolve => server.close(() => resolve()))
      server.closeAllConnections()
      await closed
    },
  }
  return self
}
