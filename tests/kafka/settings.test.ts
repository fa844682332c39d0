/** Addresses, credentials, TLS, and topics that would lose records: what is refused, and what the error says to do. */
import { execFileSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Kafka, logLevel } from 'kafkajs'
import { type Bus, openBus } from '../../runtime/bus'
import { parseKafkaAddress } from '../../runtime/bus/kafka/address'
import type { TroupeError } from '../../runtime/errors'
import { record, textOf } from '../runtime/bus/contract'
import { type KafkaServers, startKafka } from '../support/kafka'

jest.setTimeout(60_000)

const directory = mkdtempSync(join(tmpdir(), 'troupe-kafka-settings-'))
const clusters: KafkaServers[] = []
afterAll(async () => {
  for (const cluster of clusters) await cluster.stop()
  rmSync(directory, { recursive: true })
})
const start = async (...options: Parameters<typeof startKafka>): Promise<KafkaServers> => {
  const cluster = await startKafka(...options)
  clusters.push(cluster)
  return cluster
}
const faultOf = (opening: Promise<Bus>): Promise<TroupeError> =>
  opening.then(
    async bus => {
      await bus.close()
      throw new Error('it was opened')
    },
    thrown => thrown,
  )

test.each([
  ['kafka://localhost', "expected HOST:PORT, found 'localhost'"],
  ['kafka://a:9092,b', "expected HOST:PORT, found 'b'"],
  ['kafka://a:99999', 'expected HOST:PORT'],
  ['kafka:a:9092', 'expected kafka://HOST:PORT'],
  ['kafka://me:hunter2@a:9092', 'must not contain credentials'],
])('the address %s is refused by name', (address, said) => {
  const parse = () => parseKafkaAddress(address, {})
  expect(parse).toThrow(
    expect.objectContaining({ code: 'bus.address_invalid', hint: expect.stringContaining('kafka://') }),
  )
  expect(parse).toThrow(said)
  expect(parse).not.toThrow('hunter2')
})

test('settings come from the address and from a file, the address wins, and a wrong one names the right one', () => {
  const file = join(directory, 'kafka.yaml')
  writeFileSync(file, 'prefix: acme.\nreplication: 2\nsasl: {mechanism: plain, username: u, password: {env: SECRET}}\n')
  const { brokers, settings } = parseKafkaAddress('kafka://a:1,[::1]:2?replication=3', { TROUPE_KAFKA: file })
  expect(brokers).toEqual(['a:1', '[::1]:2'])
  expect(settings).toMatchObject({ prefix: 'acme.', replication: 3, sasl: { password: { env: 'SECRET' } } })
  expect(parseKafkaAddress(`kafka://a:1?config=${file}`, {}).settings.prefix).toBe('acme.')
  expect(() => parseKafkaAddress('kafka://a:1?replicaton=3', {})).toThrow("did you mean 'replication'")
  expect(() => parseKafkaAddress('kafka://a:1?sasl.mechanism=plain&sasl.username=u&sasl.password=hunter2', {})).toThrow(
    'expected a reference to the secret',
  )
  expect(() => parseKafkaAddress('kafka://a:1?config=/not/there', {})).toThrow('/not/there')
})

test('a broker that is not there is said to be unreachable, with its address, within seconds', async () => {
  const began = performance.now()
  const error = await faultOf(openBus('kafka://127.0.0.1:1'))
  expect(error).toMatchObject({
    code: 'bus.unreachable',
    retriable: true,
    hint: expect.stringContaining('broker runs'),
  })
  expect(error.message).toContain('127.0.0.1:1')
  expect(performance.now() - began).toBeLessThan(15_000)
})

describe('topics', () => {
  let kafka: KafkaServers
  beforeAll(async () => {
    kafka = await start()
  })

  test('fact topics are kept for ever and never compacted, command topics as long as was asked', async () => {
    const bus = await openBus(`${kafka.address}?prefix=made.`)
    await bus.createTopics([
      { topic: 'facts', partitions: 3, retentionMs: null },
      { topic: 'commands', partitions: 2, retentionMs: 86_400_000 },
    ])
    await bus.close()
    const admin = new Kafka({ brokers: [kafka.address.slice(8)], logLevel: logLevel.NOTHING }).admin()
    await admin.connect()
    const { resources } = await admin.describeConfigs({
      includeSynonyms: false,
      resources: ['made.facts', 'made.commands'].map(name => ({ type: 2, name })),
    })
    await admin.disconnect()
    const [facts, commands] = resources.map(
      ({ configEntries }) => new Map(configEntries.map(entry => [entry.configName, entry.configValue])),
    )
    for (const topic of [facts!, commands!]) expect(topic.get('cleanup.policy')).toBe('delete')
    expect([facts!.get('retention.ms'), facts!.get('retention.bytes')]).toEqual(['-1', '-1'])
    expect(commands!.get('retention.ms')).toBe('86400000')
    // The broker's clock: a client's that is wrong makes no record old.
    expect(facts!.get('message.timestamp.type')).toBe('LogAppendTime')
  })

  test.each([
    ['cleanup.policy', 'compact', 'delete'],
    ['retention.ms', '604800000', '-1'],
    ['retention.bytes', '1000000', '-1'],
    ['max.message.bytes', '500000', '1048588'],
    ['unclean.leader.election.enable', 'true', 'false'],
  ])(
    'a fact topic with %s=%s is refused, with what is wanted and the command that mends it',
    async (name, value, wanted) => {
      const topic = `bad-${name}`
      const admin = new Kafka({ brokers: [kafka.address.slice(8)], logLevel: logLevel.NOTHING }).admin()
      await admin.connect()
      await admin.createTopics({ topics: [{ topic, numPartitions: 1, configEntries: [{ name, value }] }] })
      // One that is kept by size alone is kept for ever by time.
      if (name !== 'retention.ms') {
        const configEntries = [
          { name: 'retention.ms', value: '-1' },
          { name, value },
        ]
        await admin.alterConfigs({ validateOnly: false, resources: [{ type: 2, name: topic, configEntries }] })
      }
      await admin.disconnect()
      const bus = await openBus(kafka.address)
      const error = await bus.createTopics([{ topic, partitions: 1, retentionMs: null }]).catch(thrown => thrown)
      await bus.close()
      expect(error).toMatchObject({ code: 'bus.topic_mismatch', retriable: false })
      expect(error.message).toContain(`topic ${topic} has ${name}=${value}, expected ${wanted}`)
      expect(error.hint).toContain(`--entity-name ${topic} --add-config ${name}=${wanted}`)
    },
  )

  test('two processes that make the same topics at once both go on', async () => {
    const buses = await Promise.all([1, 2, 3].map(() => openBus(`${kafka.address}?prefix=race.`)))
    const configs = ['a', 'b', 'c'].map(topic => ({ topic, partitions: 2, retentionMs: null }))
    await Promise.all(buses.map(bus => bus.createTopics(configs)))
    for (const bus of buses) {
      expect((await bus.listTopics()).map(({ topic }) => topic).sort()).toEqual(['a', 'b', 'c'])
      await bus.close()
    }
  })

  test('more copies than there are brokers are refused, with the reason', async () => {
    const bus = await openBus(`${kafka.address}?prefix=many.&replication=3`)
    const error = await bus.createTopics([{ topic: 't', partitions: 1, retentionMs: null }]).catch(thrown => thrown)
    await bus.close()
    expect(error.message).toMatch(/replication/i)
  })
})

