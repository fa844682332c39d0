/** Calls on the renderer's stream end once: by their answer, their refusal, their deadline, or the end of the stream. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import * as grpc from '@grpc/grpc-js'
import { loadSync } from '@grpc/proto-loader'
import { connectPolicy } from '../../../backends/policyClient'
import { type Calls, openCalls } from '../../../backends/renderer/calls'
import { policyDirectory } from '../../../runtime/python'

interface Call {
  readonly number: number
  /** Name of the field that holds the request; undefined: the call is cancelled. */
  readonly request?: string
}
type Stream = grpc.ServerDuplexStream<Call, object>

const definition = loadSync(join(policyDirectory(), 'proto/policy.proto'), { oneofs: true })
const { policy } = grpc.loadPackageDefinition(definition).troupe as unknown as {
  policy: { Render: grpc.ServiceClientConstructor }
}
const never = new Promise<Error>(() => {})

/** A server that hands over each call, and calls to it. */
async function served(onCall: (call: Call, stream: Stream) => void, lost: Promise<Error> = never) {
  const folder = mkdtempSync(join(tmpdir(), 'troupe-calls-'))
  const socket = `unix:${join(folder, 's')}`
  const server = new grpc.Server()
  server.addService(policy.Render.service, {
    Calls(stream: Stream) {
      stream.on('data', call => onCall(call, stream))
      stream.on('end', () => stream.end())
    },
  })
  await new Promise<void>((resolve, reject) =>
    server.bindAsync(socket, grpc.ServerCredentials.createInsecure(), error => (error ? reject(error) : resolve())),
  )
  const client = connectPolicy('render', socket, lost)
  const calls = openCalls(client, lost)
  return {
    calls,
    server,
    close: () => {
      calls.close()
      client.close()
      server.forceShutdown()
      rmSync(folder, { recursive: true, force: true })
    },
  }
}

const texts = (number: number, ...of: string[]) => ({ number, decodeList: { texts: of } })
const decode = (calls: Calls, timeoutMs = 10_000) =>
  calls.call<{ texts: string[] }>('decodeList', { items: [Buffer.alloc(8)] }, timeoutMs)

test('answers reach their calls in any order', async () => {
  const asked: Call[] = []
  const { calls, close } = await served((call, stream) => {
    asked.push(call)
    if (asked.length === 3) for (const { number } of asked.reverse()) stream.write(texts(number, `text ${number}`))
  })
  try {
    const replies = await Promise.all([decode(calls), decode(calls), decode(calls)])
    expect(replies.map(({ texts }) => texts)).toEqual([['text 0'], ['text 1'], ['text 2']])
    expect(asked.map(({ request }) => request)).toEqual(['decodeList', 'decodeList', 'decodeList'])
  } finally {
    close()
  }
})

test('a refusal is an error with its reason, and the stream goes on', async () => {
  const { calls, close } = await served(({ number }, stream) =>
    stream.write(number === 0 ? { number, refused: 'no such token' } : texts(number, 'a')),
  )
  try {
    const refused = { code: 'render.refused', retriable: false, message: 'decodeList: no such token' }
    await expect(decode(calls)).rejects.toMatchObject(refused)
    await expect(decode(calls)).resolves.toEqual({ texts: ['a'] })
  } finally {
    close()
  }
})

test('a late call is cancelled at the process, and its late answer reaches nobody', async () => {
  const seen: Call[] = []
  const { calls, close } = await served((call, stream) => {
    seen.push(call)
    if (call.request === undefined) stream.write(texts(0, 'late'))
    if (call.number === 1) stream.write(texts(1, 'in time'))
  })
  try {
    await expect(decode(calls, 50)).rejects.toMatchObject({ code: 'codec.timeout', retriable: true })
    await expect(decode(calls)).resolves.toEqual({ texts: ['in time'] })
    expect(seen.map(({ number, request }) => [number, request])).toEqual([
      [0, 'decodeList'],
      [0, undefined],
      [1, 'decodeList'],
    ])
  } finally {
    close()
  }
})

test('calls that wait when the process dies fail with the reason of its end', async () => {
  const reason = new Error('the render process was ended by SIGKILL')
  let die = (_reason: Error) => {}
  const lost = new Promise<Error>(resolve => {
    die = resolve
  })
  const { calls, server, close } = await served(() => {
    server.forceShutdown()
    setTimeout(() => die(reason), 20)
  }, lost)
  try {
    const ends = await Promise.allSettled([decode(calls), decode(calls)])
    for (const end of ends) expect(end).toEqual({ status: 'rejected', reason })
  } finally {
    close()
  }
})

test.each([
  ['ends', (stream: Stream) => stream.end()],
  ['breaks', (stream: Stream) => stream.emit('error', { code: grpc.status.ABORTED, details: 'broken' })],
])('after a stream that %s, the next call opens another', async (_, end) => {
  let streams = 0
  const { calls, close } = await served(({ number }, stream) => {
    if (streams++ === 0) end(stream)
    else stream.write(texts(number, 'again'))
  })
  try {
    await expect(decode(calls)).rejects.toMatchObject({ code: expect.stringMatching(/^codec\.(lost|failed)$/) })
    await expect(decode(calls)).resolves.toEqual({ texts: ['again'] })
  } finally {
    close()
  }
})

test('a message above the bound is refused, and later calls are answered', async () => {
  const { calls, close } = await served(({ number }, stream) => stream.write(texts(number, 'small')))
  try {
    const large = calls.call('decodeList', { items: [Buffer.alloc(257 * 1024 * 1024)] }, 60_000)
    await expect(large).rejects.toMatchObject({ code: 'render.refused', retriable: false })
    await expect(decode(calls)).resolves.toEqual({ texts: ['small'] })
  } finally {
    close()
  }
}, 60_000)

test('a call that waits when the stream is closed fails', async () => {
  const { calls, close } = await served(() => {})
  const waits = expect(decode(calls)).rejects.toMatchObject({ code: 'codec.lost', retriable: true })
  close()
  await waits
})
