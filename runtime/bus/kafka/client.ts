/**
 * The client of a Kafka cluster. Apart from bench/kafka.ts, only this file imports values of kafkajs, which loads at
 * the first use.
 *
 * in   brokers and settings
 * out  kafkajs's producer and admin; and its inner `Cluster`, whose methods each send one request
 *
 * The driver uses the layer below kafkajs's consumer (protocol.ts) for reading and for membership in groups: kafkajs
 * has no call that reads one partition from an offset, and its consumer sends heartbeats only between messages, rejoins
 * without waiting for handlers, and can stop without an error.
 */
import { readFileSync } from 'node:fs'
import { connect as connectPlain, isIP, type Socket } from 'node:net'
import { connect as connectTls } from 'node:tls'
import type {
  Admin,
  ICustomPartitioner,
  ISocketFactory,
  KafkaConfig,
  Kafka as KafkaType,
  Producer,
  RetryOptions,
} from 'kafkajs'
import { asError, TroupeError } from '../../errors'
import { createLog } from '../../log'
import { resolveSecret } from '../../secrets/secretReference'
import type { KafkaAddress, KafkaSettings } from './address'
import type { GroupProtocol, KafkaCluster } from './protocol'
import { noZstd, registerZstd } from './zstd'

export interface KafkaClient {
  readonly brokers: readonly string[]
  readonly settings: KafkaSettings
  /**
   * Creates a cluster with its own connections, because a request that the broker delays blocks later ones on its
   * connection.
   */
  cluster(): KafkaCluster
  producer(): Producer
  admin(): Admin
  /** kafkajs's number of the compression codec. */
  readonly compression: number
  readonly groupProtocol: GroupProtocol
  /**
   * Closes remaining connections, and refuses new ones: kafkajs loses a connection when two requests open it at once or
   * when a broker hangs, and may open one again after it was told to disconnect.
   */
  destroy(): void
}

/** kafkajs's own retries, kept short since producer, reader and group members retry until deadlines of their own. */
const shortRetry: RetryOptions = { initialRetryTime: 50, maxRetryTime: 500, retries: 3 }
const connectionTimeoutMs = 3_000
const requestTimeoutMs = 10_000
const keepAliveMs = 60_000

type CreateCluster = (options: {
  readonly metadataMaxAge: number
  readonly allowAutoTopicCreation: boolean
  readonly isolationLevel: number
}) => KafkaCluster

/**
 * Creates the client; opens no connection yet. @throws TroupeError config.no_secret; bus.tls_failed when a PEM file
 * cannot be read; bus.codec_missing when zstd is set and this machine has none
 */
export function createKafkaClient({ brokers, settings }: KafkaAddress): KafkaClient {
  const kafkajs = require('kafkajs') as typeof import('kafkajs')
  const { AssignerProtocol, Kafka, CompressionTypes, CompressionCodecs } = kafkajs
  const sockets = new Set<Socket>()
  let isClosed = false
  const kafka: KafkaType = new Kafka({
    socketFactory: options => {
      const socket = remember(sockets, openSocket(options))
      if (isClosed) end(socket)
      return socket
    },
    brokers: [...brokers],
    clientId: 'troupe',
    connectionTimeout: connectionTimeoutMs,
    requestTimeout: requestTimeoutMs,
    retry: shortRetry,
    ...logging(kafkajs),
    ...(settings.tls === false ? {} : { ssl: tlsOf(settings.tls) }),
    ...(settings.sasl === undefined ? {} : { sasl: saslOf(settings.sasl) }),
  })
  const createCluster = (kafka as unknown as Record<symbol, CreateCluster>)[
    Object.getOwnPropertySymbols(kafka).find(symbol => symbol.description === 'private:Kafka:createCluster')!
  ]!
  const types = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP, zstd: CompressionTypes.ZSTD }
  const hasZstd = registerZstd(CompressionCodecs as Record<number, unknown>, CompressionTypes.ZSTD)
  if (settings.compression === 'zstd' && !hasZstd) throw noZstd()
  return {
    brokers,
    settings,
    compression: types[settings.compression],
    groupProtocol: AssignerProtocol,
    cluster: () => createCluster({ metadataMaxAge: 60_000, allowAutoTopicCreation: false, isolationLevel: 0 }),
    producer: () =>
      kafka.producer({
        idempotent: true,
        allowAutoTopicCreation: false,
        createPartitioner: givenPartition,
        metadataMaxAge: 60_000,
        retry: shortRetry,
      }),
    admin: () => kafka.admin({ retry: shortRetry }),
    destroy() {
      isClosed = true
      for (const socket of sockets) end(socket)
    },
  }
}

