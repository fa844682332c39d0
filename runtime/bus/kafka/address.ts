/**
 * Parses the address of a Kafka cluster, with settings: `kafka://HOST:PORT[,HOST:PORT…][?setting=value&…]`.
 *
 * in   the address; a YAML or JSON file that `?config=FILE` or TROUPE_KAFKA names      out  checked settings
 * Settings in the address take precedence over the file's. Secrets are references: `sasl.password.env=NAME`,
 * `tls.key.file=PATH`.
 * Invariant: the result holds no secret's value; one error names all unknown and wrong settings.
 */
import { readFileSync } from 'node:fs'
import { parse as parseYaml } from 'yaml'
import { z } from 'zod'
import { asError, TroupeError } from '../../errors'
import { secretSchema } from '../../secrets/secretReference'
import { type PlainObject, resolveConfig } from '../../settings/resolveConfig'

const tlsSchema = z.strictObject({
  /** PEM file of the certificate authorities to trust. Default: the authorities built into Node. */
  ca: z.string().min(1).optional(),
  /** PEM file of the client's certificate. */
  cert: z.string().min(1).optional(),
  /** Reference to the private key of the client's certificate, as PEM. */
  key: secretSchema.optional(),
  /** Reference to the passphrase of that private key. */
  passphrase: secretSchema.optional(),
  /** Name expected in the broker's certificate, if it differs from the host's name. */
  serverName: z.string().min(1).optional(),
})

const saslSchema = z.strictObject({
  mechanism: z.enum(['plain', 'scram-sha-256', 'scram-sha-512']),
  username: z.string().min(1),
  password: secretSchema,
})

const kafkaSettingsSchema = z.strictObject({
  /** Prefix that the names of all topics and groups have on the broker. */
  prefix: z
    .string()
    .regex(/^[A-Za-z0-9._-]*$/)
    .max(100)
    .default(''),
  tls: z.union([z.boolean(), tlsSchema]).default(false),
  sasl: saslSchema.optional(),
  compression: z.enum(['none', 'gzip', 'zstd']).default('none'),
  /** Number of replicas of each partition of a new topic. Default: 3, or the number of brokers if that is smaller. */
  replication: z.number().int().min(1).max(32_767).optional(),
  /** Directory of the blob store, which all processes of a run share. */
  blobs: z.string().min(1).optional(),
  /** Minimum time between two produce requests of a partition, ms; records that arrive meanwhile form one batch. */
  lingerMs: z.number().min(0).max(1000).default(3),
  /** Milliseconds for which an append is retried before it fails. */
  deliveryTimeoutMs: z.number().min(1000).default(120_000),
  /**
   * Milliseconds without a heartbeat after which a group member loses its partitions. Brokers accept 6,000 to 1,800,000
   * ms by default.
   */
  sessionTimeoutMs: z.number().min(1000).default(10_000),
  /**
   * Milliseconds without an answer from a partition's leader, or from the group's coordinator, after which a consumer
   * fails.
   */
  stallTimeoutMs: z.number().min(1000).default(60_000),
})

export type KafkaSettings = Readonly<z.output<typeof kafkaSettingsSchema>>

export interface KafkaAddress {
  /** Addresses of the brokers, each HOST:PORT. */
  readonly brokers: readonly string[]
  readonly settings: KafkaSettings
}

/**
 * Parses an address and its settings. @throws TroupeError bus.address_invalid; config.invalid for a wrong setting;
 * config.no_kafka_file when the settings file cannot be read
 */
export function parseKafkaAddress(address: string, env: NodeJS.ProcessEnv = process.env): KafkaAddress {
  const match = /^kafka:\/\/([^/?#]+)\/?(?:\?(.*))?$/.exec(address)
  if (!match) throw invalid(address, 'expected kafka://HOST:PORT[,HOST:PORT…][?setting=value&…]')
  const brokers = match[1]!.split(',').map(host => checkedBroker(address, host))
  const query = [...new URLSearchParams(match[2] ?? '')]
  const file = query.find(([name]) => name === 'config')?.[1] ?? env.TROUPE_KAFKA
  const layers = {
    what: file ? `Kafka settings of ${hidden(address)} and ${file}` : `Kafka settings of ${hidden(address)}`,
    recipe: file ? readSettings(file) : {},
    overrides: query.filter(([name]) => name !== 'config').map(([name, value]) => `${name}=${value}`),
  }
  try {
    return { brokers, settings: resolveConfig(kafkaSettingsSchema, layers).value }
  } catch (thrown) {
    const { message, cause } = asError(thrown)
    const hint = 'docs/kafka.md lists the settings of a Kafka address'
    throw new TroupeError('config.invalid', { boundary: 'config', retriable: false, message, hint, cause })
  }
}

function checkedBroker(address: string, broker: string): string {
  if (broker.includes('@'))
    throw invalid(address, 'an address must not contain credentials: use sasl.password.env=NAME')
  const match = /^(\[[0-9a-fA-F:.]+\]|[^:\s]+):(\d{1,5})$/.exec(broker)
  const port = Number(match?.[2])
  if (!match || port < 1 || port > 65_535) throw invalid(address, `expected HOST:PORT, found '${broker}'`)
  return broker
}

function readSettings(file: string): PlainObject {
  try {
    const settings: unknown = parseYaml(readFileSync(file, 'utf8')) ?? {}
    if (typeof settings === 'object' && !Array.isArray(settings)) return settings as PlainObject
  } catch (cause) {
    throw unreadable(file, cause)
  }
  throw unreadable(file, new TypeError('expected a map of settings'))
}

function unreadable(file: string, cause: unknown): TroupeError {
  return new TroupeError('config.no_kafka_file', {
    boundary: 'config',
    retriable: false,
    message: `the Kafka settings file ${file} cannot be used: ${asError(cause).message.split('\n')[0]}`,
    hint: 'name a readable file in ?config=FILE or TROUPE_KAFKA, with YAML such as `sasl: {mechanism: scram-sha-512, username: troupe, password: {env: KAFKA_PASSWORD}}`',
    cause,
  })
}

/** Removes credentials and settings from an address, since secrets may be among them by mistake. */
const hidden = (address: string): string => address.replace(/\/\/[^@/]*@/, '//…@').replace(/\?.*$/, '')

function invalid(address: string, why: string): TroupeError {
  return new TroupeError('bus.address_invalid', {
    boundary: 'config',
    retriable: false,
    message: `${JSON.stringify(hidden(address))} is not a valid Kafka address: ${why}`,
    hint: 'write for example kafka://127.0.0.1:9092, or kafka://a:9093,b:9093?tls=true',
  })
}
