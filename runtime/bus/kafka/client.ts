/**
 * The connection to a Kafka cluster. With kafkaGroup, the only file that imports kafkajs, which loads when it is needed.
 *
 * in   brokers and settings      out  kafkajs's producer and admin; and its `Cluster`, one request at a time
 * kafkajs has no call that reads a partition by hand, and its consumer heartbeats only between messages, rejoins without
 * waiting for work and can die in silence. So reading and membership stand on the layer under its consumer: connections,
 * metadata, encoding. That layer is not public; the version is pinned, and a test holds these declarations to it.
 */
import { readFileSync } from 'node:fs'
import { connect as connectPlain, isIP, type Socket } from 'node:net'
import { connect as connectTls } from 'node:tls'
import { promisify } from 'node:util'
import * as zlib from 'node:zlib'
import type {
  Admin,
  ICustomPartitioner,
  ISocketFactory,
  KafkaConfig,
  Kafka as KafkaType,
  Producer,
  RetryOptions,
} from 'kafkajs'
import { TroupeError } from '../../errors'
import { createLog } from '../../log'
import { resolveSecret } from '../../secret'
import type { KafkaAddress, KafkaSettings } from './address'

export interface FetchedRecord {
  readonly offset: string
  readonly timestamp: string
  readonly key: Buffer | null
  readonly value: Buffer | null
  /** A header that stands there twice is a list. */
  readonly headers: Readonly<Record<string, Buffer | readonly Buffer[] | null>>
  readonly isControlRecord: boolean
}

export interface FetchedPartition {
  readonly partition: number
  readonly highWatermark: string
  readonly messages: readonly FetchedRecord[]
}

export interface JoinedGroup {
  readonly generationId: number
  readonly leaderId: string
  readonly memberId: string
  readonly members: readonly { readonly memberId: string; readonly memberMetadata: Buffer }[]
}

interface TopicPartitions<P> {
  readonly topic: string
  readonly partitions: readonly P[]
}

/** One broker; every call is one request. Rejects with kafkajs's errors. */
export interface KafkaBroker {
  /** By number of the request: what the broker speaks. */
  readonly versions: Readonly<Record<number, { readonly minVersion: number; maxVersion: number }>>
  fetch(request: {
    readonly replicaId: -1
    readonly isolationLevel: 0
    readonly maxWaitTime: number
    readonly minBytes: number
    readonly maxBytes: number
    readonly topics: readonly TopicPartitions<{ partition: number; fetchOffset: string; maxBytes: number }>[]
  }): Promise<{
    readonly responses: readonly { readonly topicName: string; readonly partitions: readonly FetchedPartition[] }[]
  }>
  listOffsets(request: {
    readonly replicaId: -1
    readonly isolationLevel: 0
    readonly topics: readonly TopicPartitions<{ partition: number; timestamp: number }>[]
  }): Promise<{ readonly responses: readonly { readonly partitions: readonly { readonly offset: string }[] }[] }>
  findGroupCoordinator(request: {
    readonly groupId: string
    readonly coordinatorType: number
  }): Promise<{ readonly coordinator: { readonly nodeId: number } }>
  joinGroup(request: {
    readonly groupId: string
    readonly sessionTimeout: number
    readonly rebalanceTimeout: number
    readonly memberId: string
    readonly groupProtocols: readonly { readonly name: string; readonly metadata: Buffer }[]
  }): Promise<JoinedGroup>
  syncGroup(request: {
    readonly groupId: string
    readonly generationId: number
    readonly memberId: string
    readonly groupAssignment: readonly { readonly memberId: string; readonly memberAssignment: Buffer }[]
  }): Promise<{ readonly memberAssignment: Buffer }>
  heartbeat(request: {
    readonly groupId: string
    readonly groupGenerationId: number
    readonly memberId: string
  }): Promise<unknown>
  leaveGroup(request: { readonly groupId: string; readonly memberId: string }): Promise<unknown>
  offsetCommit(request: {
    readonly groupId: string
    readonly groupGenerationId: number
    readonly memberId: string
    readonly topics: readonly TopicPartitions<{ partition: number; offset: string }>[]
  }): Promise<unknown>
  offsetFetch(request: {
    readonly groupId: string
    readonly topics: readonly TopicPartitions<{ partition: number }>[]
  }): Promise<{ readonly responses: readonly { readonly partitions: readonly { readonly offset: string }[] }[] }>
}

/** Connections to all brokers and what is known of topics. */
export interface KafkaCluster {
  connect(): Promise<void>
  disconnect(): Promise<void>
  addMultipleTargetTopics(topics: readonly string[]): Promise<void>
  refreshMetadata(): Promise<void>
  metadata(of: { readonly topics: readonly string[] }): Promise<{
    readonly brokers: readonly { readonly nodeId: number }[]
    readonly topicMetadata: readonly {
      readonly topic: string
      readonly partitionMetadata: readonly { readonly replicas: readonly number[] }[]
    }[]
  }>
  findTopicPartitionMetadata(topic: string): readonly { readonly partitionId: number; readonly leader: number }[]
  findBroker(of: { readonly nodeId: number | string }): Promise<KafkaBroker>
  /** Brokers that are known, by node id. */
  readonly brokerPool: { readonly brokers: Readonly<Record<string, { isConnected(): boolean }>> }
}

