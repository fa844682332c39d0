/** The proxy of an environment's allowlist lives in Troupe's process: nothing that either side sends may end it. */
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { AllowlistProxy } from '../../environments/network/allowlist'
import { until } from '../support/until'

let directory: string
let proxy: AllowlistProxy
let upstream: Server
let port: number
/** Bytes that the server behind the proxy sends to each client; undefined: it sends back what it receives. */
let reply: string | undefined
/** Bytes that the server received. */
let got = ''

beforeAll(async () => {
  directory = mkdtempSync(join(tmpdir(), 'troupe-proxy-'))
  proxy = await AllowlistProxy.open(directory, ['127.0.0.1', '::1', 'a.invalid', '10.0.0.0/8'])
  upstream = createServer(socket => {
    socket.on('error', () => undefined)
    socket.on('data', part => {
      got += part
      if (reply === undefined) socket.write(part)
      else socket.end(reply, 'latin1')
    })
  })
  await once(upstream.listen(0, '127.0.0.1'), 'listening')
  port = (upstream.address() as AddressInfo).port
})
afterAll(() => {
  proxy.close()
  upstream.close()
  rmSync(directory, { recursive: true, force: true })
})
beforeEach(() => {
  got = ''
})

function opened(): Socket {
  return connect(join(directory, 'proxy'))
    .setEncoding('latin1')
    .on('error', () => undefined)
}

/** Sends text. Resolves with all that the proxy sends until it closes the connection. */
async function said(text: string): Promise<string> {
  const socket = opened()
  let answer = ''
  socket.on('data', part => {
    answer += part
  })
  socket.write(text, 'latin1')
  await once(socket, 'close')
  return answer
}

const fetched = (target = `http://127.0.0.1:${port}/a`) =>
  said(`GET ${target} HTTP/1.1\r\nhost: elsewhere\r\nconnection: close\r\n\r\n`)
const tunnelled = (target: string) => said(`CONNECT ${target} HTTP/1.1\r\nhost: x\r\n\r\n`)

async function goesOn(): Promise<void> {
  reply = 'HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nfine'
  expect(await fetched()).toMatch(/^HTTP\/1\.1 200[\s\S]*fine$/)
}

test.each([
  '1.2.3.4/x',
  '1.2.3.4/99',
  '10.0.0.1/8',
  '/',
  '//',
  'a.invalid',
  ':443',
  '127.0.0.1',
  '127.0.0.1:',
  '127.0.0.1:0',
  '127.0.0.1:99999',
  '127.0.0.1:-1',
  '127.0.0.1:1e3',
  '127.0.0.1:80/x',
  '127.0.0.1:80:80',
  'a@127.0.0.1:80',
  '[::1]',
  '[::1',
  '[]:443',
  '[::/0]:443',
  '[::1%25lo]:443',
  '[127.0.0.1]:443',
  '::1:443',
  'http://127.0.0.1:80',
  '%00:80',
  '\xff\xfe:80',
  '*:80',
  `${'x'.repeat(5000)}:80`,
  `${'x'.repeat(20_000)}:80`,
])('a tunnel to %.24s is refused', async target => {
  expect(await tunnelled(target)).toMatch(/^HTTP\/1\.1 (400|403|431) /)
  await goesOn()
})

test.each([
  ['a.invalid:80', /^HTTP\/1\.1 403 [\s\S]*no address/],
  ['127.0.0.1:1', /^HTTP\/1\.1 502 /],
  ['[::1]:1', /^HTTP\/1\.1 502 /],
])('a tunnel to %s, which is allowed and leads nowhere, is answered', async (target, answer) => {
  expect(await tunnelled(target)).toMatch(answer)
  await goesOn()
})

