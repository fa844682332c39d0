/**
 * The faults of nact 7.6.2 (measured by us, one test each), shown not to reach a user of runtime/actor/system.ts.
 * Each test does to an actor of ours what breaks one of nact's; the table in docs/architecture.md says what nact does.
 */
import { createActorSystem, type DeadLetter, type Reply } from '../../../runtime/actor/system'

const sleep = (ms: number) => new Promise(resolve => setTimeout(resolve, ms))
const tick = () => new Promise(resolve => setImmediate(resolve))

function world() {
  const letters: DeadLetter[] = []
  const escalated: string[] = []
  const system = createActorSystem({
    name: 'faults',
    log: { warn: () => {}, error: () => {} },
    onDeadLetter: letter => letters.push(letter),
    onEscalate: path => escalated.push(path),
  })
  return { system, letters, escalated }
}

test('1. a mailbox has a bound: a million messages to a busy actor are refused, not kept', async () => {
  const { system } = world()
  let open!: () => void
  const gate = new Promise<void>(resolve => {
    open = resolve
  })
  const ref = system.spawn<number>({ name: 'busy', mailbox: { capacity: 100 }, start: () => () => gate })
  await ref.started
  let taken = 0
  for (let i = 0; i < 1_000_000; i++) if (ref.tryTell(i)) taken++
  expect(taken).toBe(100)
  expect(ref.depth).toBe(100)
  open()
  await ref.stop({ drain: true })
})

test('2. a message to a stopped actor is refused, and is a dead letter', async () => {
  const { system, letters } = world()
  const ref = system.spawn<string>({ name: 'gone', mailbox: { capacity: 4 }, start: () => () => {} })
  await ref.stop()
  expect(ref.tryTell('a')).toBe(false)
  await expect(ref.tell('b')).rejects.toMatchObject({ code: 'actor.stopped' })
  await expect(ref.ask(() => 'c', { deadlineMs: 1000 })).rejects.toMatchObject({ code: 'actor.stopped' })
  expect(letters.map(({ message }) => message)).toEqual(['a', 'b', 'c'])
})

test('3. of 100,000 questions in flight at once every one gets its own answer', async () => {
  const { system } = world()
  type Question = { reply: Reply<number>; n: number }
  const held: Question[] = []
  const ref = system.spawn<Question>({
    name: 'many',
    mailbox: { capacity: 100_000 },
    start: () => question => {
      held.push(question)
    },
  })
  const ids = new Set<number>()
  const answers = Array.from({ length: 100_000 }, (_, n) =>
    ref.ask<number>(
      reply => {
        ids.add(reply.id)
        return { reply, n }
      },
      { deadlineMs: 25_000 },
    ),
  )
  while (held.length < 100_000) await tick()
  for (const { reply, n } of held.reverse()) reply.answer(n)
  const got = await Promise.all(answers)
  expect(got.every((answer, n) => answer === n)).toBe(true)
  expect(ids.size).toBe(100_000)
})

test('4. who asks a handler that throws is told what it threw, not that time ran out', async () => {
  const { system } = world()
  const ref = system.spawn<Reply<string>>({
    name: 'throws',
    mailbox: { capacity: 4 },
    restart: { backoffMs: 1, maxBackoffMs: 1 },
    start: () => () => {
      throw new Error('division by zero')
    },
  })
  const before = Date.now()
  await expect(ref.ask<string>(reply => reply, { deadlineMs: 20_000 })).rejects.toMatchObject({
    code: 'actor.handler_failed',
    cause: { message: 'division by zero' },
  })
  expect(Date.now() - before).toBeLessThan(10_000)
  // A restart that takes longer than the asker waits hides the error no more.
  const slow = system.spawn<Reply<string>>({
    name: 'slow',
    mailbox: { capacity: 4 },
    restart: { backoffMs: 5_000 },
    start: () => () => {
      throw new Error('twice')
    },
  })
  await expect(slow.ask<string>(reply => reply, { deadlineMs: 50 })).rejects.toMatchObject({
    code: 'actor.handler_failed',
    cause: { message: 'twice' },
  })
  await system.stop()
})

test('5. a restart that comes from outside while a message is in hand waits for it', async () => {
  const { system } = world()
  let running = 0
  let most = 0
  let starts = 0
  let fail!: () => void
  const parent = system.spawn<number>({
    name: 'parent',
    mailbox: { capacity: 32 },
    restart: { backoffMs: 0, maxBackoffMs: 0, maxRestarts: 100 },
    start: context => {
      starts++
      const child = context.spawn<string>({
        name: 'child',
        mailbox: { capacity: 1 },
        restart: { maxRestarts: 0 },
        start: () => () => {
          throw new Error('child')
        },
      })
      fail = () => void child.tryTell('die')
      return async () => {
        running++
        most = Math.max(most, running)
        fail() // the child ends now, and the parent has to restart, with this message still in hand
        await sleep(3)
        running--
      }
    },
  })
  for (let i = 0; i < 10; i++) await parent.tell(i)
  await parent.stop({ drain: true })
  expect(most).toBe(1)
  expect(starts).toBeGreaterThan(5)
})

