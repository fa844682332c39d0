/** The codec: every message comes back as it was, and nothing else comes back at all. */
import fc from 'fast-check'
import { Packr } from 'msgpackr'
import {
  decode,
  encode,
  type Fact,
  factKey,
  groupOf,
  type Message,
  MessageError,
  type MessageType,
  maxRecordBytes,
  partsOf,
  routeOf,
  runId,
  shapes,
  stripTimes,
  type TrajectoryId,
  topicOnBus,
} from '../../messages'
import type { EndCode } from '../../messages/commands'
import type { TurnCompleted } from '../../messages/facts'
import type { Fields, Kind } from '../../messages/shape'

const run = runId('run-1')
const packr = new Packr({ useRecords: false })
const types = Object.keys(shapes) as MessageType[]

const text = fc.string({ unit: 'grapheme', maxLength: 40 })
const key = fc.string({ unit: 'grapheme', maxLength: 10 }).filter(name => name !== '__proto__')
const number = fc.double().map(value => (Object.is(value, -0) ? 0 : value))
const plain = fc.oneof(text, number, fc.boolean(), fc.constant(null), fc.array(text, { maxLength: 3 }))

/** Values of a kind. A trajectory's name is the only string with an inner form. */
function valuesOf(kind: Kind, name = ''): fc.Arbitrary<unknown> {
  if (name === 'trajectory') return fc.tuple(fc.nat(99), fc.nat(31)).map(([group, member]) => `s1-g${group}/${member}`)
  switch (kind) {
    case 'string':
      return text
    case 'number':
      return number
    case 'int':
      return fc.maxSafeInteger().map(value => value + 0)
    case 'boolean':
      return fc.boolean()
    case 'i32':
      return fc.int32Array({ maxLength: 3000 })
    case 'f32':
      return fc.float32Array({ maxLength: 300 })
    case 'unknown':
      return plain
  }
  if ('oneOf' in kind) return fc.constantFrom(...Object.keys(kind.oneOf))
  if ('each' in kind) return fc.array(valuesOf(kind.each), { maxLength: 5 })
  if ('map' in kind) return fc.dictionary(key, valuesOf(kind.map), { maxKeys: 5, noNullPrototype: true })
  if ('nullable' in kind) return fc.option(valuesOf(kind.nullable), { nil: null })
  if ('optional' in kind) return valuesOf(kind.optional)
  return objectsOf(kind.fields)
}

function objectsOf(fields: Fields): fc.Arbitrary<Record<string, unknown>> {
  return fc.record(Object.fromEntries(Object.entries(fields).map(([name, kind]) => [name, valuesOf(kind, name)])), {
    noNullPrototype: true,
  })
}

const messagesOf = (type: MessageType): fc.Arbitrary<Message> =>
  objectsOf(shapes[type].fields).map(fields => ({ type, ...fields }) as unknown as Message)

const anyMessage = fc.constantFrom(...types).chain(messagesOf)

/** A record whose value does not begin where a buffer begins, as records off a bus do. */
function shifted(bytes: Uint8Array, by: number): Uint8Array {
  const larger = new Uint8Array(bytes.byteLength + by + 3)
  larger.set(bytes, by)
  return larger.subarray(by, by + bytes.byteLength)
}

/** The message that the decoder throws, or undefined. */
function refusal(headers: Record<string, string>, value: Uint8Array): MessageError | undefined {
  try {
    decode({ headers, value })
    return undefined
  } catch (error) {
    if (error instanceof MessageError) return error
    throw error
  }
}

