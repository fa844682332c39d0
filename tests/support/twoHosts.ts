/**
 * Makes two hosts and a link between them on one machine: network namespaces that a bridge joins.
 *
 * out  for each host its IP address and the command prefix that runs a process on it; `cut` and `heal` of the link
 * A cut link drops packets, as a dead switch does: no connection is reset and no carrier is lost.
 * Invariant: the machine's own network is not changed; the namespaces end when the stdin of their holder processes
 * closes.
 */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process'

export interface Host {
  readonly ip: string
  /** Command prefix that runs a command on this host. */
  readonly prefix: readonly string[]
}

export interface TwoHosts {
  readonly near: Host
  readonly far: Host
  cut(): void
  heal(): void
  close(): Promise<void>
}

/** IP addresses of the hosts, in a private network that exists only between the namespaces. */
const addresses = { near: '10.77.0.1', far: '10.77.0.2' } as const

/** Returns undefined if the kernel does not allow the namespaces, or this user may not make them. */
export async function twoHosts(): Promise<TwoHosts | undefined> {
  const isRoot = process.getuid?.() === 0
  const holders: ChildProcess[] = []
  const close = async () => {
    const ended = holders.map(
      one => new Promise(resolve => (one.exitCode === null ? one.once('exit', resolve) : resolve(0))),
    )
    for (const one of holders) one.stdin?.end()
    await Promise.all(ended)
  }
  /** Starts a process that keeps a new namespace alive. Returns the process's pid. */
  const hold = async (command: readonly string[]): Promise<number> => {
    const [program, ...args] = [...command, 'sh', '-c', 'echo $$; read -r _']
    const holder = spawn(program!, args, { stdio: ['pipe', 'pipe', 'ignore'] })
    const pid = await new Promise<number>(resolve => {
      holder.stdout.once('data', said => resolve(Number(said)))
      holder.once('error', () => resolve(0))
      holder.once('exit', () => resolve(0))
    })
    if (pid === 0) throw new Error(`${program} made no namespace`)
    holders.push(holder)
    return pid
  }
  const enter = (pid: number): readonly string[] => [
    ...['nsenter', '-t', String(pid), '-n'],
    ...(isRoot ? [] : ['-U', '--preserve-credentials']),
  ]
  const run = (pid: number, command: string): void => {
    const [program, ...args] = [...enter(pid), ...command.split(' ')]
    const { status, stderr, error } = spawnSync(program!, args, { encoding: 'utf8' })
    if (status !== 0) throw new Error(`${command}: ${error?.message ?? stderr}`)
  }
  try {
    const hub = await hold(['unshare', ...(isRoot ? [] : ['-Ur']), '-n'])
    run(hub, 'ip link add hub type bridge')
    run(hub, 'ip link set hub up')
    const host = async (name: keyof typeof addresses): Promise<Host> => {
      const pid = await hold([...enter(hub), 'unshare', '-n'])
      run(hub, `ip link add ${name} type veth peer name eth0 netns ${pid}`)
      run(hub, `ip link set ${name} master hub up`)
      run(pid, `ip addr add ${addresses[name]}/24 dev eth0`)
      for (const device of ['lo', 'eth0']) run(pid, `ip link set ${device} up`)
      return { ip: addresses[name], prefix: enter(pid) }
    }
    const near = await host('near')
    const far = await host('far')
    return {
      near,
      far,
      cut: () => run(hub, 'ip link set far nomaster'),
      heal: () => run(hub, 'ip link set far master hub'),
      close,
    }
  } catch {
    await close()
    return undefined
  }
}