test('a tunnel carries bytes both ways, those that come with the request too; a client that leaves ends it', async () => {
  reply = undefined
  const socket = opened()
  let answer = ''
  socket.on('data', part => {
    answer += part
    if (answer.endsWith('first')) socket.write('second')
    if (answer.endsWith('second')) socket.end()
  })
  socket.write(`CONNECT 127.0.0.1:${port} HTTP/1.1\r\n\r\nfirst`)
  await once(socket, 'close')
  expect(answer).toMatch(/^HTTP\/1\.1 200 [\s\S]*\r\n\r\nfirstsecond$/)
  for (const head of [`CONNECT 127.0.0.1:${port}`, `GET http://127.0.0.1:${port}/a`]) {
    const gone = opened()
    gone.write(`${head} HTTP/1.1\r\nhost: x\r\n\r\n`, () => gone.destroy())
    await once(gone, 'close')
    await goesOn()
  }
})

test.each([
  '/a',
  '//',
  '*',
  'https://127.0.0.1/',
  'http://',
  'http://[',
  'http://127.0.0.1:99999/',
  'ftp://127.0.0.1/',
])('a request for %s is refused', async target => {
  expect(await fetched(target)).toMatch(/^HTTP\/1\.1 4\d\d /)
  await goesOn()
})

const ok = 'HTTP/1.1 200 OK\r\n'
test.each([
  ['a status below 100', 'HTTP/1.1 042 Low\r\ncontent-length: 0\r\n\r\n', 502],
  ['status 000', 'HTTP/1.1 000 Nothing\r\ncontent-length: 0\r\n\r\n', 502],
  ['a status of four digits', 'HTTP/1.1 1000 High\r\ncontent-length: 0\r\n\r\n', 502],
  ['a header with control characters', `${ok}x-a: \x01\x7f\r\ncontent-length: 0\r\n\r\n`, 502],
  ['a header with a NUL', `${ok}x-a: \0\r\ncontent-length: 0\r\n\r\n`, 502],
  ['a header whose name is no token', `${ok}x a(: 1\r\ncontent-length: 0\r\n\r\n`, 502],
  ['another protocol', 'HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n', 502],
  ['no status line', 'hello\r\n\r\n', 502],
  ['nothing', '', 502],
  ['half of the headers', `${ok}x-a: `, 502],
  ['headers of 100 KB', `${ok}x-a: ${'x'.repeat(100_000)}\r\n\r\n`, 502],
  ['a negative length', `${ok}content-length: -1\r\n\r\n`, 502],
  ['two lengths', `${ok}content-length: 1\r\ncontent-length: 2\r\n\r\nab`, 502],
  ['early hints only', 'HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n', 502],
  ['a body that is cut off', `${ok}content-length: 10\r\n\r\nab`, 200],
  ['chunks that are none', `${ok}transfer-encoding: chunked\r\n\r\nzz\r\n`, undefined],
  ['a body without a length', `${ok}\r\nab`, 200],
  ['a body of a status that has none', 'HTTP/1.1 204 No\r\ncontent-length: 2\r\n\r\nab', 204],
  ['trailers', `${ok}transfer-encoding: chunked\r\ntrailer: x\r\n\r\n0\r\nx: 1\r\n\r\n`, 200],
  ['a status of no meaning', 'HTTP/1.1 999 Odd\r\ncontent-length: 0\r\n\r\n', 999],
])('a server that answers with %s gets the client an answer, or its end', async (_title, text, status) => {
  reply = text
  expect(await fetched()).toMatch(status === undefined ? /^$/ : new RegExp(`^HTTP/1\\.1 ${status} `))
  await goesOn()
})

test('the server behind gets the host that was checked, not the one of the header', async () => {
  await goesOn()
  expect(got).toMatch(new RegExp(`^GET /a HTTP/1\\.1[\\s\\S]*host: 127\\.0\\.0\\.1:${port}\r\n`, 'i'))
  expect(got).not.toContain('elsewhere')
})

const much = 2_000_000
/** Reads nothing for a while, then all. Resolves with the number of bytes when the other side has ended or is gone. */
async function readSlowly(socket: Socket): Promise<number> {
  const ended = new Promise(resolve => socket.once('end', resolve).once('close', resolve))
  socket.pause()
  await sleep(700)
  let bytes = 0
  socket.on('data', part => {
    bytes += part.length
  })
  socket.resume()
  await ended
  return bytes
}

