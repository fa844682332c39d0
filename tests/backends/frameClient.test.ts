/** Calls over frames end once: by their answer, their refusal, their deadline, or the end of the connection. */
import { mkdtempSync, rmSync } from 'node:fs'
import { createServer, type Server, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { connectFrames } from '../../backends/frameClient'
import { methodsOf, type UnaryClient } from '../../backends/policyClient'

const { DecodeList } = methodsOf('render')
const never = new Promise<Error>(() => {})

interface Frame {
  readonly call: number
  readonly name: string
  readonly request: Buffer
}

/** A server that hands over each frame, and a client of it. */
async function served(onFrame: (frame: Frame, socket: Socket) => void, ended: Promise<Error> = never) {
  const folder = mkdtempSync(join(tmpdir(), 'troupe-frames-'))
  const server: Server = createServer(socket => {
    let data = Buffer.alloc(0)
    socket.on('error', () => {})
    socket.on('data', piece => {
      data = Buffer.concat([data, piece])
      while (data.length >= 4 && data.length >= 4 + data.readUInt32LE(0)) {
        const frame = data.subarray(4, 4 + data.readUInt32LE(0))
        data = data.subarray(4 + frame.length)
        const begin = 5 + frame[4]!
        onFrame(
          { call: frame.readUInt32LE(0), name: frame.toString('latin1', 5, begin), request: frame.subarray(begin) },
          socket,
        )
      }
    })
  })
  await new Promise<void>(resolve => server.listen(join(folder, 's'), resolve))
  const client = connectFrames('render', `unix:${join(folder, 's')}`, ended)
  return {
    client,
    close: async () => {
      client.close()
      await new Promise(resolve => server.close(resolve))
      rmSync(folder, { recursive: true, force: true })
    },
  }
}

function answer(call: number, message: Buffer, status = 0): Buffer {
  const head = Buffer.alloc(9)
  head.writeUInt32LE(5 + message.length, 0)
  head.writeUInt32LE(call, 4)
  head[8] = status
  return Buffer.concat([head, message])
}
const texts = (...of: string[]) => DecodeList!.responseSerialize({ texts: of })
const decode = (client: UnaryClient, timeoutMs = 10_000) =>
  client.unary<{ texts: string[] }>('DecodeList', { items: [Buffer.alloc(8)] }, timeoutMs)

test('answers reach their calls in any order, and however the stream of bytes is cut', async () => {
  const asked: Frame[] = []
  const { client, close } = await served((frame, socket) => {
    asked.push(frame)
    if (asked.length < 3) return
    const bytes = Buffer.concat(asked.reverse().map(({ call }) => answer(call, texts(`text ${call}`))))
    let at = 0
    const drip = () => {
      socket.write(bytes.subarray(at, at + 3))
      at += 3
      if (at < bytes.length) setImmediate(drip)
    }
    drip()
  })
  try {
    const replies = await Promise.all([decode(client), decode(client), decode(client)])
    expect(replies.map(({ texts }) => texts)).toEqual([['text 0'], ['text 1'], ['text 2']])
    expect(asked.map(({ name }) => name)).toEqual(['DecodeList', 'DecodeList', 'DecodeList'])
  } finally {
    await close()
  }
})

test('a refusal is an error with its reason, and the connection goes on', async () => {
  const { client, close } = await served(({ call }, socket) =>
    socket.write(call === 0 ? answer(call, Buffer.from('no such token'), 1) : answer(call, texts('a'))),
  )
  try {
    const refused = { code: 'codec.failed', retriable: false, message: expect.stringContaining('no such token') }
    await expect(decode(client)).rejects.toMatchObject(refused)
    await expect(decode(client)).resolves.toEqual({ texts: ['a'] })
  } finally {
    await close()
  }
})

test('a late call is cancelled at the process, and its late answer reaches nobody', async () => {
  const frames: Frame[] = []
  const { client, close } = await served((frame, socket) => {
    frames.push(frame)
    if (frame.call === 0 && frame.name === '') socket.write(answer(0, texts('late')))
    if (frame.call === 1) socket.write(answer(1, texts('in time')))
  })
  try {
    await expect(decode(client, 50)).rejects.toMatchObject({ code: 'codec.timeout', retriable: true })
    await expect(decode(client)).resolves.toEqual({ texts: ['in time'] })
    expect(frames.map(({ call, name }) => [call, name])).toEqual([
      [0, 'DecodeList'],
      [0, ''],
      [1, 'DecodeList'],
    ])
  } finally {
    await close()
  }
})

test('calls that wait when the process dies, and later ones, fail with the reason of its end or as lost', async () => {
  const reason = new Error('the render process was ended by SIGKILL')
  let die = (_reason: Error) => {}
  const ended = new Promise<Error>(resolve => {
    die = resolve
  })
  const { client, close } = await served((_, socket) => {
    socket.destroy()
    setTimeout(() => die(reason), 20)
  }, ended)
  try {
    await expect(Promise.all([decode(client), decode(client)])).rejects.toBe(reason)
    await expect(decode(client)).rejects.toMatchObject({ code: 'codec.lost', retriable: true })
  } finally {
    await close()
  }
})

test('a call to a socket that nobody serves is an error to be tried again', async () => {
  const client = connectFrames('render', 'unix:/nonexistent/socket', never)
  await expect(decode(client)).rejects.toMatchObject({ code: 'codec.lost', retriable: true })
  client.close()
})

test('a call that waits when its client is closed fails, and one that begins later too', async () => {
  const { client, close } = await served(() => {})
  const waits = decode(client)
  const failed = expect(waits).rejects.toMatchObject({ code: 'codec.lost', retriable: true })
  client.close()
  await failed
  await expect(decode(client)).rejects.toMatchObject({ message: expect.stringContaining('shut down') })
  await close()
})
