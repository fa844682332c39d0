/**
 * The topics of a run on a Kafka cluster: creates missing ones, refuses existing ones that would lose or reorder
 * records.
 *
 * in   the topics that a run needs      out  topics with those partitions and at least that retention
 * Invariant: an existing topic is never changed. A refusal names the topic, the found and the wanted value, and for a
 * setting also the setting and the command that changes it. In topics created here records get the broker's time, so
 * that a wrong client clock cannot expire them.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type { Admin, ITopicConfig } from 'kafkajs'
import { TroupeError } from '../../errors'
import type { TopicConfig } from '../bus'
import { checkTopicConfig } from '../busChecks'
import { busErrors } from '../busErrors'
import type { KafkaClient } from './client'
import { kafkaError } from './errors'
import type { KafkaCluster } from './protocol'

const topicResource = 2
const usualReplication = 3
/**
 * Upper bound on the look-ups of a topic in a cluster of several brokers: the broker that answers may not know a new
 * topic yet.
 */
const settleTries = 20
const settlePauseMs = 50
const createTimeoutMs = 20_000
const metadataAttempts = 20
const metadataPauseMs = 250
/** Minimum max.message.bytes of a topic, in bytes, that accepts the producer's batches. */
const minMessageBytes = 1_048_588

type Settings = ReadonlyMap<string, string>

interface Shape {
  readonly partitions: number
  /** Number of replicas of the partition that has the fewest. */
  readonly replicas: number
}

export class KafkaTopics {
  private readonly counts = new Map<string, number>()
  private readonly retention = new Map<string, number | null>()
  private admin: Promise<Admin> | undefined

  constructor(
    private readonly client: KafkaClient,
    private readonly cluster: KafkaCluster,
    private readonly toWire: (topic: string) => string,
    private readonly fromWire: (topic: string) => string,
  ) {}

  /** Returns the partition count of a topic; undefined while it is not known yet. */
  known(topic: string): number | undefined {
    return this.counts.get(topic)
  }

  /** Looks up the partition count of a topic, by its name on the broker. @throws TroupeError bus.topic_unknown */
  async partitionsOf(topic: string): Promise<number> {
    const known = this.counts.get(topic)
    if (known !== undefined) return known
    const { brokers, topics } = await this.lookUp()
    // In a cluster of several brokers, the one that answers may not know a topic that another one has just created.
    for (let tries = brokers > 1 ? settleTries : 1; !topics.has(topic) && tries > 1; tries--) {
      await sleep(settlePauseMs)
      for (const [name, shape] of (await this.lookUp()).topics) topics.set(name, shape)
    }
    const count = topics.get(topic)?.partitions
    if (count === undefined) throw busErrors.topicUnknown(this.fromWire(topic))
    await this.cluster.addMultipleTargetTopics([topic])
    this.counts.set(topic, count)
    return count
  }

  async list(): Promise<readonly TopicConfig[]> {
    const { topics } = await this.lookUp()
    const prefix = this.toWire('')
    const ours = [...topics].filter(([name]) => name.startsWith(prefix) && !name.startsWith('__'))
    const unknown = ours.map(([name]) => name).filter(name => !this.retention.has(name))
    for (const [name, settings] of await this.settingsOf(unknown)) this.retention.set(name, retentionOf(settings))
    return ours.map(([name, { partitions }]) => ({
      topic: this.fromWire(name),
      partitions,
      retentionMs: this.retention.get(name) ?? null,
    }))
  }

  async create(configs: readonly TopicConfig[]): Promise<void> {
    const wanted = new Map<string, TopicConfig>()
    for (const config of configs) {
      checkTopicConfig(config)
      const before = wanted.get(config.topic)
      if (before && before.partitions !== config.partitions) {
        throw busErrors.topicMismatch(config.topic, before.partitions, config.partitions)
      }
      wanted.set(config.topic, config)
    }
    const { brokers, topics } = await this.lookUp()
    const missing = [...wanted.values()].filter(({ topic }) => !topics.has(this.toWire(topic)))
    await this.check([...wanted.values()].filter(config => !missing.includes(config)))
    if (missing.length === 0) return
    const replication = this.client.settings.replication ?? Math.min(usualReplication, brokers)
    const admin = await this.connected()
    try {
      const made = await admin.createTopics({
        topics: missing.map(config => this.newTopic(config, replication)),
        waitForLeaders: true,
        timeout: createTimeoutMs,
      })
      // Another process created the topics meanwhile: they must have the settings that this run needs.
      if (!made) await this.check(missing)
    } catch (thrown) {
      throw kafkaError(thrown, 'creating topics', this.client.brokers)
    }
    for (const { topic } of missing) await this.partitionsOf(this.toWire(topic))
  }

  async close(): Promise<void> {
    await (await this.admin?.catch(() => undefined))?.disconnect()
  }

