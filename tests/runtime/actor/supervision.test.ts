/** Restarts: the arithmetic of the policy, and actors that fail in every place where they can. */
import fc from 'fast-check'
import {
  defaultRestartPolicy,
  type Failures,
  onFailure,
  type RestartPolicy,
} from '../../../runtime/actor/restartPolicy'
import { type ActorSpec, createActorSystem, type DeadLetter } from '../../../runtime/actor/system'
import type { TroupeError } from '../../../runtime/errors'

const quick: Partial<RestartPolicy> = { backoffMs: 1, maxBackoffMs: 2 }

function world() {
  const letters: DeadLetter[] = []
  const escalations: { path: string; error: TroupeError }[] = []
  const warnings: string[] = []
  const log = {
    warn: (_: object, text: string) => warnings.push(text),
    error: (_: object, text: string) => warnings.push(text),
  }
  const system = createActorSystem({
    name: 'test',
    log,
    onDeadLetter: letter => letters.push(letter),
    onEscalate: (path, error) => escalations.push({ path, error }),
  })
  return { system, letters, escalations, warnings }
}

const sleep = (ms: number) => new Promise(resolve => setTimeout(resolve, ms))

describe('the policy', () => {
  const policy = fc.record({
    maxRestarts: fc.integer({ min: 0, max: 20 }),
    withinMs: fc.integer({ min: 1, max: 100_000 }),
    backoffMs: fc.integer({ min: 0, max: 1000 }),
    maxBackoffMs: fc.integer({ min: 0, max: 10_000 }),
    attemptsPerMessage: fc.constant(3),
  })

  test('allows exactly maxRestarts restarts in any window of withinMs, whenever the failures come', () => {
    fc.assert(
      fc.property(policy, fc.array(fc.integer({ min: 0, max: 50_000 }), { maxLength: 60 }), (policy, gaps) => {
        let now = 0
        let failures: Failures = []
        const restarts: number[] = []
        for (const gap of gaps) {
          now += gap
          const verdict = onFailure(policy, failures, now)
          const recent = restarts.filter(at => now - at < policy.withinMs).length
          expect(verdict.do).toBe(recent < policy.maxRestarts ? 'restart' : 'escalate')
          if (verdict.do === 'escalate') return
          failures = verdict.failures
          restarts.push(now)
        }
      }),
    )
  })

  test('waits twice as long after each failure that still counts, up to the maximum', () => {
    const policy = { ...defaultRestartPolicy, backoffMs: 10, maxBackoffMs: 35, withinMs: 1000 }
    const waits = (times: number[]) => {
      let failures: Failures = []
      return times.map(at => {
        const verdict = onFailure(policy, failures, at)
        failures = verdict.failures
        return verdict.do === 'restart' ? verdict.afterMs : verdict.do
      })
    }
    expect(waits([0, 1, 2, 3])).toEqual([10, 20, 35, 35])
    expect(waits([0, 1, 2000])).toEqual([10, 20, 10])
  })
})

