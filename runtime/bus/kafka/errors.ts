/**
 * Converts kafkajs's errors to errors of the bus: a code, `retriable`, and a hint.
 *
 * in   an error of kafkajs      out  a TroupeError; or whether the fault is transient
 */
import { asError, TroupeError } from '../../errors'

interface KafkaFault {
  readonly name: string
  readonly message: string
  /** Type of a protocol error, such as TOPIC_AUTHORIZATION_FAILED. */
  readonly type?: string
  /** Code of a connection error, such as ECONNREFUSED. */
  readonly code?: string | number
  readonly retriable?: boolean
  readonly cause?: unknown
}

const connectionFaults = new Set([
  'KafkaJSConnectionError',
  'KafkaJSConnectionClosedError',
  'KafkaJSRequestTimeoutError',
  'KafkaJSBrokerNotFound',
  'KafkaJSGroupCoordinatorNotFound',
  'KafkaJSLockTimeout',
])
const staleFaults = new Set(['KafkaJSMetadataNotLoaded', 'KafkaJSTopicMetadataNotLoaded'])
const transientTypes = new Set([
  'UNKNOWN_TOPIC_OR_PARTITION',
  'LEADER_NOT_AVAILABLE',
  'NOT_LEADER_FOR_PARTITION',
  'REPLICA_NOT_AVAILABLE',
  'BROKER_NOT_AVAILABLE',
  'NETWORK_EXCEPTION',
  'REQUEST_TIMED_OUT',
  'OFFSET_NOT_AVAILABLE',
  'FENCED_LEADER_EPOCH',
  'UNKNOWN_LEADER_EPOCH',
  'KAFKA_STORAGE_ERROR',
  'GROUP_LOAD_IN_PROGRESS',
  'GROUP_COORDINATOR_NOT_AVAILABLE',
  'NOT_COORDINATOR_FOR_GROUP',
  'NOT_ENOUGH_REPLICAS',
  'NOT_ENOUGH_REPLICAS_AFTER_APPEND',
  'NOT_CONTROLLER',
  'UNSTABLE_OFFSET_COMMIT',
])
const tlsCodes = /^(ERR_TLS|ERR_SSL|DEPTH_ZERO|UNABLE_TO_|SELF_SIGNED|CERT_|EPROTO)/
const tlsWords = /self[- ]signed certificate|unable to (?:verify|get)|wrong version number|certificate|alert number/i

/** Returns the original error inside kafkajs's wrappers. */
export function rootOf(thrown: unknown): KafkaFault {
  let error = asError(thrown) as KafkaFault
  for (let depth = 0; depth < 5; depth++) {
    const [first] = (error as { errors?: readonly KafkaFault[] }).errors ?? []
    if (first !== undefined) {
      error = first
      continue
    }
    const wraps = error.name === 'KafkaJSNumberOfRetriesExceeded' || error.name === 'KafkaJSNonRetriableError'
    if (!wraps || !(error.cause instanceof Error)) break
    error = error.cause as KafkaFault
  }
  return error
}

/**
 * True for a transient fault, after which the same request may succeed soon: a broker went away, a leader moved, a
 * coordinator loads.
 */
export function passesByItself(thrown: unknown): boolean {
  if (thrown instanceof TroupeError) return thrown.retriable
  const error = rootOf(thrown)
  if (error.type !== undefined && transientTypes.has(error.type)) return true
  if (isTls(error)) return false
  return connectionFaults.has(error.name) || staleFaults.has(error.name)
}

const isTls = ({ code, message }: KafkaFault): boolean =>
  (typeof code === 'string' && tlsCodes.test(code)) || tlsWords.test(message)

/** Converts an error of kafkajs to an error of the bus. @param doing the operation that failed, for the message */
export function kafkaError(thrown: unknown, doing: string, brokers: readonly string[]): TroupeError {
  if (thrown instanceof TroupeError) return thrown
  const error = rootOf(thrown)
  const at = brokers.join(', ')
  const make = (code: string, retriable: boolean, message: string, hint: string): TroupeError =>
    new TroupeError(code, { boundary: 'bus', retriable, message, hint, cause: thrown })
  if (error.name === 'KafkaJSSASLAuthenticationError' || error.type === 'SASL_AUTHENTICATION_FAILED') {
    const hint = 'check sasl.mechanism, sasl.username and the secret that sasl.password refers to'
    return make('bus.denied', false, `${at}: SASL authentication failed (${doing}): ${error.message}`, hint)
  }
  if (error.type?.endsWith('_AUTHORIZATION_FAILED')) {
    const hint =
      'grant this user Create, Describe, DescribeConfigs, Read and Write on the topics, Read on the groups, and for CLUSTER_AUTHORIZATION_FAILED IdempotentWrite on the cluster'
    return make('bus.denied', false, `${at} denied the request (${doing}): ${error.type}`, hint)
  }
  if (isTls(error)) {
    const hint =
      "set tls=true only for a TLS listener; name the PEM file of its certificate authority in tls.ca, and the certificate's host in tls.serverName if it differs"
    return make('bus.tls_failed', false, `no TLS connection to ${at} (${doing}): ${error.message}`, hint)
  }
  if (error.type === 'NOT_ENOUGH_REPLICAS' || error.type === 'NOT_ENOUGH_REPLICAS_AFTER_APPEND') {
    const hint =
      'start the brokers that are down: a partition accepts records once min.insync.replicas of its brokers are back'
    return make('bus.not_enough_replicas', true, `too few replicas are in sync (${doing})`, hint)
  }
  if (error.type === 'INVALID_REPLICATION_FACTOR') {
    const hint = 'start more brokers, or ask for fewer replicas: ?replication=1'
    return make(
      'bus.topic_invalid',
      false,
      `the replication of the topic is higher than the number of brokers (${doing})`,
      hint,
    )
  }
  if (error.type === 'MESSAGE_TOO_LARGE' || error.type === 'RECORD_LIST_TOO_LARGE') {
    const hint =
      'raise max.message.bytes of the topic to 1048588 or more; for RECORD_LIST_TOO_LARGE raise its segment.bytes'
    return make(
      'bus.record_too_large',
      false,
      `a record, or its batch, is larger than the broker accepts (${doing}): ${error.type}`,
      hint,
    )
  }
  if (error.name === 'KafkaJSNotImplemented') {
    const hint =
      'for zstd use Node 22.15 or newer, or npm install @mongodb-js/zstd@1.2.2; Troupe reads no snappy and no lz4: set compression.type=producer for the topic'
    return make(
      'bus.codec_missing',
      false,
      `records are compressed with a codec that this process lacks (${doing}): ${error.message}`,
      hint,
    )
  }
  if (connectionFaults.has(error.name) || error.name === 'KafkaJSMetadataNotLoaded') {
    const hint = 'check that the broker runs, that it advertises this address, and whether it requires TLS or SASL'
    return make('bus.unreachable', true, `no broker answers at ${at} (${doing}): ${error.message}`, hint)
  }
  const what = error.type === undefined ? error.message : `${error.type}: ${error.message}`
  return make('bus.kafka_failed', passesByItself(thrown), `${doing}: ${what}`, 'read the log of the broker')
}
