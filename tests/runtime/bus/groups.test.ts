/** Where partitions and keys go: the pure parts behind consumer groups, and the fixed form of what is stored. */
import fc from 'fast-check'
import { type BusRecord, murmur2, partitionOf } from '../../../runtime/bus'
import { assignPartitions } from '../../../runtime/bus/assignment'
import { ChunkWriter, decodeChunk } from '../../../runtime/bus/lmdb/chunk'
import { recordKey } from '../../../runtime/bus/lmdb/recordKey'
import { codeOf, record } from './contract'

test('murmur2 gives the values that Kafka tests its own with', () => {
  const known: readonly [string, number][] = [
    ['21', -973932308],
    ['foobar', -790332482],
    ['a-little-bit-long-string', -985981536],
    ['a-little-bit-longer-string', -1486304829],
    ['lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8', -58897971],
    ['abc', 479470107],
  ]
  for (const [text, hash] of known) expect(murmur2(Buffer.from(text))).toBe(hash)
  expect(partitionOf('21', 100)).toBe((-973932308 & 0x7fffffff) % 100)
})

const memberships = fc.array(fc.subarray(['a', 'b', 'c'], { minLength: 1 }), { minLength: 1, maxLength: 7 })
const sizes = fc.record({ a: fc.integer({ min: 1, max: 12 }), b: fc.constant(1), c: fc.integer({ min: 1, max: 40 }) })

test('every partition has one owner among its subscribers, and shares of a topic differ by at most one', () => {
  fc.assert(
    fc.property(memberships, sizes, fc.infiniteStream(fc.nat(9)), (topicsOf, counts, before) => {
      const members = topicsOf.map((topics, id) => ({ id, topics }))
      const partitionsOf = (topic: string): number => counts[topic as keyof typeof counts]
      const keys = Object.entries(counts).flatMap(([topic, count]) =>
        Array.from({ length: count }, (_, i) => `${topic}/${i}`),
      )
      // Owners before may have left, or may not subscribe any more.
      const current = new Map(keys.map(key => [key, before.next().value]))
      const assigned = assignPartitions(members, partitionsOf, current)
      for (const [topic, count] of Object.entries(counts)) {
        const subscribers = members.filter(member => member.topics.includes(topic))
        const owners = Array.from({ length: count }, (_, i) => assigned.get(`${topic}/${i}`)?.owner)
        if (subscribers.length === 0) {
          expect(owners.every(owner => owner === undefined)).toBe(true)
          continue
        }
        const shares = subscribers.map(({ id }) => owners.filter(owner => owner === id).length)
        expect(shares.reduce((a, b) => a + b)).toBe(count)
        expect(Math.max(...shares) - Math.min(...shares)).toBeLessThanOrEqual(1)
      }
      // Asked again with what it answered, it moves nothing.
      const again = assignPartitions(
        members,
        partitionsOf,
        new Map([...assigned].map(([key, { owner }]) => [key, owner])),
      )
      expect(again).toEqual(assigned)
    }),
  )
})

test('one member more takes its share and moves nothing else', () => {
  const members = [0, 1, 2].map(id => ({ id, topics: ['t'] }))
  const two = assignPartitions(members.slice(0, 2), () => 12, new Map())
  const three = assignPartitions(members, () => 12, new Map([...two].map(([key, { owner }]) => [key, owner])))
  const moved = [...three].filter(([key, { owner }]) => two.get(key)!.owner !== owner)
  expect(moved.length).toBe(4)
  expect(moved.every(([, { owner }]) => owner === 2)).toBe(true)
})

test('a stored chunk keeps its form: bytes written by format 1 are read as long as there are logs', () => {
  const stored =
    '0152e7cb7900008056febc78420200000021000000160000000204040a0101672f3023747970657475726e2e61736b65646ee29c93780a000000030000ac020003672f31'
  const writer = new ChunkWriter()
  const records = [
    {
      record: { ...record('t', 'g/0#', 'x'), headers: { type: 'turn.asked', n: '✓' }, partition: 0 },
      timestamp: 1.7e12,
    },
    { record: { ...record('t', 'g/1', ''), headers: {}, partition: 0 }, timestamp: 1.7e12 + 300 },
  ]
  const key = recordKey(0, 8)
  const { bytes, count } = writer.encode(records, 0, () => key)
  expect(count).toBe(2)
  // Format 2 has another version and checksum; all other bytes are the same.
  expect(bytes.toString('hex', 5)).toBe(stored.slice(10))
  const decoded: BusRecord[] = []
  decodeChunk(Buffer.from(stored, 'hex'), 't', 0, key, 0, 10, decoded)
  expect(decoded.map(({ offset, timestamp, key, headers }) => ({ offset, timestamp, key, headers }))).toEqual([
    { offset: 7, timestamp: 1.7e12, key: 'g/0#', headers: { type: 'turn.asked', n: '✓' } },
    { offset: 8, timestamp: 1.7e12 + 300, key: 'g/1', headers: {} },
  ])
})

test('a chunk with any one bit changed, cut anywhere, or under another key, is reported as corrupt', async () => {
  const { bytes } = new ChunkWriter().encode(
    [{ record: { ...record('t', 'key', 'value'), partition: 0 }, timestamp: 1 }],
    0,
    () => recordKey(3, 0),
  )
  const decode = async (chunk: Buffer, key = recordKey(3, 0)): Promise<void> =>
    void decodeChunk(chunk, 't', 0, key, 0, 1, [])
  await decode(Buffer.from(bytes))
  for (let bit = 0; bit < bytes.length * 8; bit++) {
    const changed = Buffer.from(bytes)
    changed[bit >> 3]! ^= 1 << (bit & 7)
    expect(await codeOf(decode(changed))).toBe('bus.corrupt')
  }
  for (const key of [recordKey(3, 1), recordKey(2, 0)]) expect(await codeOf(decode(bytes, key))).toBe('bus.corrupt')
  for (let length = 0; length < bytes.length; length++) {
    expect(await codeOf(decode(bytes.subarray(0, length)))).toBe('bus.corrupt')
  }
})