describe('a message', () => {
  test.each(types)('%s comes back exactly as it was', type => {
    fc.assert(
      fc.property(messagesOf(type), fc.nat(3), (message, by) => {
        const { headers, value } = encode(message, { run })
        expect(decode({ headers, value: shifted(value, by) })).toEqual(message)
      }),
      { numRuns: 40 },
    )
  })

  test('keeps its arrays when the record that it came in is reused', () => {
    const message = sample('turn.completed')
    const { headers, value } = encode(message, { run })
    const bytes = Uint8Array.from(value)
    const decoded = decode({ headers, value: bytes })
    bytes.fill(0xff)
    expect(decoded).toEqual(message)
  })

  test('is not changed by encoding, and arrays that are a part of a larger buffer are written as that part', () => {
    const tokens = Int32Array.from([9, 9, 1, 2, 3, 9]).subarray(2, 5)
    const message = { ...sample('context.appended'), tokens } as Message
    const before = structuredClone(message)
    const record = encode(message, { run })
    expect(message).toEqual(before)
    expect(packr.unpack(record.value).tokens).toEqual(Buffer.from(Int32Array.from([1, 2, 3]).buffer))
    expect(decode(record)).toMatchObject({ tokens: Int32Array.from([1, 2, 3]) })
  })

  test('an array that a message need not have comes back where it is, and leaves no trace where it is not', () => {
    const { entropies: _, ...without } = sample('turn.completed') as TurnCompleted
    const plain = encode(without, { run })
    expect(Object.keys(packr.unpack(plain.value))).not.toContain('entropies')
    expect(Object.keys(decode(plain))).not.toContain('entropies')
    const entropies = Float32Array.of(0.5, 0, 2)
    expect(decode(encode({ ...without, entropies }, { run }))).toEqual({ ...without, entropies })
    const torn = packr.pack({ ...packr.unpack(plain.value), entropies: Buffer.alloc(7) })
    expect(refusal(plain.headers, torn)).toMatchObject({ code: 'codec.bad_shape', where: 'entropies' })
  })

  test('goes where the topic table says, with headers of text that name what it is about', () => {
    fc.assert(
      fc.property(anyMessage, message => {
        const record = encode(message, { run, traceparent: '00-ab-cd-01' })
        const route = routeOf(message, run)
        expect(record).toMatchObject({ key: route.key, topic: topicOnBus(run, route.topic) })
        expect(record.headers).toMatchObject({ type: message.type, version: '1', run, traceparent: '00-ab-cd-01' })
        expect(Object.values(record.headers).every(header => typeof header === 'string')).toBe(true)
      }),
    )
    // A call's id is text in some messages, and may be the name of a property that every array has.
    for (const call of ['toString', 'length', '7'])
      expect(encode({ ...(sample('code.ended') as EndCode), call }, { run }).headers.call).toBe(call)
    expect(encode(sample('turn.completed'), { run }).headers).toEqual({
      type: 'turn.completed',
      version: '1',
      run: 'run-1',
      trajectory: 's1-g2/3',
      group: 's1-g2',
      turn: '1',
      attempt: '0',
      policyVersion: '4',
    })
    const ask = { ...sample('turn.asked'), type: 'turn.generate', context: new Int32Array(2) }
    Object.assign(ask, { resumedTokens: 0, promptTokens: 1, boundTokens: 9, order: 0, minVersion: 0 })
    const assign = { type: 'turn.assign', engine: 'e', ask } as unknown as Message
    expect(encode(assign, { run }).headers).toMatchObject({ type: 'turn.assign', trajectory: 's1-g2/3', turn: '1' })
  })

  test('that its type does not allow, or that is too large for a bus, is refused where it is written', () => {
    const message = { ...sample('turn.completed'), turn: 1.5 } as Message
    expect(() => encode(message, { run })).toThrow(expect.objectContaining({ code: 'codec.bad_shape', where: 'turn' }))
    const large = { ...sample('context.appended'), text: 'x'.repeat(maxRecordBytes) } as Message
    expect(() => encode(large, { run })).toThrow(expect.objectContaining({ code: 'codec.too_large' }))
  })
})

