/** Who connects to the judge and sends nothing, half a header, or another site's name. */
import { once } from 'node:events'
import { createServer, request, type ServerResponse } from 'node:http'
import { type AddressInfo, connect, type Socket } from 'node:net'
import { type Judge, type JudgeOptions, openJudge, openSandbox, type Sandbox } from '../../sandbox'
import { defaultMaxConnections, HEADERS_MS, limitConnections } from '../../sandbox/http/connectionLimits'
import { hostCheck } from '../../sandbox/http/hostHeader'
import { until } from '../support/until'

let sandbox: Sandbox
const open: Judge[] = []
beforeAll(async () => {
  sandbox = await openSandbox({ zygotes: 1 })
})
afterEach(async () => {
  for (const judge of open.splice(0)) await judge.close()
})
afterAll(() => sandbox.close())

async function judge(options: JudgeOptions = {}): Promise<{ port: number; url: string }> {
  const opened = await openJudge(sandbox, { port: 0, ...options })
  open.push(opened)
  return { url: opened.url, port: Number(new URL(opened.url).port) }
}

function connected(port: number): Promise<Socket> {
  const socket = connect(port, '127.0.0.1')
  socket.on('error', () => undefined)
  return once(socket, 'connect').then(() => socket)
}

const ping = (port: number, host: string): Promise<number | undefined> =>
  new Promise((resolve, reject) => {
    const asked = request({ port, host: '127.0.0.1', path: '/ping', agent: false, headers: { host } }, reply => {
      reply.resume()
      resolve(reply.statusCode)
    })
    asked.on('error', reject).end()
  })

test('400 connections that send nothing do not shut out a client, and most of them are closed', async () => {
  const { port, url } = await judge({ maxConnections: 32 })
  const idle: Socket[] = []
  let closed = 0
  for (let n = 0; n < 400; n++) {
    const socket = await connected(port)
    socket.once('close', () => closed++)
    socket.resume()
    idle.push(socket)
  }
  const body = JSON.stringify({ type: 'python', solution: 'print(6 * 7)' })
  const ran = await fetch(`${url}/run`, { method: 'POST', body, headers: { 'content-type': 'application/json' } })
  expect(await ran.json()).toMatchObject({ success: true, stdout: '42\n' })
  await until(() => closed >= 400 - 32)
  for (const socket of idle) socket.destroy()
})

test('a connection with an open request is never closed for another: the other is', async () => {
  const held: ServerResponse[] = []
  const server = createServer((_, response) => void held.push(response))
  limitConnections(server, { maxConnections: 8, headersMs: 1000 })
  await once(server.listen(0, '127.0.0.1'), 'listening')
  const { port } = server.address() as AddressInfo
  const answers = Array.from({ length: 6 }, () => ping(port, 'localhost'))
  await until(() => held.length === 6) // the share of one address
  await expect(ping(port, 'localhost')).rejects.toMatchObject({ code: 'ECONNRESET' })
  for (const response of held) response.end()
  expect(await Promise.all(answers)).toEqual(Array(6).fill(200))
  server.closeAllConnections()
  server.close()
})

test('a client address that has its share replaces its own idle connection, also when the server is full', async () => {
  const server = createServer((_, response) => void response.end())
  limitConnections(server, { maxConnections: 8, headersMs: 1000 })
  await once(server.listen(0, '127.0.0.1'), 'listening')
  const { port } = server.address() as AddressInfo
  const closed: string[] = []
  const from = async (localAddress: string) => {
    const socket = connect({ port, host: '127.0.0.1', localAddress }).on('error', () => undefined)
    socket.resume().once('close', () => closed.push(localAddress))
    await once(socket, 'connect')
    return socket
  }
  const sockets = [await from('127.0.0.2'), await from('127.0.0.2')]
  for (let n = 0; n < 6; n++) sockets.push(await from('127.0.0.1')) // its share: the server is full
  sockets.push(await from('127.0.0.1'))
  await until(() => closed.length > 0)
  expect(closed).toEqual(['127.0.0.1'])
  for (const socket of sockets) socket.destroy()
  server.close()
})

test('headers that are sent by half are given up', async () => {
  expect(HEADERS_MS).toBeLessThanOrEqual(10_000)
  const { port } = await judge({ headersMs: 200 })
  const half = await connected(port)
  half.write('POST /run HTTP/1.1\r\nhost: localhost\r\nx-')
  const nothing = await connected(port)
  await Promise.all([half, nothing].map(socket => once(socket.resume(), 'close')))
})

test('a name that was pointed at this machine is refused; names of this machine and allowed ones are not', async () => {
  const { port } = await judge({ allowedHosts: ['judge.internal'] })
  for (const [host, status] of [
    ['evil.example', 421],
    [`evil.example:${port}`, 421],
    ['127.0.0.1.evil.example', 421],
    ['localhost.evil.example', 421],
    [`localhost:${port}`, 200],
    ['LOCALHOST', 200],
    ['127.0.0.1', 200],
    [`[::1]:${port}`, 200],
    ['judge.internal:80', 200],
  ] as const) {
    expect([host, await ping(port, host)]).toEqual([host, status])
  }
  expect(hostCheck('0.0.0.0')('judge.example')).toBe(true) // It has a token, which no page knows.
})

test('the default bound leaves descriptors for files and children', () => {
  const most = defaultMaxConnections()
  expect(most).toBeGreaterThanOrEqual(8)
  expect(most).toBeLessThanOrEqual(8192)
})
