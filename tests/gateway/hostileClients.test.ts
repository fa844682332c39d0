/** Clients that would take the gateway's memory or its sessions, and web pages, are refused; agents beside them are not. */
import { once } from 'node:events'
import { Agent, request } from 'node:http'
import { connect, type Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { mostOpenSessions } from '../../gateway/openGateway'
import { OpenBound } from '../../gateway/session/openBound'
import type { SessionFact } from '../../gateway/session/session'
import type { CallStarted } from '../../messages/facts'
import { systemEffects } from '../../runtime/effects'
import { type TestGateway, testGateways } from '../support/gateway/openTestGateway'
import { until } from '../support/until'

/** Short, so that the tests of clients that read nothing are fast. */
const stalledMs = 400
jest.mock('../../sandbox/http/connectionLimits', () => ({
  ...jest.requireActual('../../sandbox/http/connectionLimits'),
  STALLED_MS: 400,
}))

const opened = testGateways()
const chat = '/v1/chat/completions'
const asking = (content: string) => ({ model: 'm', messages: [{ role: 'user', content }] })
const as = (key: string) => ({ authorization: `Bearer ${key}` })
const codeOf = async (response: Response) => [
  response.status,
  ((await response.json()) as { error?: { code: string } }).error?.code,
]

function raw({ gateway }: TestGateway, head: string, body = ''): Socket {
  const socket = connect(Number(new URL(gateway.url).port), '127.0.0.1').on('error', () => undefined)
  socket.write(`${head} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer me\r\n${body === '' ? '\r\n' : body}`)
  return socket
}

test('a gateway without a key refuses what a web page sends, and no session is opened; with a key, pages may call', async () => {
  const gateway = await opened(() => 'ok')
  const { post, get } = gateway
  const plain = { 'content-type': 'text/plain' }
  for (const header of [{ origin: 'http://evil.example' }, { origin: 'null' }, { 'sec-fetch-site': 'cross-site' }])
    for (const path of [chat, '/troupe/v1/sessions', '/troupe/v1/sessions/agent.0000%2F0/reward'])
      expect(await codeOf(await post(path, asking('go'), { ...plain, ...header }))).toEqual([403, 'web_page'])
  expect((await get('/troupe/v1/sessions', { 'sec-fetch-site': 'cross-site' })).status).toBe(403)
  expect(gateway.gateway.sessions.list()).toEqual([])
  expect((await post(chat, asking('go'), plain)).status).toBe(200)
  const keyed = await opened(() => 'ok', { key: 'key-of-the-gateway' })
  const page = { origin: 'http://page.example', ...as('a-key') }
  expect(await codeOf(await keyed.post(chat, asking('go'), page))).toEqual([401, 'unknown_key'])
})

test('bodies that would not fit in memory together are refused with 503, and a body counts only until its call is placed', async () => {
  let answer = () => {}
  const answered = new Promise<string>(resolve => {
    answer = () => resolve('ok')
  })
  const gateway = await opened(() => answered, { maxHeldBytes: 100_000 })
  const big = asking('x'.repeat(60_000))
  const first = gateway.post(chat, big, as('one'))
  await until(() => gateway.engine.asked.length === 1)
  const second = gateway.post(chat, big, as('two'))
  await until(() => gateway.engine.asked.length === 2)
  const half = raw(gateway, `POST ${chat}`, `content-length: 90000\r\n\r\n${' '.repeat(60_000)}`)
  await until(() => gateway.gateway.sessions.list().length === 3)
  await sleep(100)
  const refused = await gateway.post(chat, big, as('three'))
  expect(refused.headers.get('retry-after')).toBe('2')
  expect(await codeOf(refused)).toEqual([503, 'bodies_too_large'])
  half.destroy()
  await once(half, 'close')
  answer()
  await until(async () => (await gateway.post(chat, big, as('three'))).status === 200)
  expect((await Promise.all([first, second])).map(({ status }) => status)).toEqual([200, 200])
})

test('a body that stops arriving is refused, and its client is told to send it again', async () => {
  const real = setInterval
  const fast = jest
    .spyOn(globalThis, 'setInterval')
    .mockImplementation(((then: () => void, ms: number) => real(then, ms === 10_000 ? 50 : ms)) as typeof setInterval)
  const gateway = await opened(() => 'ok')
  const socket = raw(gateway, `POST ${chat}`, 'content-length: 50\r\n\r\n{')
  let answer = ''
  socket.on('data', part => {
    answer += part
  })
  await once(socket, 'close')
  fast.mockRestore()
  expect(answer).toMatch(/^HTTP\/1\.1 408 [\s\S]*retry-after: 1\r\n[\s\S]*body_too_slow/)
  expect(answer).not.toContain('x-should-retry')
})

test('a gateway without a key has a bound on open sessions; one that ends makes room, and known keys go on', async () => {
  const gateway = await opened(() => 'ok', { mostOpen: 3 })
  const ask = async (key: string) => codeOf(await gateway.post(chat, asking('go'), as(key)))
  const burst = await Promise.all(['a', 'b', 'c', 'd', 'e'].map(ask))
  expect(burst.filter(([status]) => status === 200)).toHaveLength(3)
  expect(burst.find(([status]) => status !== 200)).toEqual([429, 'too_many_sessions'])
  expect(await codeOf(await gateway.post('/troupe/v1/sessions', {}))).toEqual([429, 'too_many_sessions'])
  expect(await ask('a')).toEqual([200, undefined])
  await gateway.post('/troupe/v1/sessions/agent.0000%2F0/end', {})
  expect(await ask('f')).toEqual([200, undefined])
  expect(await ask('g')).toEqual([429, 'too_many_sessions'])
  const keyed = await opened(() => 'ok', { key: 'key-of-the-gateway', mostOpen: 1 })
  for (const _ of [1, 2])
    expect((await keyed.post('/troupe/v1/sessions', {}, as('key-of-the-gateway'))).status).toBe(200)
})

test('of a gateway without a key, sessions that were idle for an hour do not count, also after a restart, and may go on', async () => {
  let now = 1_000_000
  const fx = { ...systemEffects, now: () => now }
  const warnings: string[] = []
  const log = { warn: (_: unknown, text?: string) => void warnings.push(text ?? '') }
  const first = await opened(() => 'ok', { fx, log, mostOpen: 10 })
  const ask = async (to: TestGateway, key: string) => (await to.post(chat, asking('go'), as(key))).status
  for (let n = 0; n < 10; n++) {
    expect(await ask(first, `early-${n}`)).toBe(200)
    expect(warnings).toHaveLength(n < 8 ? 0 : 1)
  }
  expect(warnings[0]).toMatch(/--max-open-sessions/)
  expect(await ask(first, 'late')).toBe(429)
  now += 1_800_000
  expect(await ask(first, 'early-0')).toBe(200)
  now += 1_800_001
  const again = await opened(() => 'ok', { fx, mostOpen: 10, over: first.log })
  for (let n = 0; n < 9; n++) expect(await ask(again, `late-${n}`)).toBe(200)
  expect(await ask(again, 'more')).toBe(429)
  expect(await ask(again, 'early-5')).toBe(200)
})

test('by default, a day of 512 rollouts a step is served, and an opening takes no longer for it', () => {
  const bound = new OpenBound({ most: mostOpenSessions, log: { warn() {} } })
  const started = performance.now()
  for (let n = 0; n < 512 * 256; n++) {
    const at = n * 600
    bound.check(1, at)
    bound.note({ type: 'session.opened', trajectory: `agent.${n}/0`, at } as unknown as SessionFact)
  }
  expect(performance.now() - started).toBeLessThan(5000)
})

test('a client that reads nothing of a long answer or of events is let go; one that reads gets all of them', async () => {
  const gateway = await opened(() => 'ok')
  await gateway.post(chat, asking('go'), as('me'))
  const started = (await gateway.facts()).find((fact): fact is CallStarted => fact.type === 'call.started')!
  // 20 MB, more than the buffers of a connection.
  const messages = JSON.stringify([{ role: 'user', content: 'x'.repeat(500_000) }])
  for (let call = 1; call <= 40; call++) await gateway.gateway.sessions.write([{ ...started, call, messages }])
  const path = '/troupe/v1/sessions/agent.0000%2F0'
  for (const what of ['events', 'tree']) {
    const blind = raw(gateway, `GET ${path}/${what}`)
    // A paused socket receives only what fits into its buffers.
    await once(blind, 'readable')
    await sleep(3 * stalledMs)
    let bytes = 0
    let isClosed = false
    blind.on('close', () => {
      isClosed = true
    })
    blind.on('data', part => {
      bytes += part.length
    })
    await until(() => isClosed)
    const whole = await gateway.get(`${path}/${what}`)
    const reader = whole.body!.getReader()
    let read = 0
    while (read <= bytes) {
      const { done, value } = await reader.read()
      if (done) break
      read += value.length
    }
    expect(read).toBeGreaterThan(bytes)
    await reader.cancel()
  }
})

test('a call may take longer than a client may take to read, streamed or not, on one kept connection', async () => {
  const gateway = await opened(async () => {
    await sleep(3 * stalledMs)
    return 'late'
  })
  const agent = new Agent({ keepAlive: true, maxSockets: 1 })
  const ports = new Set<number>()
  const ask = (stream: boolean) =>
    new Promise<string>((resolve, reject) => {
      const url = `${gateway.gateway.url}${chat}`
      const asked = request(url, { agent, method: 'POST', headers: as('me') }, response => {
        ports.add(response.socket.localPort!)
        let text = ''
        response.setEncoding('utf8').on('data', part => {
          text += part
        })
        response.on('end', () => resolve(text)).on('error', reject)
      })
      asked.on('error', reject).end(JSON.stringify({ ...asking('go'), stream }))
    })
  for (const stream of [false, true, false]) expect(await ask(stream)).toMatch(/l.*ate/s)
  expect(ports.size).toBe(1)
  agent.destroy()
})
