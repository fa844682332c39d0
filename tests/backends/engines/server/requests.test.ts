/** Requests to a server that says 429, and a gate that is closed while it is paused: what is sent, and which clocks run. */
import { setTimeout as sleep } from 'node:timers/promises'
import type { ServerHttp, StreamReply } from '../../../../backends/engines/server/http'
import { Gate } from '../../../../backends/engines/server/request'
import { ServerRequests } from '../../../../backends/engines/server/requests'
import { engineId } from '../../../../messages/ids'
import { manualEffects } from '../../../../runtime/effects'
import { until } from '../../../support/until'
import { requestOn } from '../contract'

jest.mock('node:timers/promises', () => {
  const real = jest.requireActual<typeof import('node:timers/promises')>('node:timers/promises')
  return { ...real, setTimeout: jest.fn(real.setTimeout) }
})

/** Answers each asking by the next of `answers`, and the last of them for ever. */
function rig(firstTokenMs: number, ...answers: readonly (() => 200 | 429)[]) {
  const fx = manualEffects(1000)
  let asked = 0
  async function* lines() {
    yield 'end'
  }
  const stream = async (): Promise<StreamReply> => {
    const status = answers[Math.min(asked++, answers.length - 1)]!()
    return { status, retryAfterMs: r.retryAfterMs, lines: lines(), text: async () => 'queue full' }
  }
  const capabilities = { contextTokens: 64, kvTokens: 64, vocabulary: 10 }
  const requests = new ServerRequests({
    ...{ id: engineId('a'), fx, stallMs: undefined, firstTokenMs },
    capabilities: capabilities as never,
    http: { url: 'http://x', stream, close: () => {} } as Partial<ServerHttp> as ServerHttp,
    health: { lost: new Promise(() => {}), check: async () => undefined, close: () => {} } as never,
  })
  const refused = (status: number, message: string) => new Error(`${status} ${message}`)
  const { generate, abort } = requests.engine(async run => {
    const finish = await requests.ask(run, { path: '/', body: {}, refused }, () => 'stop')
    return run.generation(async () => '', { finish, cachedTokens: 0, preemptions: 0, queuedMs: 0 })
  })
  const r = {
    ...{ fx, abort, gate: requests.gate, asked: () => asked, retryAfterMs: 0 },
    generate: () => generate(requestOn(Int32Array.of(1, 2), { requestId: 'q' }), undefined),
  }
  return r
}

/** Whose first asking is told 429 and closes the gate. */
function closedBy429(...answers: readonly (() => 200 | 429)[]) {
  let open = () => {}
  const closing = () => {
    open = r.gate.close()
    return 429 as const
  }
  const r = rig(600_000, closing, ...answers)
  return { ...r, open: () => open() }
}

/** Longer than the wait after a 429 that says to come back at once. */
const aWhile = () => new Promise(resolve => setTimeout(resolve, 400))

test('a turn that was told 429 is not asked again while the gate is closed, and is when it opens', async () => {
  const r = closedBy429(() => 200)
  const answer = r.generate()
  await aWhile()
  expect(r.asked()).toBe(1)
  r.open()
  expect(await answer).toMatchObject({ finish: 'stop' })
  expect(r.asked()).toBe(2)
})

test('for how long a turn is asked again counts the time with the gate open, and that time whole', async () => {
  const r = closedBy429(
    () => 429,
    () => 200,
  )
  const answer = r.generate()
  await until(() => r.gate.closed)
  r.fx.advance(3_600_000)
  r.open()
  expect(await answer).toMatchObject({ finish: 'stop' })

  const busy = rig(600_000, () => {
    busy.fx.advance(250_000)
    return 429
  })
  await expect(busy.generate()).rejects.toThrow('429 queue full')
  expect(busy.asked()).toBe(3)
})

test.each([
  [60_000, 60_000],
  [3_600_000, 599_900],
])(
  'a turn that a server wants in %d ms is asked again in %d ms of the 600,000 that it may wait',
  async (said, waited) => {
    const r = rig(
      600_000,
      () => 429,
      () => 200,
    )
    r.retryAfterMs = said
    jest
      .mocked(sleep)
      .mockClear()
      .mockImplementationOnce(async () => undefined as never)
    expect(await r.generate()).toMatchObject({ finish: 'stop' })
    expect(jest.mocked(sleep).mock.calls.map(([ms]) => ms)).toEqual([waited])
    expect(r.asked()).toBe(2)
  },
)

test('a turn that waits before a closed gate to be asked again ends when it is aborted, and is not sent', async () => {
  const r = rig(600_000, () => {
    r.gate.close()
    return 429
  })
  const answer = r.generate()
  await aWhile()
  await r.abort('q')
  expect(await answer).toMatchObject({ finish: 'aborted' })
  expect(r.asked()).toBe(1)
})

test('a turn that stands still is given up after its time with the gate open, however long it was closed', () => {
  jest.useFakeTimers()
  try {
    const fx = manualEffects(1000)
    const gate = new Gate(fx)
    const told: Error[] = []
    const dog = gate.watchdog(200, 600, 'http://x', error => told.push(error))
    const pass = (ms: number) => {
      for (let k = 0; k < ms; k += 10) {
        fx.advance(10)
        jest.advanceTimersByTime(10)
      }
    }
    const open = gate.close()
    pass(550)
    open()
    pass(580)
    expect(told).toEqual([])
    pass(20)
    expect(told.map(({ message }) => message)).toEqual(['no token from http://x for 600 ms'])
    dog.stop()
  } finally {
    jest.useRealTimers()
  }
})