test('6. a failure after stop, and hooks that throw, end in no unhandled rejection', async () => {
  const { system } = world()
  const ref = system.spawn<string>({
    name: 'dying',
    mailbox: { capacity: 4 },
    restart: { maxRestarts: 0 },
    start: () => async () => {
      await sleep(5)
      throw new Error('after the stop')
    },
    stop: () => Promise.reject(new Error('stop hook')),
  })
  await ref.tell('a')
  await tick()
  await ref.stop()
  const again = system.spawn<string>({
    name: 'escalates',
    mailbox: { capacity: 4 },
    restart: { maxRestarts: 0 },
    start: () => () => Promise.reject(new Error('at once')),
    onEscalate: () => {
      throw new Error('escalate hook')
    },
  })
  await again.tell('b')
  expect(await again.ended).toMatchObject({ code: 'actor.escalated' })
  await sleep(20) // jest fails a test during which a rejection goes unhandled
})

test('7. start is awaited, what a handler returns changes no state, and stop waits for the message in hand', async () => {
  const { system } = world()
  const log: string[] = []
  const ref = system.spawn<string>({
    name: 'patient',
    mailbox: { capacity: 8 },
    start: async () => {
      await sleep(10)
      log.push('started')
      const seen: string[] = []
      return async message => {
        await sleep(5)
        seen.push(message)
        log.push(seen.join(''))
      }
    },
  })
  await ref.tell('a')
  await ref.tell('b')
  while (log.length < 2) await tick()
  const stopped = ref.stop().then(() => log.push('stopped'))
  await stopped
  expect(log).toEqual(['started', 'a', 'ab', 'stopped'])
})

test('8. a failure that no policy was written for is retried and reported to us, never to the console', async () => {
  const { system, letters, escalated } = world()
  const printed: unknown[] = []
  const spy = jest.spyOn(console, 'log').mockImplementation((...words) => printed.push(words))
  const ref = system.spawn<string>({
    name: 'plain',
    mailbox: { capacity: 8 },
    start: () => message => {
      if (message === 'bad') throw new Error('bad')
    },
  })
  await ref.tell('bad')
  await ref.tell('good')
  await ref.stop({ drain: true })
  spy.mockRestore()
  expect(printed).toEqual([])
  expect(escalated).toEqual([])
  expect(letters).toMatchObject([{ message: 'bad', reason: 'crashed' }])
})

test('9. an actor that ends has ended its children first, and they handle nothing after it', async () => {
  const { system, letters } = world()
  const log: string[] = []
  const parent = system.spawn<string>({
    name: 'parent',
    mailbox: { capacity: 4 },
    start: context => {
      const child = context.spawn<string>({
        name: 'child',
        mailbox: { capacity: 4 },
        start: () => async message => {
          await sleep(10)
          log.push(message)
        },
        stop: () => void log.push('child stopped'),
      })
      return message => child.tell(message)
    },
    stop: () => void log.push('parent stopped'),
  })
  for (const message of ['a', 'b', 'c']) await parent.tell(message)
  while (parent.depth > 0) await tick()
  await parent.stop()
  await sleep(40)
  expect(log).toEqual(['a', 'child stopped', 'parent stopped'])
  expect(letters.map(({ message }) => message)).toEqual(['b', 'c'])
})

test('10. a crash loses no message and changes no order: the next incarnation handles what was queued', async () => {
  const { system, letters } = world()
  const handled: number[] = []
  let crashes = 0
  const ref = system.spawn<number>({
    name: 'crashing',
    mailbox: { capacity: 500 },
    restart: { backoffMs: 0, maxBackoffMs: 0, maxRestarts: 1000 },
    start: () => n => {
      if (n % 50 === 49 && crashes++ % 2 === 0) throw new Error('once')
      handled.push(n)
    },
  })
  for (let n = 0; n < 500; n++) await ref.tell(n)
  await ref.stop({ drain: true })
  expect(handled).toEqual(Array.from({ length: 500 }, (_, n) => n))
  expect(letters).toEqual([])
})

test('11. a ref means one actor: a message for one that has ended does not reach the next of its name', async () => {
  const { system, letters } = world()
  const handled: string[] = []
  const spec = { name: 'same', mailbox: { capacity: 4 }, start: () => (message: string) => void handled.push(message) }
  const first = system.spawn<string>(spec)
  await first.stop()
  const second = system.spawn<string>(spec)
  expect(first.tryTell('for the first')).toBe(false)
  await second.tell('for the second')
  await second.stop({ drain: true })
  expect(handled).toEqual(['for the second'])
  expect(letters.map(({ message }) => message)).toEqual(['for the first'])
})

test('12. a message costs the same whether its actor has one child or 1,000', async () => {
  const { system } = world()
  const parentOf = (name: string, children: number) =>
    system.spawn<Reply<void>>({
      name,
      mailbox: { capacity: 1 },
      start: context => {
        const child = { mailbox: { capacity: 1 }, start: () => () => {} }
        for (let k = 0; k < children; k++) context.spawn({ ...child, name: `c${k}` })
        return reply => reply.answer()
      },
    })
  const parents = [parentOf('few', 1), parentOf('many', 1000)] as const
  await Promise.all(parents.map(parent => parent.started))
  const took = async (parent: (typeof parents)[number]) => {
    const begun = performance.now()
    for (let n = 0; n < 2000; n++) await parent.ask<void>(reply => reply, { deadlineMs: 10_000 })
    return performance.now() - begun
  }
  const ratios: number[] = []
  for (let round = 0; round < 5; round++) {
    const [few, many] = [await took(parents[0]), await took(parents[1])]
    ratios.push(many / few)
  }
  // nact copies the list of children for every message: 30 times slower at 1,000.
  expect(Math.min(...ratios)).toBeLessThan(4)
  await system.stop()
})
