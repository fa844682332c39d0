/**
 * Follows a run's stream of facts; after a lost connection it continues after the last event that was handled.
 *
 * in   a run, the cursor to begin at        out  facts, each once; the state of the connection
 * Invariant: a connection begins with the id of the last handled event (`Last-Event-ID`), so no fact is missed; facts
 * come twice only if the handler threw on them. It uses fetch, because an EventSource cannot send a token.
 */
import type { StreamFact } from '../../api'
import { tokenHeaders } from './token'

export type Connection = 'open' | 'lost'

export interface StreamHandlers {
  facts(facts: readonly StreamFact[]): void
  connection(state: Connection): void
}

const retryMs = 1000

export function followFacts(run: string, from: string, handlers: StreamHandlers): () => void {
  const ending = new AbortController()
  void follow(run, from, handlers, ending.signal)
  return () => ending.abort()
}

async function follow(run: string, from: string, handlers: StreamHandlers, signal: AbortSignal): Promise<void> {
  let last = from
  while (!signal.aborted) {
    try {
      const headers = { ...tokenHeaders(), 'last-event-id': last }
      const response = await fetch(`api/runs/${encodeURIComponent(run)}/stream`, { headers, signal })
      if (!response.ok || response.body === null) throw new Error(response.statusText)
      handlers.connection('open')
      for await (const { id, event, data } of eventsOf(response.body)) {
        // Facts are handed over before their id is kept: if the handler throws, they come again rather than never.
        if (event === 'facts') handlers.facts(JSON.parse(data) as StreamFact[])
        if (id !== undefined) last = id
      }
    } catch {
      // The connection is opened again below.
    }
    if (signal.aborted) return
    handlers.connection('lost')
    await new Promise(resolve => setTimeout(resolve, retryMs))
  }
}

interface StreamEvent {
  readonly id: string | undefined
  readonly event: string
  readonly data: string
}

async function* eventsOf(body: ReadableStream<Uint8Array>): AsyncGenerator<StreamEvent> {
  const reader = body.pipeThrough(new TextDecoderStream() as TransformStream<Uint8Array, string>).getReader()
  let rest = ''
  for (;;) {
    const { value, done } = await reader.read()
    if (done) return
    const blocks = (rest + value).split('\n\n')
    rest = blocks.pop() ?? ''
    for (const block of blocks) {
      const fields = new Map(
        block
          .split('\n')
          .map(line => [line.slice(0, line.indexOf(':')), line.slice(line.indexOf(':') + 1).trimStart()]),
      )
      const data = fields.get('data')
      if (data !== undefined) yield { id: fields.get('id'), event: fields.get('event') ?? 'message', data }
    }
  }
}
