/**
 * What every driver of the bus promises, as tests: a driver joins by calling `busContract` with a way to start it.
 *
 * in   a driver     out  one describe block
 * Invariant: nothing here knows how a driver stores records; what one driver alone promises is in its own test file.
 */
import fc from 'fast-check'
import type { Bus, BusRecord, NewRecord, Position, SubscribeOptions, Subscription } from '../../../runtime/bus'
import { maxRecordBytes, partitionOf } from '../../../runtime/bus'
import { TroupeError } from '../../../runtime/errors'

/** Storage of one test. `open` opens a bus over it; where it is durable, again after the bus before was closed. */
interface BusStorage {
  open(): Promise<Bus>
  remove(): Promise<void>
}

export interface BusDriver {
  readonly name: string
  /** Whether a bus that is opened again has what was acknowledged before. */
  readonly durable: boolean
  start(): Promise<BusStorage>
}

export const record = (topic: string, key: string, text: string, partition?: number): NewRecord => ({
  topic,
  key,
  headers: { type: 'test', text },
  value: Buffer.from(text),
  ...(partition === undefined ? {} : { partition }),
})

export const textOf = (record: BusRecord): string => Buffer.from(record.value).toString()

/** Waits until `holds`, or fails after `timeoutMs`. */
export async function until(holds: () => boolean | Promise<boolean>, what: string, timeoutMs = 10_000): Promise<void> {
  const end = Date.now() + timeoutMs
  while (!(await holds())) {
    if (Date.now() > end) throw new Error(`still not so after ${timeoutMs} ms: ${what}`)
    await new Promise(resolve => setTimeout(resolve, 2))
  }
}

export async function codeOf(promise: Promise<unknown>): Promise<string> {
  try {
    await promise
  } catch (thrown) {
    if (thrown instanceof TroupeError) return thrown.code
    throw thrown
  }
  return 'no error'
}

export function gate(): { readonly opened: Promise<void>; open(): void } {
  let open = (): void => {}
  const opened = new Promise<void>(resolve => {
    open = resolve
  })
  return { opened, open: () => open() }
}

const pause = (ms: number): Promise<void> => new Promise(resolve => setTimeout(resolve, ms))

