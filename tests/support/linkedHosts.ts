/**
 * Simulates two hosts: a broker on `near`, and `far`, which reaches the broker over a link that a test can cut. The
 * hosts are network namespaces; if those are not allowed, the link is a proxy.
 *
 * in   the query part of the bus's address        out  for each host its bus address and command prefix; the link
 * Invariant: a cut link passes nothing in either direction and closes no connection, on either kind.
 */
import { startKafka } from './kafka'
import { freePorts } from './ports'
import { silentProxy } from './silentProxy'
import { twoHosts } from './twoHosts'

export interface LinkedHost {
  readonly bus: string
  /** Command prefix that runs a command on this host. */
  readonly prefix: readonly string[]
}

export interface LinkedHosts {
  readonly kind: 'namespaces' | 'proxy'
  /** Host of the broker. */
  readonly near: LinkedHost
  readonly far: LinkedHost
  cut(): void
  heal(): void
  close(): Promise<void>
}

/** Starts the hosts. `kind`: kind of the link. Default: namespaces if this machine allows them, else proxy. */
export async function linkedHosts(query: string, kind?: LinkedHosts['kind']): Promise<LinkedHosts> {
  const hosts = kind === 'proxy' ? undefined : await twoHosts()
  if (hosts !== undefined) {
    const kafka = await startKafka({ host: hosts.near }).catch(async error => {
      await hosts.close()
      throw error
    })
    const bus = `${kafka.address}${query}`
    return {
      kind: 'namespaces',
      near: { bus, prefix: hosts.near.prefix },
      far: { bus, prefix: hosts.far.prefix },
      cut: hosts.cut,
      heal: hosts.heal,
      async close() {
        await kafka.stop()
        await hosts.close()
      },
    }
  }
  if (kind === 'namespaces') throw new Error('this kernel or this user may not make network namespaces')
  const [through, behind] = (await freePorts(2)) as [number, number]
  const way = { listens: `127.0.0.1:${behind}`, advertised: `127.0.0.1:${through}` }
  const kafka = await startKafka({ way })
  const link = await silentProxy(through, behind)
  return {
    kind: 'proxy',
    near: { bus: `${kafka.address}${query}`, prefix: [] },
    far: { bus: `kafka://127.0.0.1:${through}${query}`, prefix: [] },
    cut: link.cut,
    heal: link.heal,
    async close() {
      await link.close()
      await kafka.stop()
    },
  }
}
