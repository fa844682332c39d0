/**
 * Writes a long answer no faster than its client reads it.
 *
 * in   a response, text        out  a promise that resolves when more may be written, or the connection is closed
 * Invariant: a client that reads nothing for STALLED_MS loses its connection, so that it holds neither memory nor one
 * of the server's connections for longer.
 */
import type { ServerResponse } from 'node:http'
import { STALLED_MS } from './connectionLimits'

export async function writeAndDrain(response: ServerResponse, text: string): Promise<void> {
  if (response.destroyed || response.write(text)) return
  const { socket } = response
  // The timeout begins anew whenever the client has read a part; when it passes, Node closes the connection.
  socket?.setTimeout(STALLED_MS)
  await new Promise<void>(resolve => {
    const done = () => {
      response.off('drain', done).off('close', done)
      resolve()
    }
    response.once('drain', done).once('close', done)
  })
  socket?.setTimeout(0)
}
