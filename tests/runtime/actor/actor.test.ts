/** Actors: credits, tell, ask, stop, limits, and what is measured of them. */
import fc from 'fast-check'
import { Mailbox } from '../../../runtime/actor/mailbox'
import { type ActorRef, createActorSystem, type DeadLetter, type Reply } from '../../../runtime/actor/system'
import { createLog } from '../../../runtime/log'
import { createMetrics } from '../../../runtime/metrics'

const silent = { warn: () => {}, error: () => {} }
const sleep = (ms: number) => new Promise(resolve => setTimeout(resolve, ms))

function world() {
  const letters: DeadLetter[] = []
  const system = createActorSystem({ name: 'test', log: silent, onDeadLetter: letter => letters.push(letter) })
  return { system, letters }
}

/** An actor whose messages wait at a gate until it is opened. */
function gated(system: ReturnType<typeof createActorSystem>, capacity: number, waiting?: number) {
  const handled: number[] = []
  let open!: () => void
  const gate = new Promise<void>(resolve => {
    open = resolve
  })
  let begin!: () => void
  /** Resolves when the first message is being handled. */
  const begun = new Promise<void>(resolve => {
    begin = resolve
  })
  const ref = system.spawn<number>({
    name: 'gated',
    mailbox: { capacity, ...(waiting !== undefined && { waiting }) },
    start: () => async message => {
      begin()
      await gate
      handled.push(message)
    },
  })
  return { ref, handled, open, begun }
}

describe('a mailbox', () => {
  test('keeps order and its bound, and lets nobody overtake one who waits, whatever is done to it', () => {
    const step = fc.constantFrom('offer', 'wait', 'done')
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 40 }), fc.array(step, { maxLength: 300 }), (capacity, steps) => {
        const mailbox = new Mailbox<number>(capacity, 5)
        const expected: number[] = []
        let sent = 0
        for (const one of steps) {
          if (one === 'offer') {
            const room = mailbox.depth < capacity && mailbox.waiting === 0
            expect(mailbox.offer(sent)).toBe(room)
            if (room) expected.push(sent)
            sent++
          } else if (one === 'wait' && mailbox.depth === capacity) {
            const waits = mailbox.waiting < 5
            const line = mailbox.wait(
              sent,
              () => {},
              () => {},
            )
            expect(line !== false).toBe(waits)
            if (waits) expected.push(sent)
            sent++
          } else if (one === 'done' && mailbox.depth > 0) {
            expect(mailbox.peek()).toBe(expected.shift())
            mailbox.done()
          }
          expect(mailbox.depth).toBeLessThanOrEqual(capacity)
          expect(mailbox.depth + mailbox.waiting).toBe(expected.length)
        }
      }),
    )
  })
})