describe('a record', () => {
  test('whose field is of another kind, or is missing and must not be, is refused with the path of that field', () => {
    for (const type of types) {
      const [message] = fc.sample(messagesOf(type), { numRuns: 1, seed: 7 })
      const record = encode(message!, { run })
      for (const [name, kind] of Object.entries(shapes[type].fields as Fields)) {
        const absent = typeof kind === 'object' && 'optional' in kind ? [] : [undefined, Symbol.for('missing')]
        const isBoolean =
          kind === 'boolean' || (typeof kind === 'object' && 'optional' in kind && kind.optional === 'boolean')
        for (const wrong of [...absent, isBoolean ? 'yes' : true]) {
          const value = packr.unpack(record.value) as Record<string, unknown>
          if (typeof wrong === 'symbol') delete value[name]
          else value[name] = wrong
          expect(refusal(record.headers, packr.pack(value))).toMatchObject({ code: 'codec.bad_shape', where: name })
        }
      }
    }
  })

  test('is refused with the whole path of a field further in, in lists and maps too', () => {
    type Nested = { [step: string]: Nested }
    const where = (type: MessageType, path: string, wrong: unknown) => {
      const record = encode(sample(type), { run })
      const value = packr.unpack(record.value) as Nested
      const steps = path.split('.')
      const last = steps.pop()!
      const parent = steps.reduce<Nested>((at, step) => at[step]!, value)
      Object.assign(parent, { [last]: wrong })
      return refusal(record.headers, packr.pack(value))?.where
    }
    const wrong: [MessageType, string, unknown][] = [
      ['turn.completed', 'segments.0.start', 'x'],
      ['turn.completed', 'timing', 4],
      ['turn.completed', 'timing.endedAt', null],
      ['turn.completed', 'tokens', Buffer.alloc(7)],
      ['turn.completed', 'finish', 'constructor'],
      ['step.completed', 'metrics.loss', 'low'],
      ['step.completed', 'metrics', [1]],
    ]
    for (const [type, path, value] of wrong) expect(where(type, path, value)).toBe(path)
  })

  test('of another program, type or version is refused as what it is', () => {
    const { headers, value } = encode(sample('turn.completed'), { run })
    const { type, version, ...rest } = headers
    expect(refusal(rest, value)).toMatchObject({ code: 'codec.foreign' })
    expect(refusal({ ...rest, type: type! }, value)).toMatchObject({ code: 'codec.foreign' })
    expect(refusal({ ...headers, version: 'latest' }, value)).toMatchObject({ code: 'codec.foreign' })
    expect(refusal({ ...headers, type: 'order.placed' }, value)).toMatchObject({ code: 'codec.unknown_type' })
    expect(refusal({ ...headers, type: 'constructor' }, value)).toMatchObject({ code: 'codec.unknown_type' })
    expect(refusal({ ...headers, version: '2' }, value)).toMatchObject({ code: 'codec.newer_version' })
    expect(refusal({ ...headers, type: 'turn.asked' }, value)).toMatchObject({ code: 'codec.bad_shape', where: 'type' })
    expect(refusal(headers, Buffer.from('{"json": true}'))).toMatchObject({ code: 'codec.not_msgpack' })
    expect(refusal(headers, value.subarray(0, 40))).toMatchObject({ code: 'codec.not_msgpack' })
    for (const other of [null, 7, 'text', [1, 2]]) {
      expect(refusal(headers, packr.pack(other))).toMatchObject({ code: 'codec.bad_shape', where: '' })
    }
  })

  test('of any bytes at all gives a message or a MessageError, nothing else', () => {
    const header = fc.record({ type: fc.constantFrom(...types, 'x'), version: fc.constantFrom('1', '0', '3', '') })
    fc.assert(
      fc.property(header, fc.uint8Array({ maxLength: 200 }), (headers, value) => {
        refusal(headers, value)
      }),
      { numRuns: 2000 },
    )
    fc.assert(
      fc.property(anyMessage, fc.nat(), fc.nat(255), (message, at, byte) => {
        const { headers, value } = encode(message, { run })
        const damaged = Uint8Array.from(value)
        damaged[at % damaged.length] = byte
        refusal(headers, damaged)
      }),
      { numRuns: 1000 },
    )
  })

  test('may hold fields of a later schema that this one does not name', () => {
    const { headers, value } = encode(sample('turn.completed'), { run })
    const more = packr.pack({ ...packr.unpack(value), colour: 'green' })
    expect(decode({ headers, value: more })).toMatchObject({ type: 'turn.completed', colour: 'green' })
  })
})

