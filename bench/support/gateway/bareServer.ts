/**
 * An engine asked directly, for comparison: it streams chat completions over HTTP, without sessions, renderer or log.
 *
 * in   an engine, the text of its first token        out  a server; streams of the same form as the gateway's
 * Invariant: the first text is written as soon as the engine has a token, the end once it is done.
 */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { GenerateRequest } from '../../../backends/engines/engine'
import { chat } from '../../../gateway/dialects/chat'
import type { StartableEngine } from '../../../gateway/engines/enginePool'
import { JsonBodies } from '../../../gateway/http/jsonBodies'

const bodies = new JsonBodies({ maxBodyBytes: 1024 * 1024 })

export async function bareServer(startable: StartableEngine, text: string) {
  const engine = await startable.start()
  let answers = 0
  const server = createServer(async (request, response) => {
    const parsed = chat.parse(await bodies.read(request, response), () => undefined)
    const head = { id: `bare_${answers++}`, createdMs: Date.now(), model: parsed.model, promptTokens: 0 }
    const writer = chat.stream(head, parsed)
    response.writeHead(200, { 'content-type': 'text/event-stream; charset=utf-8', 'cache-control': 'no-cache' })
    let isBegun = false
    await engine.stream!({} as GenerateRequest, () => {
      if (!isBegun) response.write(writer.begin() + writer.delta({ kind: 'content', text }))
      isBegun = true
    })
    const message = { role: 'assistant', content: text, thinking: '', toolUses: [] } as const
    response.end(writer.end({ ...head, message, finish: 'stop', sampledTokens: 1, cachedTokens: 0 }))
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    close: () => new Promise<void>(resolve => server.close(() => resolve())),
  }
}