describe('an actor', () => {
  test('whose handler throws starts again and handles the same message, before those behind it', async () => {
    const { system, letters } = world()
    const log: string[] = []
    let failing = true
    const ref = system.spawn<string>({
      name: 'retry',
      mailbox: { capacity: 8 },
      restart: quick,
      start: () => {
        log.push('start')
        return message => {
          if (message === 'b' && failing) {
            failing = false
            throw new Error('once')
          }
          log.push(message)
        }
      },
      stop: reason => {
        log.push(reason)
      },
    })
    for (const message of ['a', 'b', 'c']) await ref.tell(message)
    await ref.stop({ drain: true })
    expect(log).toEqual(['start', 'a', 'restarting', 'start', 'b', 'c', 'stopped'])
    expect(letters).toEqual([])
  })

  test('puts a message aside that crashed it three times, with the error, and goes on', async () => {
    const { system, letters, escalations } = world()
    let tries = 0
    const handled: number[] = []
    const ref = system.spawn<number>({
      name: 'poisoned',
      mailbox: { capacity: 8 },
      restart: quick,
      start: () => message => {
        if (message === 2) {
          tries++
          throw new Error(`poison ${tries}`)
        }
        handled.push(message)
      },
    })
    for (const message of [1, 2, 3]) await ref.tell(message)
    await ref.stop({ drain: true })
    expect(tries).toBe(3)
    expect(handled).toEqual([1, 3])
    expect(letters).toHaveLength(1)
    expect(letters[0]).toMatchObject({
      actor: '/test/poisoned',
      message: 2,
      reason: 'crashed',
      error: { code: 'actor.handler_failed', cause: { message: 'poison 3' } },
    })
    expect(escalations).toEqual([])
  })

  test('whose start fails is started again, and what was sent meanwhile waits for it', async () => {
    const { system } = world()
    let starts = 0
    const ref = system.spawn<number>({
      name: 'slow',
      mailbox: { capacity: 2 },
      restart: quick,
      start: async () => {
        starts++
        await sleep(1)
        if (starts < 3) throw new Error('not yet')
        return () => {}
      },
    })
    await ref.tell(1)
    await ref.started
    expect(starts).toBe(3)
    await ref.stop({ drain: true })
  })

  test('that fails too often ends, tells why, and leaves its messages as dead letters', async () => {
    const { system, letters, escalations } = world()
    const ref = system.spawn<number>({
      name: 'hopeless',
      mailbox: { capacity: 4 },
      restart: { ...quick, maxRestarts: 2 },
      start: () => {
        throw new Error('no disk')
      },
    })
    expect(ref.tryTell(7)).toBe(true)
    const error = await ref.ended
    expect(error).toMatchObject({ code: 'actor.escalated', cause: { code: 'actor.start_failed' } })
    expect(error?.message).toContain('no disk')
    expect(escalations.map(({ path }) => path)).toEqual(['/test/hopeless'])
    expect(letters).toMatchObject([{ message: 7, reason: 'stopped' }])
    await expect(ref.started).rejects.toMatchObject({ code: 'actor.stopped' })
    await expect(ref.tell(8)).rejects.toMatchObject({ code: 'actor.stopped' })
  })

  test('fails with a child that used up its restarts, and starts again with a new one', async () => {
    const { system, escalations } = world()
    const log: string[] = []
    let broken = true
    const child: ActorSpec<string> = {
      name: 'child',
      mailbox: { capacity: 4 },
      restart: { ...quick, maxRestarts: 0 },
      start: () => () => {
        if (broken) throw new Error('child')
        log.push('child works')
      },
      stop: reason => {
        log.push(`child ${reason}`)
      },
    }
    const parent = system.spawn<string>({
      name: 'parent',
      mailbox: { capacity: 4 },
      restart: quick,
      start: context => {
        log.push('parent starts')
        const ref = context.spawn(child)
        return message => ref.tell(message)
      },
    })
    await parent.tell('go')
    while (log.filter(line => line === 'parent starts').length < 2) await sleep(1)
    broken = false
    await parent.tell('go')
    await parent.stop({ drain: true })
    expect(log).toEqual(['parent starts', 'child escalated', 'parent starts', 'child works', 'child stopped'])
    expect(escalations).toEqual([])
  })

  test('whose own onEscalate takes the failure of a child does not fail with it', async () => {
    const { system } = world()
    let starts = 0
    const taken: string[] = []
    const parent = system.spawn<string>({
      name: 'parent',
      mailbox: { capacity: 4 },
      start: context => {
        starts++
        context.spawn<never>({
          name: 'child',
          mailbox: { capacity: 1 },
          restart: { maxRestarts: 0 },
          start: () => {
            throw new Error('never')
          },
          onEscalate: error => {
            taken.push(error.code)
          },
        })
        return () => {}
      },
    })
    await parent.started
    while (taken.length === 0) await sleep(1)
    await parent.tell('still here')
    await parent.stop({ drain: true })
    expect(taken).toEqual(['actor.escalated'])
    expect(starts).toBe(1)
  })

  test('never has two of start, handler and stop running at once, whatever fails when', async () => {
    const { system } = world()
    let running = 0
    let most = 0
    const alone = async () => {
      running++
      most = Math.max(most, running)
      await sleep(Math.random() * 2)
      running--
    }
    let n = 0
    const ref = system.spawn<number>({
      name: 'alone',
      mailbox: { capacity: 64 },
      restart: { ...quick, maxRestarts: 1000 },
      start: async () => {
        await alone()
        if (n++ % 5 === 3) throw new Error('start')
        return async message => {
          await alone()
          if (message % 3 === 0 && Math.random() < 0.5) throw new Error('handler')
        }
      },
      stop: alone,
    })
    for (let i = 0; i < 60; i++) await ref.tell(i)
    await ref.stop({ drain: true })
    expect(most).toBe(1)
    expect(running).toBe(0)
  })

  test('a hook that throws is logged and harms nobody', async () => {
    const warnings: string[] = []
    const system = createActorSystem({
      name: 'hooks',
      log: { warn: () => {}, error: (_, text) => warnings.push(text) },
      onDeadLetter: () => {
        throw new Error('letters')
      },
      onEscalate: () => {
        throw new Error('escalate')
      },
    })
    const ref = system.spawn<number>({
      name: 'a',
      mailbox: { capacity: 4 },
      restart: { maxRestarts: 0 },
      start: () => () => {
        throw new Error('always')
      },
      stop: () => {
        throw new Error('stop')
      },
    })
    await ref.tell(1)
    await ref.ended
    expect(warnings.sort()).toEqual([
      'actor used up its restarts',
      'an onEscalate hook failed',
      'the beforeStop or stop hook of an actor failed',
      'the dead letter hook failed',
    ])
  })
})
