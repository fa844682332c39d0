/**
 * Reads the JSON body of a request, up to a bound.
 *
 * in   a request        out  the parsed body
 * @throws TroupeError dashboard.bad_query for a body that is not JSON, or longer than `mostBytes`
 */
import type { IncomingMessage } from 'node:http'
import { badQuery } from '../query'

const mostBytes = 4096

export async function requestBody(request: IncomingMessage): Promise<unknown> {
  const chunks: Buffer[] = []
  let bytes = 0
  for await (const chunk of request as AsyncIterable<Buffer>) {
    bytes += chunk.length
    if (bytes > mostBytes) throw badQuery(`the body is longer than ${mostBytes} bytes`)
    chunks.push(chunk)
  }
  try {
    return JSON.parse(Buffer.concat(chunks).toString('utf8'))
  } catch {
    throw badQuery('the body is not JSON')
  }
}
