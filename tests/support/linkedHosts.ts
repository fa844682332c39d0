/**
 * A broker on one host, and another host that reaches it over a link: by namespaces where there are any, else by a proxy.
 *
 * in   how a client is to be set        out  for each host its bus's address and how to start a process there; the link
 * Invariant: a link that is cut is silent both ways, on either kind. Brokers listen on loopback or in their namespace alone.
 */
import { freePorts, startKafka } from './kafka'
import { silentProxy } from './silentProxy'
import { twoHosts } from './twoHosts'

export interface LinkedHost {
  readonly bus: string
  /** Put before a command, which then runs on this host. */
  readonly prefix: readonly string[]
}

export interface LinkedHosts {
  readonly kind: 'namespaces' | 'proxy'
  /** The broker's. */
  readonly near: LinkedHost
  readonly far: LinkedHost
  cut(): void
  heal(): void
  close(): Promise<void>
}

/** `kind`: default the first that this machine has. */
export async function linkedHosts(query: string, kind?: LinkedHosts['kind']): Promise<LinkedHosts> {
  const hosts = kind === 'proxy' ? undefined : await twoHosts()
  if (hosts !== undefined) {
    const kafka = await startKafka({ host: hosts.near })
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
  if (kind === 'namespaces') throw new Error('this kernel, or who may what here, allows for no network namespaces')
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