describe('tell', () => {
  test('is refused at once when the mailbox is full, and waits for room when it may', async () => {
    const { system } = world()
    const { ref, handled, open } = gated(system, 2)
    expect([ref.tryTell(1), ref.tryTell(2), ref.tryTell(3)]).toEqual([true, true, false])
    let through = false
    const waiting = ref.tell(4).then(() => {
      through = true
    })
    await sleep(5)
    expect([through, ref.depth]).toEqual([false, 2])
    open()
    await waiting
    await ref.stop({ drain: true })
    expect(handled).toEqual([1, 2, 4])
  })

  test('gives up at its deadline or when its caller aborts, and the message is not handled then', async () => {
    const { system, letters } = world()
    const { ref, handled, open } = gated(system, 1)
    await ref.tell(1)
    const abort = new AbortController()
    const aborting = ref.tell(3, { signal: abort.signal })
    const outcome = expect(aborting).rejects.toMatchObject({
      code: 'actor.aborted',
      cause: { message: 'changed my mind' },
    })
    setTimeout(() => abort.abort(new Error('changed my mind')), 5)
    await expect(ref.tell(2, { deadlineMs: 5 })).rejects.toMatchObject({ code: 'actor.tell_timeout', retriable: true })
    await outcome
    await expect(ref.tell(4, { signal: abort.signal })).rejects.toMatchObject({ code: 'actor.aborted' })
    open()
    await ref.stop({ drain: true })
    expect(handled).toEqual([1])
    expect(letters).toEqual([])
  })

  test('is refused when too many wait already, so that no queue is without a bound', async () => {
    const { system } = world()
    const { ref, open } = gated(system, 1, 1)
    await ref.tell(1)
    const second = ref.tell(2)
    await expect(ref.tell(3)).rejects.toMatchObject({ code: 'actor.overloaded', retriable: true })
    open()
    await second
    await ref.stop({ drain: true })
  })

  test('of many senders arrives in each one’s order, every message once', async () => {
    const { system } = world()
    const seen = new Map<number, number[]>()
    const ref = system.spawn<{ sender: number; n: number }>({
      name: 'sink',
      mailbox: { capacity: 7 },
      start:
        () =>
        async ({ sender, n }) => {
          if (n % 16 === 0) await sleep(0)
          seen.set(sender, [...(seen.get(sender) ?? []), n])
        },
    })
    await Promise.all(
      Array.from({ length: 10 }, async (_, sender) => {
        for (let n = 0; n < 50; n++) await ref.tell({ sender, n })
      }),
    )
    await ref.stop({ drain: true })
    const all = Array.from({ length: 50 }, (_, n) => n)
    expect([...seen.values()]).toEqual(Array.from({ length: 10 }, () => all))
  })
})

describe('ask', () => {
  type Question = { reply: Reply<number>; n: number }
  const asker = (system: ReturnType<typeof createActorSystem>, handler: (question: Question) => void | Promise<void>) =>
    system.spawn<Question>({
      name: 'asked',
      mailbox: { capacity: 4 },
      restart: { backoffMs: 1, maxBackoffMs: 1 },
      start: () => handler,
    })

  test('resolves with the answer, also with one that is given after the handler returned', async () => {
    const { system } = world()
    const ref = asker(system, ({ reply, n }) => {
      if (n === 0) reply.answer(1)
      else setTimeout(() => reply.answer(n * 2), 3)
    })
    const ask = (n: number) => ref.ask<number>(reply => ({ reply, n }), { deadlineMs: 1000 })
    expect(await Promise.all([ask(0), ask(2), ask(3)])).toEqual([1, 4, 6])
    await ref.stop()
  })

  test('ends at its deadline, and a question that nobody waits for is not handled', async () => {
    const { system } = world()
    const handled: number[] = []
    const ref = asker(system, async ({ reply, n }) => {
      handled.push(n)
      await sleep(20)
      reply.answer(n)
    })
    const slow = ref.ask<number>(reply => ({ reply, n: 1 }), { deadlineMs: 1000 })
    const late = ref.ask<number>(reply => ({ reply, n: 2 }), { deadlineMs: 5 })
    await expect(late).rejects.toMatchObject({ code: 'actor.ask_timeout', retriable: true })
    expect(await slow).toBe(1)
    await ref.stop({ drain: true })
    expect(handled).toEqual([1])
  })

  test('waits for room like tell, within its one deadline', async () => {
    const { system } = world()
    const ref = asker(system, async ({ reply, n }) => {
      await sleep(1)
      reply.answer(n)
    })
    const answers = Array.from({ length: 20 }, (_, n) => ref.ask<number>(reply => ({ reply, n }), { deadlineMs: 2000 }))
    expect(await Promise.all(answers)).toEqual(Array.from({ length: 20 }, (_, n) => n))
    await ref.stop()
  })

  test('resolves when a retry after a crash answers, rejects with the cause when none does', async () => {
    const { system } = world()
    let tries = 0
    const ref = asker(system, ({ reply, n }) => {
      tries++
      if (n === 0 || tries < 3) throw new Error('cannot')
      reply.answer(tries)
    })
    const ask = (n: number) => ref.ask<number>(reply => ({ reply, n }), { deadlineMs: 2000 })
    expect(await ask(1)).toBe(3)
    await expect(ask(0)).rejects.toMatchObject({ code: 'actor.handler_failed', cause: { message: 'cannot' } })
    await ref.stop()
  })

  test('rejects with what the handler gave to fail, and with actor.stopped when the actor ends first', async () => {
    const { system, letters } = world()
    const ref = asker(system, async ({ reply, n }) => {
      if (n === 0) reply.fail(new RangeError('no such thing'))
      else await sleep(20)
    })
    const ask = (n: number) => ref.ask<number>(reply => ({ reply, n }), { deadlineMs: 300 })
    await expect(ask(0)).rejects.toBeInstanceOf(RangeError)
    const [inHand, queued] = [ask(1), ask(2)]
    const outcomes = Promise.allSettled([queued, ask(3)])
    await sleep(5)
    await ref.stop()
    await expect(outcomes).resolves.toMatchObject([
      { reason: { code: 'actor.stopped' } },
      { reason: { code: 'actor.stopped' } },
    ])
    expect(letters.map(letter => (letter.message as Question).n)).toEqual([2, 3])
    inHand.catch(() => {}) // it was handled, and never answered: its deadline ends it
  })
})