  private newTopic({ topic, partitions, retentionMs }: TopicConfig, replicationFactor: number): ITopicConfig {
    const settings = {
      'cleanup.policy': 'delete',
      'retention.ms': String(retentionMs ?? -1),
      'retention.bytes': '-1',
      'message.timestamp.type': 'LogAppendTime',
      'min.insync.replicas': String(inSyncOf(replicationFactor)),
      'unclean.leader.election.enable': 'false',
    }
    return {
      topic: this.toWire(topic),
      numPartitions: partitions,
      replicationFactor,
      configEntries: Object.entries(settings).map(([name, value]) => ({ name, value })),
    }
  }

  private async check(configs: readonly TopicConfig[]): Promise<void> {
    const { topics } = await this.lookUp()
    const settings = await this.settingsOf(configs.map(({ topic }) => this.toWire(topic)))
    for (const { topic, partitions, retentionMs } of configs) {
      const name = this.toWire(topic)
      const { partitions: has, replicas } = topics.get(name) ?? { partitions: 0, replicas: 0 }
      if (has !== partitions) throw busErrors.topicMismatch(topic, has, partitions)
      const found = settings.get(name) ?? new Map()
      const refuse = (setting: string, wanted: string): never => {
        throw this.wrongSetting(name, setting, found.get(setting) ?? 'nothing', wanted)
      }
      if (found.get('cleanup.policy') !== 'delete') refuse('cleanup.policy', 'delete')
      const kept = retentionOf(found)
      if (kept !== null && (retentionMs === null || kept < retentionMs))
        refuse('retention.ms', String(retentionMs ?? -1))
      if (retentionMs === null && Number(found.get('retention.bytes') ?? -1) >= 0) refuse('retention.bytes', '-1')
      if (Number(found.get('max.message.bytes') ?? minMessageBytes) < minMessageBytes) {
        refuse('max.message.bytes', String(minMessageBytes))
      }
      const inSync = inSyncOf(replicas)
      if (Number(found.get('min.insync.replicas') ?? inSync) < inSync) refuse('min.insync.replicas', String(inSync))
      if (found.get('unclean.leader.election.enable') === 'true') refuse('unclean.leader.election.enable', 'false')
    }
  }

  private wrongSetting(topic: string, setting: string, found: string, wanted: string): TroupeError {
    const server = this.client.brokers[0]!
    const change = `--alter --entity-type topics --entity-name ${topic} --add-config ${setting}=${wanted}`
    return new TroupeError('bus.topic_mismatch', {
      boundary: 'bus',
      retriable: false,
      message: `topic ${topic} has ${setting}=${found}, expected ${wanted}: with the present value, records of a run could be lost or refused`,
      hint: `run kafka-configs.sh --bootstrap-server ${server} ${change}`,
    })
  }

  private async lookUp(): Promise<{ brokers: number; topics: Map<string, Shape> }> {
    try {
      await this.cluster.refreshMetadata()
      const { brokers, topicMetadata } = await this.metadata()
      const topics = new Map<string, Shape>()
      for (const { topic, partitionMetadata } of topicMetadata) {
        const replicas = Math.min(...partitionMetadata.map(one => one.replicas.length))
        topics.set(topic, { partitions: partitionMetadata.length, replicas })
      }
      return { brokers: brokers.length, topics }
    } catch (thrown) {
      throw kafkaError(thrown, 'looking up topics', this.client.brokers)
    }
  }

  /**
   * Fetches the metadata; retries when kafkajs returns null: no known broker answered, for example while one restarts.
   */
  private async metadata() {
    for (let attempt = 0; attempt < metadataAttempts; attempt++) {
      const found = (await this.cluster.metadata({ topics: [] })) as Awaited<
        ReturnType<KafkaCluster['metadata']>
      > | null
      if (found !== null) return found
      await sleep(metadataPauseMs)
    }
    throw new TroupeError('bus.unreachable', {
      boundary: 'bus',
      retriable: true,
      message: `no broker answers at ${this.client.brokers.join(', ')} (looking up topics)`,
      hint: 'check that the broker runs',
    })
  }

  private async settingsOf(topics: readonly string[]): Promise<ReadonlyMap<string, Settings>> {
    if (topics.length === 0) return new Map()
    try {
      const admin = await this.connected()
      const { resources } = await admin.describeConfigs({
        includeSynonyms: false,
        resources: topics.map(name => ({ type: topicResource, name })),
      })
      return new Map(
        resources.map(({ resourceName, configEntries }) => [
          resourceName,
          new Map(configEntries.map(({ configName, configValue }) => [configName, configValue])),
        ]),
      )
    } catch (thrown) {
      throw kafkaError(thrown, 'reading the settings of topics', this.client.brokers)
    }
  }

  private connected(): Promise<Admin> {
    this.admin ??= (async () => {
      const admin = this.client.admin()
      await admin.connect()
      return admin
    })()
    this.admin.catch(() => {
      this.admin = undefined
    })
    return this.admin
  }
}

/**
 * Returns min.insync.replicas for a topic: the least number of in-sync replicas with which its partitions accept
 * records. With one or two replicas it is 1, so that a broker that is down does not stop a run.
 */
const inSyncOf = (replicas: number): number => (replicas >= usualReplication ? 2 : 1)

function retentionOf(settings: Settings): number | null {
  const ms = Number(settings.get('retention.ms') ?? -1)
  return ms < 0 ? null : ms
}
