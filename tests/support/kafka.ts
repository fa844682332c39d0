/**
 * Starts a real Kafka cluster on loopback: one or more brokers, each a process with its own directory.
 *
 * in   the number of brokers, their properties
 * out  the address; brokers that can be killed, stopped and started again
 * Invariant: the brokers end when this process ends, also by SIGKILL: the parent of each is a shell that kills it when
 * the shell's stdin closes.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { sharedClasses } from './kafkaClasses'
import { formatStorage } from './kafkaStorage'
import { freePorts, listens } from './ports'
import { until } from './until'

const { libsOf, isComplete, checkJava } = require('../../cli/setup/kafka') as {
  libsOf(where: unknown): string
  isComplete(folder: string): boolean
  checkJava(): void
}
const { places } = require('../../cli/setup/places') as { places(): unknown }

/** JVM flags with which a broker starts in 2 s instead of 8: the first compiler only, and the serial collector. */
const jvm = ['-XX:TieredStopAtLevel=1', '-XX:+UseSerialGC', '-Xshare:auto', '-Djava.awt.headless=true']
const clusterId = 'MkU3OEVBNTcwNTJENDM2Qk'
const startTimeoutMs = 60_000

export interface KafkaOptions {
  readonly brokers?: number
  /** Broker properties that override the defaults below. */
  readonly properties?: Readonly<Record<string, string>>
  /** Further arguments of StorageTool, such as --add-scram. */
  readonly format?: readonly string[]
  readonly heapMb?: number
  /** Security protocol of the clients' listener, as in listener.security.protocol.map. Default: PLAINTEXT. */
  readonly protocol?: 'PLAINTEXT' | 'SASL_PLAINTEXT' | 'SSL'
  /** Second listener of a single broker: the HOST:PORT where it listens, and the HOST:PORT that it advertises. */
  readonly way?: { readonly listens: string; readonly advertised: string }
  /** Host of a single broker: its IP address, and the command prefix that runs a process there. Default: this host. */
  readonly host?: { readonly ip: string; readonly prefix: readonly string[] }
}

interface KafkaBroker {
  readonly port: number
  readonly pid: () => number
  kill(signal: NodeJS.Signals): void
  /** Starts the broker again on its own data. */
  start(): Promise<void>
}

export interface KafkaServers {
  /** kafka://127.0.0.1:PORT[,…] */
  readonly address: string
  readonly brokers: readonly KafkaBroker[]
  stop(): Promise<void>
}

/** Folder of Kafka's jars. Throws if Java or the jars are missing, with the command that installs them. */
export function kafkaLibs(): string {
  checkJava()
  const libs = libsOf(places())
  if (!process.env.TROUPE_KAFKA_LIBS && !isComplete(libs)) {
    throw new Error(`${libs} does not hold a Kafka: run node cli/setup.js --kafka`)
  }
  return libs
}

export async function startKafka(options: KafkaOptions = {}): Promise<KafkaServers> {
  const libs = kafkaLibs()
  const count = options.brokers ?? 1
  const root = mkdtempSync(join(tmpdir(), 'troupe-kafka-'))
  const ports = await freePorts(2 * count)
  const { way, host: { ip, prefix } = { ip: '127.0.0.1', prefix: [] } } = options
  const more = { listens: '', advertised: '', protocols: '' }
  if (way !== undefined) {
    more.listens = `,WAY://${way.listens}`
    more.advertised = `,WAY://${way.advertised}`
    more.protocols = ',WAY:PLAINTEXT'
  }
  const voters = Array.from({ length: count }, (_, i) => `${i + 1}@127.0.0.1:${ports[2 * i + 1]}`).join(',')
  const shells: ChildProcess[] = []
  const java = (...args: readonly string[]): string[] => [...jvm, '-cp', `${libs}/*`, ...args]
  const shared = await sharedClasses(libs, java)
  const brokers = await Promise.all(
    Array.from({ length: count }, async (_, i) => {
      const port = ports[2 * i]!
      const directory = join(root, String(i + 1))
      mkdirSync(directory)
      const file = join(directory, 'server.properties')
      const copies = String(Math.min(3, count))
      const properties = {
        'process.roles': 'broker,controller',
        'node.id': String(i + 1),
        'controller.quorum.voters': voters,
        listeners: `CLIENT://${ip}:${port},CONTROLLER://127.0.0.1:${ports[2 * i + 1]}${more.listens}`,
        'advertised.listeners': `CLIENT://${ip}:${port}${more.advertised}`,
        'controller.listener.names': 'CONTROLLER',
        'inter.broker.listener.name': 'CLIENT',
        'listener.security.protocol.map': `CLIENT:${options.protocol ?? 'PLAINTEXT'},CONTROLLER:PLAINTEXT${more.protocols}`,
        'log.dirs': join(directory, 'data'),
        'offsets.topic.replication.factor': copies,
        'offsets.topic.num.partitions': '3',
        'transaction.state.log.replication.factor': copies,
        'transaction.state.log.num.partitions': '1',
        'transaction.state.log.min.isr': '1',
        'group.initial.rebalance.delay.ms': '0',
        'group.min.session.timeout.ms': '1000',
        'auto.create.topics.enable': 'false',
        // Short timeouts, so that the cluster notices a killed broker soon.
        'broker.session.timeout.ms': '3000',
        'broker.heartbeat.interval.ms': '500',
        'replica.lag.time.max.ms': '3000',
        'controller.quorum.election.timeout.ms': '500',
        'controller.quorum.fetch.timeout.ms': '1000',
        ...options.properties,
      }
      writeFileSync(file, Object.entries(properties).map(([name, value]) => `${name}=${value}\n`).join('')) // biome-ignore format: one line a property
      const format = ['kafka.tools.StorageTool', 'format', '-t', clusterId, '-c', file, ...(options.format ?? [])]
      const storage = { id: i + 1, data: properties['log.dirs'], libs, command: [...shared, ...java(...format)] }
      formatStorage(storage, options.format !== undefined)
      let pid = 0
      const log = join(directory, 'broker.log')
      const begin = async (): Promise<void> => {
        const script = 'log=$1; shift; "$@" >>"$log" 2>&1 & echo $!; read -r _; kill -9 $! 2>/dev/null'
        const args = [...prefix, 'java', ...shared, ...java(`-Xmx${options.heapMb ?? 384}m`, 'kafka.Kafka', file)]
        const shell = spawn('sh', ['-c', script, 'sh', log, ...args], { stdio: ['pipe', 'pipe', 'inherit'] })
        shells.push(shell)
        pid = await new Promise<number>(resolve => shell.stdout!.once('data', chunk => resolve(Number(chunk))))
        await until(() => listens(pid, port), startTimeoutMs, 50).catch(() => {
          throw new Error(
            `a broker did not start within ${startTimeoutMs} ms: ${readFileSync(log, 'utf8').slice(-2000)}`,
          )
        })
      }
      await begin()
      return { port, pid: () => pid, kill: (signal: NodeJS.Signals) => void process.kill(pid, signal), start: begin }
    }),
  )
  return {
    address: `kafka://${brokers.map(broker => `${ip}:${broker.port}`).join(',')}`,
    brokers,
    async stop() {
      const ended = shells.map(shell =>
        shell.exitCode !== null ? Promise.resolve() : new Promise<void>(resolve => shell.once('exit', () => resolve())),
      )
      for (const shell of shells) shell.stdin?.end()
      await Promise.all(ended)
      rmSync(root, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 })
    },
  }
}
