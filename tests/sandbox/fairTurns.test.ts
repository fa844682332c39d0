/** A client that sends much, and computes long, does not keep another's call from its turn. */
import { openSandbox, type RunRequest, type Sandbox } from '../../sandbox'
import { Clients } from '../../sandbox/zygote/clients'
import { WaitingJobs } from '../../sandbox/zygote/waitingJobs'

const job = (client: string, id: string, named = true) => ({ client, id, named, kind: 0 }) as never
const link = { ready: true, notBegun: 0, calls: new Map(), kind: 0, core: { calls: 0 } } as never

test('clients take turns, and the calls of one are first come, first served', () => {
  const waiting = new WaitingJobs()
  for (const n of [1, 2, 3]) waiting.add(job('a', `a${n}`))
  waiting.add(job('b', 'b1'))
  waiting.add(job('c', 'c1'))
  waiting.add(job('b', 'b2'))
  const ids: string[] = []
  for (;;) {
    const next = waiting.next(
      [link],
      () => false,
      () => true,
    )
    if (!next) break
    ids.push(next.job.id)
  }
  expect(ids).toEqual(['a1', 'b1', 'c1', 'a2', 'b2', 'a3'])
  expect(waiting.size).toBe(0)
})

test('only a client that runs nothing beside one that runs many passes the others', () => {
  const clients = new Clients()
  for (const name of ['a', 'b', 'c']) clients.add(name)
  expect(clients.waitsForFlood('d')).toBe(false) // All run a few calls: one more at once would slow each of them.
  for (let n = 0; n < 3; n++) clients.add('a')
  expect(['a', 'b', 'd'].map(name => clients.waitsForFlood(name))).toEqual([false, false, true])
  clients.remove('a')
  expect(clients.waitsForFlood('d')).toBe(false)
})

test('a call without memory holds up those behind it, and an aborted one is forgotten', () => {
  const waiting = new WaitingJobs()
  const large = job('a', 'large')
  waiting.add(large)
  waiting.add(job('b', 'small'))
  const admit = (asked: { id: string }) => asked.id !== 'large'
  expect(waiting.next([link], () => false, admit)).toBeUndefined()
  waiting.forget(large)
  expect(waiting.next([link], () => false, admit)?.job.id).toBe('small')
})

describe.each([{ noShim: false }, { noShim: true }])('60 calls that spin, with %j', options => {
  let sandbox: Sandbox
  beforeAll(async () => {
    sandbox = await openSandbox({ requireLevel: 'full', zygotes: 1, machineMemoryMb: 1 << 20, ...options })
  })
  afterAll(() => sandbox.close())

  test('do not delay a trivial call of another client until one of them has ended', async () => {
    const stop = new AbortController()
    const ended: string[] = []
    const spin: RunRequest = { id: 'spin', code: 'while True: pass', timeoutMs: 4000, client: 'spinner' }
    const spinners = Array.from({ length: 60 }, () =>
      sandbox.run(spin, stop.signal).then(
        () => ended.push('spin'),
        () => undefined,
      ),
    )
    await new Promise(resolve => setTimeout(resolve, 500)) // by then some count as long
    for (let n = 0; n < 3; n++) {
      const result = await sandbox.run({ id: 'trivial', code: 'print(1)', timeoutMs: 20_000, client: 'other' })
      expect(result.status).toBe('ok')
      ended.push('trivial')
    }
    expect(ended).toEqual(['trivial', 'trivial', 'trivial'])
    stop.abort()
    await Promise.all(spinners)
  }, 60_000)
})