describe('a slow reader gets all of', () => {
  let server: Server
  let serve: (socket: Socket) => void
  let to: string
  beforeAll(async () => {
    server = createServer({ allowHalfOpen: true }, socket => {
      socket.on('error', () => undefined)
      serve(socket)
    })
    await once(server.listen(0, '127.0.0.1'), 'listening')
    to = `127.0.0.1:${(server.address() as AddressInfo).port}`
  })
  afterAll(() => void server.close())

  async function tunnelTo(): Promise<Socket> {
    const socket = connect({ path: join(directory, 'proxy'), allowHalfOpen: true }).on('error', () => undefined)
    socket.write(`CONNECT ${to} HTTP/1.1\r\n\r\n`)
    expect(String((await once(socket, 'data'))[0])).toMatch(/^HTTP\/1\.1 200 [^\n]*\r\n\r\n$/)
    return socket
  }

  // How much waits in the proxy's own buffers depends on the system's, so many sizes are tried.
  const sizes = Array.from({ length: 24 }, (_, n) => 60_000 + n * 20_000)
  test('a download through a tunnel, whose server then closes', async () => {
    serve = socket => socket.once('data', part => socket.end(Buffer.alloc(Number(part))))
    const read = sizes.map(async bytes => {
      const socket = await tunnelTo()
      socket.write(String(bytes))
      const got = await readSlowly(socket)
      socket.destroy()
      return got
    })
    expect(await Promise.all(read)).toEqual(sizes)
  })

  test('an upload through a tunnel, whose server has ended its side', async () => {
    const wanted = [300_000, 1_000_000, 3_000_000]
    const read: Promise<number>[] = []
    serve = socket => void read.push(readSlowly(socket.end('done')))
    for (const bytes of wanted) {
      const socket = connect({ path: join(directory, 'proxy'), allowHalfOpen: true })
        .on('error', () => undefined)
        .resume()
      socket.write(`CONNECT ${to} HTTP/1.1\r\n\r\n`)
      socket.once('end', () => socket.end()).write(Buffer.alloc(bytes))
    }
    await until(() => read.length === wanted.length)
    expect((await Promise.all(read)).sort((a, b) => a - b)).toEqual(wanted)
  })

  test('an answer after the client of a tunnel has ended its side', async () => {
    serve = socket => socket.resume().once('end', () => socket.end('answer'))
    const socket = await tunnelTo()
    socket.end('question')
    expect(String((await once(socket, 'data'))[0])).toBe('answer')
  })

  const head = (length: number) => `HTTP/1.1 200 OK\r\ncontent-length: ${length}\r\nconnection: close\r\n\r\n`
  const slowGet = async (request: string) => {
    const socket = connect({ path: join(directory, 'proxy'), allowHalfOpen: true }).on('error', () => undefined)
    socket.write(request)
    let answer = ''
    socket.once('readable', () => {
      answer = String(socket.read())
    })
    await once(socket, 'readable')
    return answer.length - (answer.indexOf('\r\n\r\n') + 4) + (await readSlowly(socket))
  }

  test.each([350_000, much])('a download of %d bytes over plain HTTP', async bytes => {
    serve = socket =>
      socket.once('data', () => socket.end(Buffer.concat([Buffer.from(head(bytes)), Buffer.alloc(bytes)])))
    expect(await slowGet(`GET http://${to}/ HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n`)).toBe(bytes)
  })

  test('an upload over plain HTTP', async () => {
    const read = new Promise<number>(resolve => {
      serve = socket =>
        socket.once('data', part => {
          let bytes = part.length - (part.indexOf('\r\n\r\n') + 4)
          socket.pause().on('data', more => {
            bytes += more.length
            if (bytes === much) socket.end('HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok')
          })
          socket.once('end', () => resolve(bytes))
          setTimeout(() => socket.resume(), 700)
        })
    })
    const upload = `content-length: ${much}\r\nconnection: close\r\n\r\n${' '.repeat(much)}`
    expect(await said(`POST http://${to}/ HTTP/1.1\r\nhost: x\r\n${upload}`)).toMatch(/ok$/)
    expect(await read).toBe(much)
  })
})
