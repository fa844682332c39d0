/**
 * The part of kafkajs's inner layer that the driver uses: brokers, their requests, the cluster's metadata. Types, and
 * a limit on the version of fetch requests.
 *
 * kafkajs does not publish this layer. Its version is pinned, and a test checks these declarations against it.
 */
import type { AssignerProtocol } from 'kafkajs'

/** kafkajs's encoding of group members and their assignments. */
export type GroupProtocol = typeof AssignerProtocol

export interface FetchedRecord {
  readonly offset: string
  readonly timestamp: string
  readonly key: Buffer | null
  readonly value: Buffer | null
  /** Headers by name; a header that occurs twice is a list. */
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

/** Connection to one broker. Each method is one request, and rejects with kafkajs's errors. */
export interface KafkaBroker {
  /** Protocol versions that the broker supports, by the number of the request type. */
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

/** Connections to all brokers, and the cached metadata of topics. */
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
  /** Known brokers of the cluster, by node id. */
  readonly brokerPool: { readonly brokers: Readonly<Record<string, { isConnected(): boolean }>> }
}

const fetchKey = 1
const lastLeaderOnlyFetch = 10

/**
 * Limits the broker's fetch requests to version 10. From version 11 on, a broker that no longer leads a partition
 * answers as a follower: it leaves out the records acknowledged since, without any error.
 */
export function asLeader(broker: KafkaBroker): KafkaBroker {
  const fetch = broker.versions[fetchKey]
  if (fetch && fetch.maxVersion > lastLeaderOnlyFetch) fetch.maxVersion = lastLeaderOnlyFetch
  return broker
}