describe('stop', () => {
  test('waits for the message in hand; what is queued is a dead letter', async () => {
    const { system, letters } = world()
    const { ref, handled, open, begun } = gated(system, 4)
    for (const n of [1, 2, 3]) await ref.tell(n)
    await begun
    setTimeout(open, 10)
    await ref.stop()
    expect(handled).toEqual([1])
    expect(letters.map(({ message, reason }) => [message, reason])).toEqual([
      [2, 'stopped'],
      [3, 'stopped'],
    ])
  })

  test('with drain handles what was accepted and what waited for room, and takes nothing new', async () => {
    const { system, letters } = world()
    const { ref, handled, open } = gated(system, 2)
    const accepted = [ref.tell(1), ref.tell(2), ref.tell(3)]
    const stopped = ref.stop({ drain: true })
    expect(ref.tryTell(4)).toBe(false)
    open()
    await Promise.all([...accepted, stopped])
    expect(handled).toEqual([1, 2, 3])
    expect(letters.map(({ message }) => message)).toEqual([4])
  })

  test('gives up at its deadline: it says so, and the actor has ended', async () => {
    const { system, letters } = world()
    const { ref, begun } = gated(system, 2)
    await ref.tell(1)
    await begun
    await expect(ref.stop({ deadlineMs: 10 })).rejects.toMatchObject({ code: 'actor.stop_timeout' })
    expect(await ref.ended).toMatchObject({ code: 'actor.stop_timeout' })
    expect(letters).toMatchObject([{ message: 1, reason: 'stopped' }])
    await expect(ref.tell(2)).rejects.toMatchObject({ code: 'actor.stopped' })
  })

  test('aborts the signal that the actor was started with, so that long work can end early', async () => {
    const { system } = world()
    let reason = ''
    const ref = system.spawn<string>({
      name: 'long',
      mailbox: { capacity: 1 },
      start:
        ({ signal }) =>
        () =>
          new Promise<void>(resolve => {
            signal.addEventListener('abort', () => resolve())
          }),
      stop: why => {
        reason = why
      },
    })
    await ref.tell('work')
    await sleep(5)
    await ref.stop({ deadlineMs: 5000 })
    expect(reason).toBe('stopped')
  })

  test('of a system ends all its actors, the youngest first, and it takes no more', async () => {
    const { system } = world()
    const ended: string[] = []
    for (const name of ['a', 'b']) {
      system.spawn({ name, mailbox: { capacity: 1 }, start: () => () => {}, stop: () => void ended.push(name) })
    }
    await sleep(5)
    await system.stop()
    expect(ended).toEqual(['b', 'a'])
    expect(() => system.spawn({ name: 'c', mailbox: { capacity: 1 }, start: () => () => {} })).toThrow(/has stopped/)
  })
})

