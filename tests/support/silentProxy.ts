/**
 * A TCP proxy that simulates a cut link: between `cut` and `heal` it accepts connections but passes no bytes on.
 *
 * in   the port to listen on, the port behind it        out  the proxy's port; `cut` and `heal`
 * Invariant: a cut closes and resets no connection; `heal` delivers the bytes that were held back, as TCP's
 * retransmission would.
 */
import { connect, createServer, type Socket } from 'node:net'

export interface SilentProxy {
  /** Port of the proxy on 127.0.0.1. */
  readonly port: number
  cut(): void
  heal(): void
  close(): Promise<void>
}

export async function silentProxy(port: number, behind: number): Promise<SilentProxy> {
  const sockets = new Set<Socket>()
  let silent = false
  const keep = (socket: Socket, other: () => Socket) => {
    sockets.add(socket)
    socket.on('data', bytes => other().write(bytes))
    socket.on('error', () => {})
    socket.on('close', () => {
      sockets.delete(socket)
      other().destroy()
    })
    if (silent) socket.pause()
  }
  const server = createServer(near => {
    const far = connect(behind, '127.0.0.1')
    keep(near, () => far)
    keep(far, () => near)
  })
  await new Promise<void>(resolve => server.listen(port, '127.0.0.1', resolve))
  return {
    port,
    cut() {
      silent = true
      for (const socket of sockets) socket.pause()
    },
    heal() {
      silent = false
      for (const socket of sockets) socket.resume()
    },
    close: () =>
      new Promise(resolve => {
        server.close(() => resolve())
        for (const socket of sockets) socket.destroy()
      }),
  }
}