test('the group of a trajectory is the one that its parts have, and what is no trajectory has none', () => {
  const id = fc.oneof(
    fc.tuple(fc.stringMatching(/^[a-z0-9:.-]{1,9}$/), fc.nat(99)).map(parts => parts.join('/')),
    text,
  )
  fc.assert(
    fc.property(id, text => {
      const outcome = (act: () => string) => {
        try {
          return act()
        } catch (error) {
          return (error as Error).name
        }
      }
      const trajectory = text as TrajectoryId
      expect(outcome(() => groupOf(trajectory))).toBe(outcome(() => partsOf(trajectory).group))
    }),
  )
})

describe('the key of a fact', () => {
  test('says where it stands, and differs by turn, kind, call and attempt', () => {
    const asked = sample('turn.asked') as Fact
    expect(factKey(asked)).toBe('s1-g2/3#1#turn.asked#0')
    expect(factKey({ ...asked, epoch: 99, at: 5 } as Fact)).toBe(factKey(asked))
    expect(factKey({ ...asked, attempt: 1 } as Fact)).not.toBe(factKey(asked))
    const call = { trajectory: 's1-g2/3', turn: 1, attempt: 2 }
    const keys = [0, 1].flatMap(n =>
      ['tool.asked', 'tool.completed'].map(type => factKey({ ...call, type, call: n } as unknown as Fact)),
    )
    expect(keys).toEqual([
      's1-g2/3#1#tool.asked#0#2',
      's1-g2/3#1#tool.completed#0#2',
      's1-g2/3#1#tool.asked#1#2',
      's1-g2/3#1#tool.completed#1#2',
    ])
  })

  test('is there for every fact', () => {
    const facts = types.filter(type => topicsOfFacts.has(routeOf(sampleOf(type), run).topic))
    expect(facts.length).toBeGreaterThan(25)
    for (const type of facts) expect(factKey(sampleOf(type) as Fact)).toContain(type)
  })
})

test('without its times a message is equal to the one that a second run would write', () => {
  const first = sample('turn.completed')
  const again = { ...first, at: 9, timing: { queuedAt: 9, startedAt: 9, firstTokenAt: 9, endedAt: 9 } } as Message
  expect(stripTimes(again)).toEqual(stripTimes(first))
  expect(stripTimes({ ...again, text: 'other' } as Message)).not.toEqual(stripTimes(first))
  const step = {
    ...sample('step.completed'),
    metrics: { loss: 0.5, trainMs: 3, seconds: 2, tokensPerSecond: 8 },
  } as Message
  expect(stripTimes(step)).toMatchObject({ metrics: { loss: 0.5 } })
  expect(stripTimes(step)).not.toHaveProperty('metrics.trainMs')
  expect(stripTimes(step)).not.toHaveProperty('metrics.seconds')
  expect(stripTimes(step)).not.toHaveProperty('metrics.tokensPerSecond')
  const progress = { type: 'stage.progressed', at: 1, stage: 'cold-start', done: 0.5, loss: 1, leftSeconds: 9 } as const
  expect(stripTimes(progress)).not.toHaveProperty('leftSeconds')
})

const topicsOfFacts = new Set(['runs', 'trajectories', 'learner'])

function sampleOf(type: MessageType): Message {
  return fc.sample(messagesOf(type), { numRuns: 1, seed: 3 })[0]!
}

/** Messages of four kinds with values that the tests above name. */
function sample(type: MessageType): Message {
  const known: Partial<Record<MessageType, object>> = {
    'turn.asked': { trajectory: 's1-g2/3', turn: 1, attempt: 0 },
    'turn.completed': {
      trajectory: 's1-g2/3',
      turn: 1,
      attempt: 0,
      tokens: Int32Array.from([5, -1, 2 ** 31 - 1]),
      logprobs: Float32Array.from([-0.5, -1e-30, Number.NEGATIVE_INFINITY]),
      segments: [
        { policyVersion: 3, start: 0, end: 1 },
        { policyVersion: 4, start: 1, end: 3 },
      ],
    },
    'step.completed': { metrics: { loss: 1.5 } },
  }
  return { ...sampleOf(type), ...known[type] } as Message
}