export function busContract(driver: BusDriver): void {
  describe(`the ${driver.name} bus`, () => {
    let storage: BusStorage
    let bus: Bus

    beforeEach(async () => {
      storage = await driver.start()
      bus = await storage.open()
    })
    afterEach(async () => {
      await bus.close()
      await storage.remove()
    })

    const create = (topic: string, partitions: number): Promise<void> =>
      bus.createTopics([{ topic, partitions, retentionMs: null }])

    const fail = (error: Error): void => {
      throw error
    }
    const consume = (options: Partial<SubscribeOptions>, seen: BusRecord[]): Promise<Subscription> =>
      bus.subscribe({ topics: ['t'], group: 'g', from: 'earliest', onError: fail, ...options }, async records => {
        seen.push(...records)
      })

    const readAll = async (topic: string, partition: number, from = 0, max?: number): Promise<BusRecord[]> => {
      const all: BusRecord[] = []
      for (let offset = from; ; ) {
        const records = await bus.read(topic, partition, offset, max)
        if (records.length === 0) return all
        all.push(...records)
        offset = records[records.length - 1]!.offset + 1
      }
    }

    test('a record comes back as it was appended, at the offset that was returned', async () => {
      await create('t', 3)
      const headers = { type: 'turn.completed', empty: '', schlüssel: 'größe ✓ 𝄞', ['__proto__']: 'kept' }
      const value = new Uint8Array([0, 255, 1, 254])
      const before = Date.now()
      const [position] = await bus.append([{ topic: 't', key: 'ключ', headers, value }])
      const [read] = await bus.read('t', position!.partition, position!.offset)
      expect(position).toEqual({ topic: 't', partition: partitionOf('ключ', 3), offset: 0 })
      expect({ ...read, value: [...read!.value], timestamp: 0 }).toEqual({
        ...position,
        timestamp: 0,
        key: 'ключ',
        headers,
        value: [0, 255, 1, 254],
      })
      expect(Object.keys(read!.headers).sort()).toEqual(Object.keys(headers).sort())
      expect(read!.timestamp).toBeGreaterThanOrEqual(before - 1)
      expect(read!.timestamp).toBeLessThanOrEqual(Date.now() + 1)
    })

    test('offsets of a partition begin at 0 and grow by one, whoever appends at the same time', async () => {
      await create('t', 1)
      const positions = (
        await Promise.all(
          Array.from({ length: 40 }, (_, i) => bus.append([record('t', 'k', `${i}`), record('t', 'k', `${i}+`)])),
        )
      ).flat()
      expect(positions.map(position => position.offset).sort((a, b) => a - b)).toEqual([...positions.keys()])
      const texts = (await readAll('t', 0)).map(textOf)
      for (const [i, position] of positions.entries()) {
        expect(texts[position.offset]).toBe(i % 2 === 0 ? `${i >> 1}` : `${i >> 1}+`)
      }
      // Calls of one caller keep their order, and the records of one call stand side by side.
      expect(texts).toEqual(Array.from({ length: 40 }, (_, i) => [`${i}`, `${i}+`]).flat())
    })

    test('a key always goes to the same partition, the one that Kafka would choose, unless a partition is given', async () => {
      await create('t', 7)
      const keys = Array.from({ length: 100 }, (_, i) => `group-${i}`)
      const first = await bus.append(keys.map(key => record('t', key, key)))
      const again = await bus.append(keys.map(key => record('t', key, key)))
      expect(again.map(position => position.partition)).toEqual(first.map(position => position.partition))
      expect(first.map(position => position.partition)).toEqual(keys.map(key => partitionOf(key, 7)))
      const [given] = await bus.append([record('t', keys[0]!, 'x', 6)])
      expect(given!.partition).toBe(6)
    })

    test('records that were handed out are copies: changing them changes nothing for others', async () => {
      await create('t', 1)
      const mine = record('t', 'k', 'abc')
      await bus.append([mine])
      mine.value.fill(0)
      const [read] = await bus.read('t', 0, 0)
      read!.value.fill(0)
      ;(read!.headers as Record<string, string>).type = 'changed'
      const [again] = await bus.read('t', 0, 0)
      expect(textOf(again!)).toBe('abc')
      expect(again!.headers.type).toBe('test')
    })

    test('a replay from any offset, in steps of any size, gives the same records', async () => {
      await create('t', 1)
      const texts = Array.from({ length: 300 }, (_, i) => `${i}`.repeat(1 + (i % 50)))
      for (let i = 0; i < 300; i += 30) await bus.append(texts.slice(i, i + 30).map(text => record('t', 'k', text)))
      for (const from of [0, 1, 29, 30, 31, 299, 300]) {
        for (const max of [1, 7, 512]) {
          if (max === 1 && from < 200) continue
          expect((await readAll('t', 0, from, max)).map(textOf)).toEqual(texts.slice(from))
        }
      }
      expect(await bus.read('t', 0, 301)).toEqual([])
      expect(await bus.offsets('t', 0)).toEqual({ oldest: 0, next: 300 })
    })

    test('creating a topic that exists changes nothing; with other partitions it is refused by name', async () => {
      await create('t', 3)
      await Promise.all([create('t', 3), create('u', 2), create('u', 2)])
      expect(await codeOf(create('t', 4))).toBe('bus.topic_mismatch')
      expect(await codeOf(bus.createTopics([{ topic: 'a b', partitions: 1, retentionMs: null }]))).toBe(
        'bus.topic_invalid',
      )
      expect(await codeOf(create('none', 0))).toBe('bus.topic_invalid')
      const topics = [...(await bus.listTopics())].sort((a, b) => a.topic.localeCompare(b.topic))
      expect(topics).toEqual([
        { topic: 't', partitions: 3, retentionMs: null },
        { topic: 'u', partitions: 2, retentionMs: null },
      ])
    })

    test('unknown topics, unknown partitions and offsets before the oldest are coded errors', async () => {
      await create('t', 2)
      expect(await codeOf(bus.append([record('nowhere', 'k', 'x')]))).toBe('bus.topic_unknown')
      expect(await codeOf(bus.read('nowhere', 0, 0))).toBe('bus.topic_unknown')
      expect(await codeOf(consume({ topics: ['nowhere'] }, []))).toBe('bus.topic_unknown')
      expect(await codeOf(bus.append([record('t', 'k', 'x', 2)]))).toBe('bus.partition_unknown')
      expect(await codeOf(bus.offsets('t', -1))).toBe('bus.partition_unknown')
      expect(await codeOf(bus.read('t', 0, -1))).toBe('bus.offset_out_of_range')
    })

    test('a record over 900 KiB is refused with its topic and size, one of 900 KiB is taken', async () => {
      await create('t', 1)
      const value = Buffer.alloc(maxRecordBytes - 3, 7)
      await bus.append([{ topic: 't', key: 'key', headers: {}, value }])
      const error = await bus.append([{ topic: 't', key: 'key+', headers: {}, value }]).catch(thrown => thrown)
      expect(error).toMatchObject({ code: 'bus.record_too_large', retriable: false })
      expect(error.message).toContain(`${maxRecordBytes + 1} bytes`)
      expect(error.message).toContain('topic t')
      const records = await readAll('t', 0)
      expect(records.length).toBe(1)
      expect(value.equals(records[0]!.value)).toBe(true)
    })

    test('an append over several topics with one bad record writes none of them', async () => {
      await create('t', 1)
      await create('u', 1)
      const large = { topic: 'u', key: 'k', headers: {}, value: Buffer.alloc(maxRecordBytes + 1) }
      expect(await codeOf(bus.append([record('t', 'k', 'a'), record('u', 'k', 'b'), large]))).toBe(
        'bus.record_too_large',
      )
      expect(await codeOf(bus.append([record('t', 'k', 'a'), record('v', 'k', 'b')]))).toBe('bus.topic_unknown')
      expect((await bus.offsets('t', 0)).next + (await bus.offsets('u', 0)).next).toBe(0)
      const positions = await bus.append([record('u', 'k', 'a'), record('t', 'k', 'b'), record('u', 'k', 'c')])
      expect(positions.map(position => `${position.topic}${position.offset}`)).toEqual(['u0', 't0', 'u1'])
    })

    test('a consumer gets what was there and what comes, in order, without waiting for a poll', async () => {
      await create('t', 4)
      await bus.append(Array.from({ length: 50 }, (_, i) => record('t', `k${i % 9}`, `${i}`)))
      const seen: BusRecord[] = []
      await consume({}, seen)
      for (let i = 50; i < 100; i++) await bus.append([record('t', `k${i % 9}`, `${i}`)])
      await until(() => seen.length >= 100, 'all records arrived')
      expect(seen.length).toBe(100)
      for (let partition = 0; partition < 4; partition++) {
        const offsets = seen.filter(one => one.partition === partition).map(one => one.offset)
        expect(offsets).toEqual([...offsets.keys()])
      }
    })

    test('from latest begins behind what is there', async () => {
      await create('t', 2)
      await bus.append([record('t', 'k', 'old')])
      const seen: BusRecord[] = []
      await consume({ from: 'latest' }, seen)
      await bus.append([record('t', 'k', 'new')])
      await until(() => seen.length > 0, 'the new record arrived')
      await pause(20)
      expect(seen.map(textOf)).toEqual(['new'])
    })

    test('a slow handler is never given a second batch of its partition, nor more than maxBatch', async () => {
      await create('t', 2)
      const running = [0, 0]
      let most = 0
      let count = 0
      await bus.subscribe(
        { topics: ['t'], group: 'g', from: 'earliest', maxBatch: 3, onError: fail },
        async records => {
          const { partition } = records[0]!
          running[partition]!++
          most = Math.max(most, running[partition]!)
          expect(records.length).toBeLessThanOrEqual(3)
          await pause(2)
          count += records.length
          running[partition]!--
        },
      )
      for (let i = 0; i < 20; i++) await bus.append([record('t', 'a', 'x', 0), record('t', 'b', 'y', 1)])
      await until(() => count === 40, 'all were handled')
      expect(most).toBe(1)
    })

    test('a consumer that lingers gets in one batch what came since the one before, and the first at once', async () => {
      await create('t', 1)
      const batches: string[][] = []
      await bus.subscribe(
        { topics: ['t'], group: 'g', from: 'earliest', lingerMs: 100, onError: fail },
        async records => {
          batches.push(records.map(textOf))
        },
      )
      await bus.append([record('t', 'a', '0')])
      await until(() => batches.length === 1, 'the first came')
      for (const text of ['1', '2', '3']) await bus.append([record('t', 'a', text)])
      await until(() => batches.flat().length === 4, 'all came')
      expect(batches).toEqual([['0'], ['1', '2', '3']])
    })

    test('partitions do not wait for each other', async () => {
      await create('t', 2)
      const stuck = gate()
      const seen: string[] = []
      await bus.subscribe({ topics: ['t'], group: 'g', from: 'earliest', onError: fail }, async records => {
        if (records[0]!.partition === 0) await stuck.opened
        seen.push(...records.map(textOf))
      })
      await bus.append([record('t', 'a', 'slow', 0), record('t', 'b', 'fast', 1)])
      await until(() => seen.includes('fast'), 'the other partition went on')
      expect(seen).toEqual(['fast'])
      stuck.open()
      await until(() => seen.length === 2, 'the slow one ended')
    })

    test('a group begins again at its committed offset: what was handed out and not committed comes again', async () => {
      await create('t', 1)
      await bus.append(['a', 'b', 'c', 'd'].map(text => record('t', 'k', text)))
      const first: BusRecord[] = []
      const one = await consume({}, first)
      await until(() => first.length === 4, 'all were handed out')
      await one.commit({ topic: 't', partition: 0, offset: 2 })
      await one.close()
      const second: BusRecord[] = []
      const two = await consume({ from: 'latest' }, second)
      await until(() => second.length === 2, 'the uncommitted came again')
      expect(second.map(textOf)).toEqual(['c', 'd'])
      expect(await bus.committed('g', 't', 0)).toBe(2)
      expect(await bus.committed('other', 't', 0)).toBeUndefined()
      await two.close()
    })

    test('onAssigned may name another offset to begin at', async () => {
      await create('t', 1)
      await bus.append(['a', 'b', 'c'].map(text => record('t', 'k', text)))
      const seen: BusRecord[] = []
      await consume({ onAssigned: async () => 1 }, seen)
      await until(() => seen.length === 2, 'records from offset 1 on arrived')
      expect(seen.map(textOf)).toEqual(['b', 'c'])
    })

    test('a consumer that is to begin beyond the end is told so, with both offsets, instead of waiting for ever', async () => {
      await create('t', 1)
      await bus.append(['a', 'b'].map(text => record('t', 'k', text)))
      const errors: Error[] = []
      await consume({ onAssigned: async () => 7, onError: error => errors.push(error) }, [])
      await until(() => errors.length === 1, 'the error was reported')
      expect(errors).toMatchObject([{ code: 'bus.offset_out_of_range', hint: expect.stringContaining('truncated') }])
      expect(errors[0]!.message).toContain('t/0 has offsets 0 to 1, so offset 7 is out of range')
    })

    test('two groups each see everything', async () => {
      await create('t', 3)
      const left: BusRecord[] = []
      const right: BusRecord[] = []
      await consume({ group: 'left' }, left)
      await consume({ group: 'right' }, right)
      await bus.append(Array.from({ length: 30 }, (_, i) => record('t', `${i}`, `${i}`)))
      await until(() => left.length === 30 && right.length === 30, 'both saw all')
    })

    test('members share the partitions; none is held twice; who leaves hands over', async () => {
      await create('t', 6)
      const holders = new Map<number, string>()
      const holdsOf = (name: string): number => [...holders.values()].filter(holder => holder === name).length
      const join = (name: string): Promise<Subscription> =>
        bus.subscribe(
          {
            topics: ['t'],
            group: 'g',
            from: 'earliest',
            onError: fail,
            onAssigned: async ({ partition }) => {
              if (holders.has(partition)) throw new Error(`partition ${partition} is held by ${holders.get(partition)}`)
              holders.set(partition, name)
              return undefined
            },
            onRevoked: async ({ partition }) => {
              await pause(1)
              holders.delete(partition)
            },
          },
          async () => {},
        )
      const a = await join('a')
      expect(holdsOf('a')).toBe(6)
      const b = await join('b')
      expect([holdsOf('a'), holdsOf('b')]).toEqual([3, 3])
      const c = await join('c')
      expect([holdsOf('a'), holdsOf('b'), holdsOf('c')]).toEqual([2, 2, 2])
      await a.close()
      expect(holdsOf('a')).toBe(0)
      // In other processes they hear of it by themselves; who leaves does not wait for them.
      await until(() => holdsOf('b') === 3 && holdsOf('c') === 3, 'those who stay share what was left')
      await Promise.all([b.close(), c.close()])
      expect(holders.size).toBe(0)
    })

    test('a partition moves only after its running handler has ended, and nothing is lost on the way', async () => {
      await create('t', 2)
      const slow = gate()
      const log: string[] = []
      const a = await bus.subscribe(
        {
          topics: ['t'],
          group: 'g',
          from: 'earliest',
          onError: fail,
          onRevoked: async ({ partition }) => void log.push(`revoked ${partition}`),
        },
        async records => {
          log.push(`a begins ${records.map(textOf)}`)
          await slow.opened
          log.push(`a ends ${records.map(textOf)}`)
        },
      )
      await bus.append([record('t', 'k', 'zero', 0), record('t', 'k', 'one', 1)])
      await until(() => log.length === 2, 'both handlers run')
      const got: BusRecord[] = []
      const joining = consume({}, got)
      await pause(20)
      expect(log.filter(line => line.startsWith('revoked'))).toEqual([])
      expect(got).toEqual([])
      slow.open()
      await joining
      await until(() => got.length === 1, 'the new owner has its record')
      const moved = got[0]!.partition
      expect(log.indexOf(`revoked ${moved}`)).toBeGreaterThan(log.indexOf(`a ends ${textOf(got[0]!)}`))
      await a.close()
    })

    test('only the owner of a partition may commit there', async () => {
      await create('t', 1)
      const a = await consume({}, [])
      await bus.append([record('t', 'k', 'x')])
      await a.commit({ topic: 't', partition: 0, offset: 1 })
      expect(await codeOf(a.commit({ topic: 't', partition: 0, offset: 2 }))).toBe('bus.offset_out_of_range')
      await a.close()
      expect(await codeOf(a.commit({ topic: 't', partition: 0, offset: 0 }))).toBe('bus.partition_not_owned')
      expect(await bus.committed('g', 't', 0)).toBe(1)
    })

    test('a handler that throws ends its consumer, says so once, and its records go to another member', async () => {
      await create('t', 2)
      const errors: Error[] = []
      const bad = {
        topics: ['t'],
        group: 'g',
        from: 'earliest',
        onError: (error: Error) => errors.push(error),
      } as const
      await bus.subscribe(bad, async () => {
        throw new TroupeError('test.broken', { boundary: 'actor', retriable: true, message: 'broken on purpose' })
      })
      const seen: BusRecord[] = []
      await consume({}, seen)
      await bus.append([record('t', 'a', 'x', 0), record('t', 'b', 'y', 1)])
      await until(() => seen.length === 2, 'the other member got both')
      expect(errors).toMatchObject([{ code: 'test.broken', retriable: true }])
      const foreign: Error[] = []
      await bus.subscribe({ ...bad, group: 'h', onError: error => foreign.push(error) }, async () => {
        throw new RangeError('not one of ours')
      })
      await until(() => foreign.length === 1, 'the error was reported')
      await pause(10)
      expect(foreign).toMatchObject([
        { code: 'bus.handler_failed', retriable: false, cause: { message: 'not one of ours' } },
      ])
    })

    test('a consumer whose onAssigned throws ends with that error', async () => {
      await create('t', 1)
      const errors: Error[] = []
      const onAssigned = async (): Promise<undefined> => {
        throw new Error('no refold')
      }
      await consume({ onAssigned, onError: error => errors.push(error) }, [])
      await until(() => errors.length === 1, 'the error was reported')
      expect(errors[0]!.message).toContain('no refold')
    })

    test('a paused partition rests while others go on, and loses nothing', async () => {
      await create('t', 2)
      const seen: BusRecord[] = []
      const consumer = await consume({}, seen)
      consumer.pause('t', 0)
      for (let i = 0; i < 5; i++) await bus.append([record('t', 'a', `${i}`, 0), record('t', 'b', `${i}`, 1)])
      await until(() => seen.length === 5, 'the other partition went on')
      await pause(20)
      expect(seen.every(one => one.partition === 1)).toBe(true)
      consumer.resume('t', 0)
      await until(() => seen.length === 10, 'the paused one caught up')
      expect(seen.filter(one => one.partition === 0).map(textOf)).toEqual(['0', '1', '2', '3', '4'])
    })

    test('close waits for the running handler and none begins after it', async () => {
      await create('t', 1)
      let begun = 0
      let ended = 0
      const consumer = await bus.subscribe(
        { topics: ['t'], group: 'g', from: 'earliest', maxBatch: 1, onError: fail },
        async () => {
          begun++
          await pause(15)
          ended++
        },
      )
      await bus.append(['a', 'b', 'c'].map(text => record('t', 'k', text)))
      await until(() => begun === 1, 'a handler runs')
      await consumer.close()
      expect([begun, ended]).toEqual([1, 1])
      await pause(30)
      expect(begun).toBe(1)
    })

    test('a bus that was closed refuses every call, and closing it twice is harmless', async () => {
      await create('t', 1)
      const pending = bus.append([record('t', 'k', 'x')])
      await bus.close()
      await bus.close()
      expect((await pending)[0]!.offset).toBe(0)
      expect(await codeOf(bus.append([record('t', 'k', 'x')]))).toBe('bus.closed')
      expect(await codeOf(bus.read('t', 0, 0))).toBe('bus.closed')
      expect(await codeOf(consume({}, []))).toBe('bus.closed')
    })

    test('a replay of much leaves room for timers', async () => {
      await create('t', 1)
      for (let i = 0; i < 20; i++)
        await bus.append(Array.from({ length: 200 }, () => record('t', 'k', 'x'.repeat(100))))
      const seen: BusRecord[] = []
      let seenAtTimer = -1
      setTimeout(() => {
        seenAtTimer = seen.length
      }, 1)
      await consume({ maxBatch: 10 }, seen)
      await until(() => seen.length === 4000, 'all were replayed')
      expect(seenAtTimer).toBeGreaterThanOrEqual(0)
      expect(seenAtTimer).toBeLessThan(4000)
    })

    test('any history of appends, reads, commits and reopens is the one a plain list would give', async () => {
      const partitions = 3
      const text = fc.string({ unit: 'binary', maxLength: 40 })
      const step = fc.oneof(
        {
          weight: 5,
          arbitrary: fc.record({
            do: fc.constant('append' as const),
            records: fc.array(
              fc.record({ key: text, headers: fc.dictionary(text, text, { maxKeys: 4 }), size: fc.nat(5000) }),
              { minLength: 1, maxLength: 20 },
            ),
          }),
        },
        {
          weight: 3,
          arbitrary: fc.record({
            do: fc.constant('read' as const),
            at: fc.double({ min: 0, max: 1.2, noNaN: true }),
            max: fc.integer({ min: 1, max: 30 }),
          }),
        },
        {
          weight: 2,
          arbitrary: fc.record({ do: fc.constant('commit' as const), at: fc.double({ min: 0, max: 1, noNaN: true }) }),
        },
        { weight: 1, arbitrary: fc.record({ do: fc.constant('reopen' as const) }) },
      )
      let topics = 0
      await fc.assert(
        fc.asyncProperty(fc.array(step, { maxLength: 15 }), async steps => {
          const topic = `model-${topics++}`
          await create(topic, partitions)
          const model: NewRecord[][] = Array.from({ length: partitions }, () => [])
          const commits: (number | undefined)[] = Array.from({ length: partitions })
          for (const step of steps) {
            switch (step.do) {
              case 'append': {
                const records = step.records.map(({ key, headers, size }) => ({
                  topic,
                  key,
                  headers,
                  value: Buffer.alloc(size, key),
                }))
                const positions = await bus.append(records)
                for (const [i, position] of positions.entries()) {
                  expect(position.partition).toBe(partitionOf(records[i]!.key, partitions))
                  expect(model[position.partition]!.push(records[i]!) - 1).toBe(position.offset)
                }
                break
              }
              case 'read':
                for (const [partition, list] of model.entries()) {
                  const from = Math.floor(step.at * list.length)
                  const records = await bus.read(topic, partition, from, step.max)
                  expect(records.length).toBe(Math.min(step.max, Math.max(0, list.length - from)))
                  for (const [i, read] of records.entries()) {
                    const wrote = list[from + i]!
                    expect([read.offset, wellFormed(read.key)]).toEqual([from + i, wellFormed(wrote.key)])
                    expect(Object.entries(read.headers).sort(byName)).toEqual(
                      Object.entries(wrote.headers).sort(byName),
                    )
                    expect(Buffer.compare(read.value, wrote.value)).toBe(0)
                  }
                }
                break
              case 'commit': {
                const consumer = await bus.subscribe(
                  { topics: [topic], group: 'model', from: 'latest', onError: fail },
                  async () => {},
                )
                for (const [partition, list] of model.entries()) {
                  const position: Position = { topic, partition, offset: Math.floor(step.at * list.length) }
                  await consumer.commit(position)
                  commits[partition] = position.offset
                }
                await consumer.close()
                break
              }
              case 'reopen':
                if (!driver.durable) break
                await bus.close()
                bus = await storage.open()
                break
            }
            for (const [partition, list] of model.entries()) {
              expect(await bus.offsets(topic, partition)).toEqual({ oldest: 0, next: list.length })
              expect(await bus.committed('model', topic, partition)).toBe(commits[partition])
            }
          }
        }),
        { numRuns: 25 },
      )
    }, 60_000)

    if (!driver.durable) return

    test('what was acknowledged is there when the bus is opened again', async () => {
      await create('t', 3)
      const positions = await bus.append(Array.from({ length: 100 }, (_, i) => record('t', `k${i}`, `${i}`)))
      const consumer = await consume({}, [])
      await consumer.commit({ topic: 't', partition: 1, offset: 5 })
      await bus.close()
      bus = await storage.open()
      expect(await bus.listTopics()).toEqual([{ topic: 't', partitions: 3, retentionMs: null }])
      expect(await bus.committed('g', 't', 1)).toBe(5)
      for (const [i, position] of positions.entries()) {
        const [read] = await bus.read('t', position.partition, position.offset, 1)
        expect(textOf(read!)).toBe(`${i}`)
      }
      const [next] = await bus.append([record('t', 'k0', 'more')])
      expect(next!.offset).toBe(positions.filter(position => position.partition === next!.partition).length)
    })
  })
}

const byName = (a: [string, string], b: [string, string]): number => (a[0] < b[0] ? -1 : 1)
/** UTF-8 has no lone surrogates; they come back as U+FFFD. */
const wellFormed = (text: string): string => Buffer.from(text).toString()
