/** How the reader of bodies, which the gateway and the judge share, ends for requests that come late or not at all. */
import { once } from 'node:events'
import { createServer, type IncomingMessage, type Server } from 'node:http'
import { type AddressInfo, connect, type Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { JsonBodies } from '../../gateway/http/jsonBodies'
import { ByteBudget, readBody } from '../../sandbox/http/requestBody'
import { JUDGE_DEFAULTS } from '../../sandbox/judge/judgeServer'
import { testGateways } from '../support/gateway/openTestGateway'

const opened = testGateways()
let server: Server
const sockets: Socket[] = []
beforeAll(async () => {
  server = createServer()
  await once(server.listen(0, '127.0.0.1'), 'listening')
})
afterEach(() => {
  jest.restoreAllMocks()
  for (const socket of sockets.splice(0)) socket.destroy()
})
afterAll(() => void server.close())

/** Sends the head of a POST and a part of its body. Returns the connection and the request as the server has it. */
async function posted(body: string, length = body.length, port = (server.address() as AddressInfo).port) {
  const socket = connect(port, '127.0.0.1').on('error', () => undefined)
  sockets.push(socket)
  const asked = once(server, 'request') as Promise<[IncomingMessage]>
  const head = 'POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer me\r\n'
  socket.write(`${head}content-length: ${length}\r\n\r\n${body}`)
  return { socket, asked }
}

test.each([
  ['whole', '{"a":1}', 7],
  ['in part', '{"a":1', 7],
  ['not at all', '', 7],
])(
  'a request that was closed before it is read, and whose body came %s, is refused at once',
  async (_, body, length) => {
    const { socket, asked } = await posted(body, length)
    const [request] = await asked
    await sleep(20)
    socket.destroy()
    while (!request.destroyed) await sleep(5)
    await sleep(20)
    const timers = jest.spyOn(globalThis, 'setInterval')
    const budget = new ByteBudget(1000)
    const read = readBody(request, JUDGE_DEFAULTS, budget)
    expect(await Promise.race([read, sleep(1000, 'pending')])).toMatchObject({ refused: 400, taken: 0 })
    expect([timers.mock.calls.length, budget.held]).toEqual([0, 0])
  },
)

test('the timer of a body keeps no process alive, and is cleared when the body ends, is refused or is cut off', async () => {
  const set = jest.spyOn(globalThis, 'setInterval')
  const cleared = jest.spyOn(globalThis, 'clearInterval')
  for (const end of ['end', 'refusal', 'cut'] as const) {
    const { socket, asked } = await posted('{"a":', 7)
    const [request] = await asked
    const limits = { maxBodyBytes: end === 'refusal' ? 6 : 100, bodyWaitMs: 5000 }
    const read = readBody(request, limits, new ByteBudget(1000))
    await sleep(20)
    if (end === 'cut') socket.destroy()
    else socket.write('1}')
    expect((await read).refused).toBe({ end: undefined, refusal: 413, cut: 400 }[end])
  }
  const timers = set.mock.results.map(({ value }) => value as NodeJS.Timeout)
  expect(timers.length).toBeGreaterThanOrEqual(3)
  expect(timers.some(timer => timer.hasRef())).toBe(false)
  expect(timers.every(timer => cleared.mock.calls.some(([one]) => one === timer))).toBe(true)
})

test('a body may begin late, by default after 30 s; once it has begun it must go on', async () => {
  const limits = { maxBodyBytes: 100, bodyWaitMs: 100, firstByteMs: 1000 }
  const late = await posted('', 7)
  const [request] = await late.asked
  const read = readBody(request, limits, new ByteBudget(1000))
  await sleep(400)
  late.socket.write('{"a":1}')
  expect((await read).bytes.toString()).toBe('{"a":1}')
  for (const [begun, least, most] of [
    ['', 900, 5000],
    ['{', 90, 900],
  ] as const) {
    const slow = await posted(begun, 7)
    const [one] = await slow.asked
    const from = performance.now()
    expect((await readBody(one, limits, new ByteBudget(1000))).refused).toBe(408)
    const took = performance.now() - from
    expect([begun, took > least, took < most]).toEqual([begun, true, true])
  }
  const set = jest.spyOn(globalThis, 'setInterval')
  const { asked } = await posted('', 7)
  void readBody((await asked)[0], JUDGE_DEFAULTS, new ByteBudget(1000))
  expect(set.mock.calls.map(([, ms]) => ms)).toEqual([30_000])
})

test('a client that disconnects while its session is being opened leaves nothing behind in the gateway', async () => {
  let goOn = () => {}
  const found = new Promise<void>(resolve => {
    goOn = resolve
  })
  const gateway = await opened(() => 'ok', { atPoint: async point => (point === 'session.found' ? found : undefined) })
  const reads = jest.spyOn(JsonBodies.prototype, 'read')
  const { socket } = await posted('{"model":"m"}', 13, Number(new URL(gateway.gateway.url).port))
  while (gateway.gateway.sessions.list().length === 0) await sleep(5)
  socket.destroy()
  await sleep(100)
  goOn()
  while (reads.mock.results.length === 0) await sleep(5)
  const read = (reads.mock.results[0]!.value as Promise<unknown>).catch((thrown: Error) => thrown.message)
  expect(await Promise.race([read, sleep(1000, 'pending')])).toMatch(/closed before the end of the body/)
})