/**
 * Opens a socket as kafkajs does, but without Nagle's delay: the driver writes each request at once and awaits its
 * answer.
 */
function openSocket({ host, port, ssl, onConnect }: Parameters<ISocketFactory>[0]): Socket {
  const options = { host, port, noDelay: true, keepAlive: true, keepAliveInitialDelay: keepAliveMs }
  if (!ssl) return connectPlain(options, onConnect)
  return connectTls({ ...options, ...(isIP(host) ? {} : { servername: host }), ...ssl }, onConnect)
}

function remember(sockets: Set<Socket>, socket: Socket): Socket {
  sockets.add(socket)
  // kafkajs calls unref on a dead connection with every retry, and each call would add a listener: the call is skipped.
  const { unref } = socket
  socket.unref = () => (socket.destroyed ? socket : unref.call(socket))
  return socket.once('close', () => sockets.delete(socket))
}

/**
 * Destroys a connection with an error: without one kafkajs takes it for open, and the timer of its requests keeps the
 * process alive for ever.
 */
function end(socket: Socket): void {
  socket.destroy(new Error('the Kafka client is closed'))
}

/** Uses the partition that the bus has chosen, so that all drivers choose alike. */
const givenPartition: ICustomPartitioner =
  () =>
  ({ message }) =>
    message.partition!

function logging({ logLevel }: typeof import('kafkajs')): Partial<KafkaConfig> {
  const log = createLog('kafka')
  const wanted = ['trace', 'debug'].includes(process.env.TROUPE_LOG ?? '')
  // kafkajs's log is off unless TROUPE_LOG is trace or debug: every failure is returned as an error anyway.
  return {
    logLevel: wanted ? logLevel.INFO : logLevel.NOTHING,
    logCreator: () => entry => {
      const { message, timestamp: _, ...fields } = entry.log
      log.debug(fields, message)
    },
  }
}

function tlsOf(tls: Exclude<KafkaSettings['tls'], false>): NonNullable<KafkaConfig['ssl']> {
  if (tls === true) return true
  const pem = (file: string): string => {
    try {
      return readFileSync(file, 'utf8')
    } catch (cause) {
      const message = `the PEM file ${file} cannot be read: ${asError(cause).message}`
      const hint = 'name readable PEM files in tls.ca and tls.cert'
      throw new TroupeError('bus.tls_failed', { boundary: 'config', retriable: false, message, hint, cause })
    }
  }
  return {
    ...(tls.ca === undefined ? {} : { ca: [pem(tls.ca)] }),
    ...(tls.cert === undefined ? {} : { cert: pem(tls.cert) }),
    ...(tls.key === undefined ? {} : { key: resolveSecret(tls.key) }),
    ...(tls.passphrase === undefined ? {} : { passphrase: resolveSecret(tls.passphrase) }),
    ...(tls.serverName === undefined ? {} : { servername: tls.serverName }),
  }
}

function saslOf({
  mechanism,
  username,
  password,
}: NonNullable<KafkaSettings['sasl']>): NonNullable<KafkaConfig['sasl']> {
  return { mechanism, username, password: resolveSecret(password) } as NonNullable<KafkaConfig['sasl']>
}