export interface KafkaClient {
  readonly brokers: readonly string[]
  readonly settings: KafkaSettings
  /** With connections of its own: a request that the broker holds back blocks those behind it on its connection. */
  cluster(): KafkaCluster
  producer(): Producer
  admin(): Admin
  /** kafkajs's number of the codec. */
  readonly compression: number
  /** Ends what connections are left: kafkajs forgets one when two requests open it at once, or a broker hangs. */
  destroy(): void
}

const fetchKey = 1
const lastLeaderOnlyFetch = 10

/**
 * The same broker, asked for records as its partitions' leader. From version 11 on a broker that no longer leads answers as
 * a follower, without what the leader has acknowledged since, and without an error by which to notice.
 */
export function asLeader(broker: KafkaBroker): KafkaBroker {
  const fetch = broker.versions[fetchKey]
  if (fetch && fetch.maxVersion > lastLeaderOnlyFetch) fetch.maxVersion = lastLeaderOnlyFetch
  return broker
}

/** Short, because whoever asks tries again by itself until its own deadline. */
const shortRetry: RetryOptions = { initialRetryTime: 50, maxRetryTime: 500, retries: 3 }
const connectionTimeoutMs = 3_000
const requestTimeoutMs = 10_000
const keepAliveMs = 60_000

type CreateCluster = (options: {
  readonly metadataMaxAge: number
  readonly allowAutoTopicCreation: boolean
  readonly isolationLevel: number
}) => KafkaCluster

/** Connects to nothing yet. @throws TroupeError config.no_secret, bus.tls_failed, bus.codec_missing */
export function createKafkaClient({ brokers, settings }: KafkaAddress): KafkaClient {
  const kafkajs = require('kafkajs') as typeof import('kafkajs')
  const { Kafka, CompressionTypes, CompressionCodecs } = kafkajs
  const sockets = new Set<Socket>()
  const kafka: KafkaType = new Kafka({
    socketFactory: options => remember(sockets, openSocket(options)),
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
      for (const socket of sockets) socket.destroy()
    },
  }
}

/** As kafkajs does it, and without Nagle's delay: a request is one write, and its answer is waited for. */
function openSocket({ host, port, ssl, onConnect }: Parameters<ISocketFactory>[0]): Socket {
  const options = { host, port, noDelay: true, keepAlive: true, keepAliveInitialDelay: keepAliveMs }
  if (!ssl) return connectPlain(options, onConnect)
  return connectTls({ ...options, ...(isIP(host) ? {} : { servername: host }), ...ssl }, onConnect)
}

function remember(sockets: Set<Socket>, socket: Socket): Socket {
  sockets.add(socket)
  // kafkajs lets go of a dead connection again with every try, and Node then waits for it to connect: a listener each time.
  const { unref } = socket
  socket.unref = () => (socket.destroyed ? socket : unref.call(socket))
  return socket.once('close', () => sockets.delete(socket))
}

/** Partitions are chosen by the bus, for every driver alike. */
const givenPartition: ICustomPartitioner =
  () =>
  ({ message }) =>
    message.partition!

function logging({ logLevel }: typeof import('kafkajs')): Partial<KafkaConfig> {
  const log = createLog('kafka')
  const wanted = ['trace', 'debug'].includes(process.env.TROUPE_LOG ?? '')
  // Every failure comes back as an error; kafkajs's own words are for those who look for the cause.
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
      const message = `${file} cannot be read`
      const hint = 'tls.ca and tls.cert name PEM files'
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

type Zstd = (bytes: Buffer, callback: (error: Error | null, result: Buffer) => void) => void

interface ZstdCodec {
  compress(bytes: Buffer): Promise<Buffer>
  decompress(bytes: Buffer): Promise<Buffer>
}

/** An optional dependency: prebuilt, from npm alone, for the machines that it is built for. */
const zstdPackage = '@mongodb-js/zstd'

/** Node's own from 22.15 on; before that the package's, where it is there. kafkajs has none. */
function zstdHere(): ZstdCodec | undefined {
  const { zstdCompress, zstdDecompress } = zlib as unknown as { zstdCompress?: Zstd; zstdDecompress?: Zstd }
  if (zstdCompress !== undefined && zstdDecompress !== undefined) {
    return { compress: promisify(zstdCompress), decompress: promisify(zstdDecompress) }
  }
  try {
    const { compress, decompress } = require(zstdPackage) as ZstdCodec
    return { compress: bytes => compress(bytes), decompress: bytes => decompress(bytes) }
  } catch {
    return undefined // not installed, or not for this machine: whoever needs it is told so
  }
}

function registerZstd(codecs: Record<number, unknown>, zstd: number): boolean {
  const codec = zstdHere()
  if (codec === undefined) return false
  codecs[zstd] = () => ({
    compress: (encoder: { readonly buffer: Buffer }) => codec.compress(encoder.buffer),
    decompress: (bytes: Buffer) => codec.decompress(bytes),
  })
  return true
}

function noZstd(): TroupeError {
  return new TroupeError('bus.codec_missing', {
    boundary: 'config',
    retriable: false,
    message: `compression=zstd: Node ${process.versions.node} has no zstd`,
    hint: `run Node 22.15 or newer, or npm install ${zstdPackage}@1.2.2, or take compression=gzip`,
  })
}