test('with a user name and a password the bus works; with a wrong one it says so, and never the password', async () => {
  const jaas = 'org.apache.kafka.common.security'
  const kafka = await start({
    protocol: 'SASL_PLAINTEXT',
    format: ['--add-scram', 'SCRAM-SHA-512=[name=troupe,password=right]'],
    properties: {
      'sasl.enabled.mechanisms': 'PLAIN,SCRAM-SHA-512',
      'sasl.mechanism.inter.broker.protocol': 'PLAIN',
      'listener.name.client.plain.sasl.jaas.config': `${jaas}.plain.PlainLoginModule required username="broker" password="b" user_broker="b" user_plain="right";`,
      'listener.name.client.scram-sha-512.sasl.jaas.config': `${jaas}.scram.ScramLoginModule required;`,
    },
  })
  const password = join(directory, 'password')
  writeFileSync(password, 'right\n')
  process.env.TROUPE_TEST_WRONG = 'hunter2'
  const as = (mechanism: string, user: string, secret: string): Promise<Bus> =>
    openBus(`${kafka.address}?sasl.mechanism=${mechanism}&sasl.username=${user}&sasl.password.${secret}`)
  for (const [mechanism, user] of [
    ['plain', 'plain'],
    ['scram-sha-512', 'troupe'],
  ] as const) {
    const bus = await as(mechanism, user, `file=${password}`)
    await bus.createTopics([{ topic: 't', partitions: 1, retentionMs: null }])
    await bus.append([record('t', 'k', mechanism)])
    await bus.close()
    const error = await faultOf(as(mechanism, user, 'env=TROUPE_TEST_WRONG'))
    expect(error).toMatchObject({
      code: 'bus.denied',
      retriable: false,
      hint: expect.stringContaining('sasl.username'),
    })
    expect(`${error.message} ${error.hint}`).not.toContain('hunter2')
  }
  expect(await faultOf(as('plain', 'plain', 'env=TROUPE_TEST_NOWHERE'))).toMatchObject({ code: 'config.no_secret' })
})

test('over TLS the bus works with the authority it is told; without it, or without TLS, the error says which', async () => {
  const key = join(directory, 'key.pem')
  const cert = join(directory, 'cert.pem')
  const store = join(directory, 'store.pem')
  const subject = ['-subj', '/CN=localhost', '-addext', 'subjectAltName=IP:127.0.0.1']
  const request = [
    'req',
    '-x509',
    '-newkey',
    'rsa:2048',
    '-nodes',
    '-days',
    '2',
    '-keyout',
    key,
    '-out',
    cert,
    ...subject,
  ]
  execFileSync('openssl', request, { stdio: 'ignore' })
  writeFileSync(store, execFileSync('cat', [key, cert]))
  const kafka = await start({
    protocol: 'SSL',
    properties: {
      'ssl.keystore.type': 'PEM',
      'ssl.keystore.location': store,
      'ssl.truststore.type': 'PEM',
      'ssl.truststore.location': cert,
    },
  })
  const bus = await openBus(`${kafka.address}?tls.ca=${cert}`)
  await bus.createTopics([{ topic: 't', partitions: 1, retentionMs: null }])
  await bus.append([record('t', 'k', 'sealed')])
  expect((await bus.read('t', 0, 0)).map(textOf)).toEqual(['sealed'])
  await bus.close()
  const unknown = await faultOf(openBus(`${kafka.address}?tls=true`))
  expect(unknown).toMatchObject({ code: 'bus.tls_failed', hint: expect.stringContaining('tls.ca') })
  const plain = await faultOf(openBus(kafka.address))
  expect(plain).toMatchObject({ code: 'bus.unreachable', hint: expect.stringContaining('TLS') })
})
