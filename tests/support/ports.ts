/** Ports of loopback: free ones, and whether a process listens on one. */
import { readFileSync } from 'node:fs'
import { createServer } from 'node:net'

/** Returns true if a process listens on the port in the network namespace of process `pid`. */
export function listens(pid: number, port: number): boolean {
  const local = `:${port.toString(16).toUpperCase().padStart(4, '0')} `
  return ['tcp', 'tcp6'].some(file =>
    readFileSync(`/proc/${pid}/net/${file}`, 'utf8')
      .split('\n')
      .some(line => line.includes(local) && / 0A /.test(line)),
  )
}

export async function freePorts(count: number): Promise<readonly number[]> {
  const servers = await Promise.all(
    Array.from({ length: count }, () => {
      const server = createServer()
      return new Promise<typeof server>(resolve => server.listen(0, '127.0.0.1', () => resolve(server)))
    }),
  )
  const ports = servers.map(server => (server.address() as { port: number }).port)
  await Promise.all(servers.map(server => new Promise(resolve => server.close(resolve))))
  return ports
}
