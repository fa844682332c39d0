/**
 * Reads a run's stream of facts from a dashboard's server, as a page does.
 *
 * in   the server's address, a run, the cursor to begin at, the number of facts to wait for
 * out  the facts, the id of the last event that was taken, the number of facts of each event
 * Invariant: the connection is cut behind an event, so `id` is where the next reading goes on.
 */
import type { StreamFact } from '../../../dashboard/api'

export interface Streamed {
  readonly facts: readonly StreamFact[]
  readonly id: string
  readonly batches: readonly number[]
}

export async function streamed(url: string, run: string, from: string, count: number): Promise<Streamed> {
  const ending = new AbortController()
  const headers = { 'last-event-id': from }
  const response = await fetch(`${url}api/runs/${run}/stream`, { headers, signal: ending.signal })
  const facts: StreamFact[] = []
  const batches: number[] = []
  let id = from
  let rest = ''
  const decoder = new TextDecoder()
  for await (const chunk of response.body as unknown as AsyncIterable<Uint8Array>) {
    const blocks = (rest + decoder.decode(chunk, { stream: true })).split('\n\n')
    rest = blocks.pop()!
    for (const block of blocks) {
      const [, next] = /^id: (.*)$/m.exec(block) ?? []
      const [, data] = /^event: facts\ndata: (.*)$/m.exec(block) ?? []
      if (data !== undefined) {
        const found = JSON.parse(data) as StreamFact[]
        facts.push(...found)
        batches.push(found.length)
      }
      id = next ?? id
      if (facts.length >= count) break
    }
    if (facts.length >= count) break
  }
  ending.abort()
  return { facts, id, batches }
}
