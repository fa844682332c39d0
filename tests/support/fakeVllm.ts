/**
 * A small server that answers as vLLM 0.32 does, but strictly: it refuses a generation request that lacks a field. A
 * test can replace each reply, also by faults that a real server cannot be made to show. While paused it generates
 * nothing.
 */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'

export const vocabulary = 100
export const metricsText = `# HELP vllm:num_requests_running Number of requests in model execution batches.
vllm:num_requests_running{engine="0",model_name="m"} 2.0
vllm:num_requests_waiting{engine="0",model_name="m"} 1.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:num_preemptions_total{engine="0",model_name="m"} 3.0
vllm:prompt_tokens_total{engine="0",model_name="m"} 1.0e+03
vllm:prompt_tokens_cached_total{engine="0",model_name="m"} 400.0
vllm:generation_tokens_total{engine="0",model_name="m"} 77.0
vllm:cache_config_info{block_size="128",cache_dtype="a \\"quoted\\" one",enable_prefix_caching="True",engine="0",num_gpu_blocks="364"} 1.0
`

/** Writes the answer to a streaming generation in place of vLLM's. */
export type Streaming = (reply: ServerResponse, body: Record<string, unknown>) => void

export const event = (value: unknown) => `data: ${typeof value === 'string' ? value : JSON.stringify(value)}\n\n`
export const piece = (
  tokens: readonly number[],
  finish: string | null = null,
  logprobs: readonly unknown[] = tokens.map(() => -1),
) => event({ choices: [{ token_ids: tokens, logprobs: { token_logprobs: logprobs }, finish_reason: finish }] })
export const usage = event({ choices: [], usage: { prompt_tokens_details: { cached_tokens: 2 } } })
export const open = (reply: ServerResponse) => reply.writeHead(200, { 'content-type': 'text/event-stream' })

export const whole: Streaming = (reply, body) => {
  open(reply)
  const tokens = Array.from({ length: body.max_tokens as number }, (_, i) => 10 + i)
  reply.end(piece(tokens.slice(0, 1)) + piece(tokens.slice(1), 'length') + usage + event('[DONE]'))
}

const demanded =
  'model prompt max_tokens min_tokens n temperature top_p top_k min_p presence_penalty frequency_penalty repetition_penalty stop stop_token_ids ignore_eos logprobs return_token_ids stream_options priority'.split(
    ' ',
  )

interface Reply {
  readonly status: number
  readonly body: string
}

export interface FakeVllm {
  readonly url: string
  readonly asked: { readonly path: string; readonly body: Record<string, unknown> }[]
  streaming: Streaming
  paused: boolean
  /** Returns the reply to a path in place of vLLM's; undefined keeps vLLM's. */
  override: (path: string, body: Record<string, unknown>) => Reply | undefined | Promise<Reply>
  close(): Promise<void>
}

export async function fakeVllm(): Promise<FakeVllm> {
  const asked: { path: string; body: Record<string, unknown> }[] = []
  const json = (value: unknown, status = 200) => ({ status, body: JSON.stringify(value) })
  const complete = (body: Record<string, unknown>) => {
    const prompt = body.prompt as number[]
    if (prompt.some(id => id >= vocabulary)) return json({ error: { message: 'Token id is out of vocabulary' } }, 400)
    const scale = 1 / (body.temperature as number)
    const logits = [3, 1.5, 1, 0.5, 0]
    const sum = Math.log(logits.reduce((all, each) => all + Math.exp(each * scale), 0))
    const top = Object.fromEntries(logits.map((each, i) => [`token_id:${i}`, each * scale - sum]))
    return json({ choices: [{ logprobs: { top_logprobs: [top] } }] })
  }
  const loaded = new Set<unknown>()
  const adaptersReply = ({ lora_name: name, lora_path: path }: Record<string, unknown>) => {
    const refusal = (message: string) => json({ error: { message } }, 400)
    if (!name || !path) return refusal("Both 'lora_name' and 'lora_path' must be provided.")
    if (loaded.has(name)) return refusal(`The lora adapter '${name}' has already been loaded. If you want to load …`)
    loaded.add(name)
    return { status: 200, body: `Success: LoRA adapter '${name}' added successfully.` }
  }
  const plain = (path: string, body: Record<string, unknown>) => {
    switch (path) {
      case '/version':
        return json({ version: '0.32.0' })
      case '/v1/models':
        return json({ data: [{ id: 'm', parent: null, max_model_len: 64 }] })
      case '/metrics':
        return { status: 200, body: metricsText }
      case '/detokenize':
        return json({ prompt: (body.tokens as number[]).join(' ') })
      case '/server_info?config_format=json':
        return json({ vllm_config: { device_config: { device: 'cpu' }, scheduler_config: { max_num_seqs: 7 } } })
      case '/v1/completions':
        return complete(body)
      case '/v1/load_lora_adapter':
        return adaptersReply(body)
      case '/v1/unload_lora_adapter':
        return loaded.delete(body.lora_name)
          ? { status: 200, body: 'Success' }
          : json({ error: { message: 'cannot be found' } }, 404)
      case '/reset_prefix_cache?reset_running_requests=true':
        return json({ success: true })
      case '/pause?mode=keep&clear_cache=false':
      case '/resume':
        fake.paused = path !== '/resume'
        if (!fake.paused) for (const pass of waiting.splice(0)) pass()
        return json({ status: fake.paused ? 'paused' : 'resumed' })
      default:
        return json({ is_paused: fake.paused })
    }
  }
  const fake: Pick<FakeVllm, 'streaming' | 'override' | 'paused'> = {
    ...{ streaming: whole, override: () => undefined, paused: false },
  }
  const waiting: (() => void)[] = []
  const answer = async (request: IncomingMessage, reply: ServerResponse) => {
    let text = ''
    for await (const chunk of request) text += chunk
    const path = request.url!
    const body = (text === '' ? {} : JSON.parse(text)) as Record<string, unknown>
    asked.push({ path, body })
    if (path === '/v1/completions' && fake.paused) await new Promise<void>(resolve => waiting.push(resolve))
    if (body.stream === true) {
      const missing = demanded.filter(field => !(field in body))
      if (missing.length === 0) return fake.streaming(reply, body)
      return void reply.writeHead(422).end(`missing: ${missing.join(' ')}`)
    }
    const { status, body: said } = (await fake.override(path, body)) ?? plain(path, body)
    reply.writeHead(status, { 'content-type': 'application/json' }).end(said)
  }
  const server: Server = createServer((request, reply) => void answer(request, reply))
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  return Object.assign(fake, {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    asked,
    async close() {
      server.closeAllConnections()
      await new Promise(resolve => server.close(resolve))
    },
  })
}