describe('a system', () => {
  test('has room for any number of children, and refuses a name that is taken and one that is no name', async () => {
    const { system } = world()
    const handled: number[] = []
    const spec = { mailbox: { capacity: 1 }, start: () => (n: number) => void handled.push(n) }
    const refs: ActorRef<number>[] = []
    for (let i = 0; i < 1000; i++) refs.push(system.spawn<number>({ ...spec, name: `child-${i}` }))
    await Promise.all(refs.map((ref, n) => ref.tell(n)))
    await refs[5]!.stop({ drain: true })
    expect(() => system.spawn({ ...spec, name: 'child-6' })).toThrow(
      expect.objectContaining({ code: 'actor.name_taken' }),
    )
    expect(() => system.spawn({ ...spec, name: 'a/b' })).toThrow(expect.objectContaining({ code: 'actor.bad_name' }))
    const again = system.spawn<number>({ ...spec, name: 'child-5' })
    await again.tell(1000)
    await system.stop({ drain: true })
    expect(handled.sort((a, b) => a - b)).toEqual(Array.from({ length: 1001 }, (_, n) => n))
  })

  test('measures depth, waits, restarts and dead letters', async () => {
    const metrics = createMetrics()
    const system = createActorSystem({ name: 'measured', log: silent, metrics, onDeadLetter: () => {} })
    const ref = system.spawn<number>({
      name: 'busy',
      mailbox: { capacity: 8 },
      restart: { backoffMs: 1 },
      start: () => async message => {
        await sleep(2)
        if (message === 0) throw new Error('zero')
      },
    })
    for (const message of [1, 0, 2]) await ref.tell(message)
    expect(await metrics.render()).toContain('troupe_actor_mailbox_depth{actor="/measured/busy"} 3')
    await ref.stop({ drain: true })
    const text = await metrics.render()
    expect(text).toContain('troupe_actor_messages_total{actor="/measured/busy"} 2')
    expect(text).toContain('troupe_actor_restarts_total{actor="/measured/busy"} 3')
    expect(text).toContain('troupe_actor_dead_letters_total{actor="/measured/busy",reason="crashed"} 1')
    expect(text).toMatch(/troupe_actor_handle_seconds_count\{actor="\/measured\/busy"\} [12]/)
    expect(text).not.toContain('troupe_actor_mailbox_depth{')
  })
})

describe('a log', () => {
  const lines = (pretty: boolean, level?: string) => {
    const written: string[] = []
    const log = createLog('test', { pretty, write: line => written.push(line), ...(level && { level }) })
    return { log, written }
  }

  test('writes JSON with fields and errors, and no secret at any depth', () => {
    const { log, written } = lines(false)
    const cause = Object.assign(new Error('inner'), { apiKey: 'sk-123' })
    log
      .child({ authorization: 'Bearer abc' })
      .warn({ a: { hfToken: 'hf_x', maxTokens: 5 }, err: new Error('outer', { cause }) }, 'look')
    expect(JSON.parse(written[0]!)).toMatchObject({
      level: 'warn',
      name: 'test',
      msg: 'look',
      a: { hfToken: '[redacted]', maxTokens: 5 },
      err: { message: 'outer', cause: { message: 'inner', apiKey: '[redacted]' } },
    })
    expect(written.join()).not.toMatch(/abc|hf_x|sk-123/)
  })

  test('on a terminal is one line a message, and control characters in it are shown, not obeyed', () => {
    const { log, written } = lines(true, 'debug')
    log.debug({ said: '\u001b[2Jboo\n', n: 1 }, 'model spoke')
    expect(written).toHaveLength(1)
    expect(written[0]).toMatch(/^\d\d:\d\d:\d\d DEBUG model spoke {2}said=\\x1b\[2Jboo\\x0a {2}n=1\n$/)
  })

  test('is silent below its level', () => {
    const { log, written } = lines(false, 'warn')
    log.info({}, 'not this')
    expect(written).toEqual([])
  })
})
