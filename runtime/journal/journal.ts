/**
 * The journal: the messages of a run, as its readers and writers use them. `openJournal` makes one over a bus.
 *
 * in   messages to append, topics to follow        out  the same messages, each with its position in the log
 * Invariant: a follower sees every readable message of a partition in order. A record that cannot be read is copied to
 * `dead-letters` with its error and origin, a fact reports it, and the follower continues; a read-only journal writes
 * neither the copy nor the fact.
 */
import type { Message, TopicName } from '../../messages'
import type { RunId } from '../../messages/ids'
import type { BusRecord, Position } from '../bus/bus'

/** A message and its position in the log. */
export interface Entry {
  readonly message: Message
  readonly topic: TopicName
  readonly partition: number
  readonly offset: number
  /** Time at which the message was appended, ms since 1970. */
  readonly timestamp: number
  /**
   * Random name of the journal, and so of the process, that wrote the message: for claims of roles and for facts that
   * only the process with the role may write. Absent in logs of earlier versions.
   */
  readonly writer?: string
}

/** A topic to follow, and the offset to begin at. */
export interface Feed {
  readonly topic: TopicName
  /**
   * Beginning of following. committed: at the group's committed offset, else at the oldest. latest: only records
   * appended from now on.
   */
  readonly from: 'oldest' | 'committed' | 'latest'
  /**
   * Delivers only records of this key; records of other keys are not decoded. For a topic of commands with many
   * followers, such as one for each engine. Default: all records.
   */
  readonly key?: string
}

export interface FollowOptions {
  /** Name of the consumer group. */
  readonly group: string
  readonly feeds: readonly Feed[]
  /** Minimum time from the end of a handler call to the next batch of the same partition, ms. Default 0. */
  readonly lingerMs?: number
  /**
   * Called before the first entry of a newly owned partition. The offset that it returns replaces the beginning of the
   * feed; undefined keeps that.
   */
  readonly onAssigned?: (topic: TopicName, partition: number) => Promise<number | undefined>
  readonly onRevoked?: (topic: TopicName, partition: number) => Promise<void>
  /** Called once, when the follower fails and stops. */
  readonly onError: (error: Error) => void
}

export interface Following {
  /** Commits an offset: every entry before it is done, so the group begins there next time. */
  commit(topic: TopicName, partition: number, offset: number): Promise<void>
  close(): Promise<void>
}

export interface Journal {
  readonly run: RunId
  /**
   * Creates the run's missing topics; existing ones keep their settings. @throws TroupeError bus.topic_mismatch if one
   * has another number of partitions than the run needs
   * @param partitions number of partitions of each topic that may have several
   * @param commandRetentionMs time for which command topics keep a record. Default: that of the topic table, 24 h
   */
  create(partitions: number, commandRetentionMs?: number): Promise<void>
  partitionsOf(topic: TopicName): Promise<number>
  /** Appends messages; resolves with their positions once all are durable. */
  append(messages: readonly Message[]): Promise<readonly Position[]>
  /**
   * Appends messages to partition number `partition` of their topics, since `partition.claimed` concerns a partition
   * and not a key. Resolves with the position of the first message.
   */
  appendTo(partition: number, ...messages: readonly Message[]): Promise<Position>
  read(topic: TopicName, partition: number, offset: number, max?: number): Promise<readonly Entry[]>
  /**
   * Reads all entries from offset `from` up to, not including, `to`, in order, in batches. Unreadable records are
   * skipped.
   * @throws TroupeError bus.offset_out_of_range if `from` is below the oldest offset, or if the partition still ends
   * before `to` after 5 s
   */
  readTo(topic: TopicName, partition: number, from: number, to: number): AsyncIterable<readonly Entry[]>
  offsets(topic: TopicName, partition: number): Promise<{ readonly oldest: number; readonly next: number }>
  /** Returns the committed offset of a group for its feeds with `from: committed`; undefined when it has none. */
  committed(group: string, topic: TopicName, partition: number): Promise<number | undefined>
  /**
   * Follows feeds. The handler gets entries of one partition, in order, and gets that partition's next entries only
   * after it has resolved.
   */
  follow(options: FollowOptions, handler: (entries: readonly Entry[]) => Promise<void>): Promise<Following>
  /**
   * Copies a record that could not be read to `dead-letters`, with its error, and appends the fact `record.refused`.
   */
  deadLetter(record: BusRecord, error: Error): Promise<void>
  /**
   * Copies a message that keeps crashing its receiver to `dead-letters`, with the error, and appends the fact
   * `record.refused`.
   */
  refuse(entry: Entry, error: Error): Promise<void>
}

/** Names of topics on the bus, for topics that are not called `troupe.<run>.<topic>`. */
export type TopicsOnBus = Partial<Readonly<Record<TopicName, string>>>

/** Handles a record that could not be read. */
export type Unreadable = (record: BusRecord, error: Error) => Promise<void>
