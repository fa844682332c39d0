/**
 * The forwarder of an environment: the end of one direction leaves the other open, and a client that does not read
 * holds up no other client.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { connect, createServer, type Server, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { until } from '../support/until'

const programs = join(__dirname, '../../environments/keeper')
/** Serves a listener of this machine's loopback, in place of one inside an environment; prints its port. */
const FORWARD = `
import socket, sys
sys.path.insert(0, ${JSON.stringify(programs)})
import forward
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
forward.serve(listener)
`
const BIG = 8 << 20
/** Bytes that fit the buffers between proxy and client, so that the proxy can close before the client reads. */
const GONE = 150_000

let directory: string
let forwarder: ChildProcess
let proxy: Server
let port: number

beforeAll(async () => {
  directory = mkdtempSync(join(tmpdir(), 'troupe-forward-'))
  proxy = createServer({ allowHalfOpen: true }, answer)
  await once(proxy.listen(join(directory, 'proxy')), 'listening')
  forwarder = spawn('python3', ['-c', FORWARD], { cwd: directory, stdio: ['ignore', 'pipe', 'inherit'] })
  const [line] = await once(forwarder.stdout!, 'data')
  port = Number(line)
})
afterAll(async () => {
  forwarder.kill('SIGKILL')
  await once(forwarder, 'exit')
  proxy.close()
  rmSync(directory, { recursive: true, force: true })
})

/**
 * `echo`: sends back what it gets, after the client's end. `big`: sends BIG bytes. `last`: ends, then counts. `idle`:
 * answers, and closes 50 ms later as a server does with an idle connection. `gone`: sends BIG bytes and closes.
 */
function answer(socket: Socket): void {
  let got = ''
  socket.on('error', () => undefined)
  socket.setEncoding('latin1').on('data', part => {
    got += part
    if (got === 'big') socket.end(Buffer.alloc(BIG, 'b'))
    if (got === 'last') socket.end('bye')
    if (got === 'idle') {
      socket.write('answer')
      setTimeout(() => socket.destroy(), 50)
    }
    if (got === 'gone') socket.write(Buffer.alloc(GONE, 'g'), () => socket.destroy())
    if (got.length === 4 + BIG) counted(got.length)
  })
  socket.on('end', () => {
    if (got.startsWith('echo')) setTimeout(() => socket.end(got), 200)
  })
}
let counted: (bytes: number) => void = () => undefined

async function client(): Promise<Socket> {
  const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true })
  await once(socket, 'connect')
  return socket.on('error', () => undefined)
}

async function all(socket: Socket): Promise<string> {
  const parts: Buffer[] = []
  for await (const part of socket) parts.push(part as Buffer)
  return Buffer.concat(parts).toString('latin1')
}

test('a client that has ended its request gets the answer', async () => {
  const socket = await client()
  socket.end('echo this')
  expect(await all(socket)).toBe('echo this')
})

test('a proxy that has ended its answer gets the rest of the request', async () => {
  const socket = await client()
  const whole = new Promise<number>(resolve => {
    counted = resolve
  })
  socket.write('last')
  expect(String(await once(socket, 'data'))).toBe('bye')
  socket.end(Buffer.alloc(BIG, 'a'))
  expect(await whole).toBe(4 + BIG)
})

test('a client that does not read holds up no other, and gets every byte once it reads', async () => {
  const slow = await client()
  slow.pause()
  slow.write('big')
  await sleep(300) // The buffers of its sockets are full now.
  const quick = await client()
  quick.end('echo quick')
  expect(await all(quick)).toBe('echo quick')
  expect((await all(slow)).length).toBe(BIG)
})

test('64 connections are open at most, and ended ones count no more', async () => {
  for (let round = 0; round < 3; round++) {
    const sockets = await Promise.all(Array.from({ length: 64 }, client))
    const further = await client()
    expect(await all(further)).toBe('')
    const answers = sockets.map(socket => all(socket.end('echo')))
    expect(new Set(await Promise.all(answers))).toEqual(new Set(['echo']))
  }
})

test('connections that the proxy has closed count no more, though their clients keep them', async () => {
  const kept = await Promise.all(Array.from({ length: 64 }, client))
  for (const socket of kept) {
    socket.write('idle')
    expect(String(await once(socket, 'data'))).toBe('answer')
  }
  await until(async () => {
    const fresh = await client()
    fresh.end('echo fresh')
    return (await all(fresh)) === 'echo fresh'
  }, 10_000)
  for (const socket of kept) socket.destroy()
})

test('a client that still sends when the proxy has closed gets all that the proxy sent', async () => {
  const socket = await client()
  socket.pause()
  socket.write('gone')
  await sleep(300)
  socket.write('more')
  await sleep(100)
  socket.write('and more')
  expect((await all(socket)).length).toBe(GONE)
})
