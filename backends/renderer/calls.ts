/**
 * Calls of the renderer's process, all on one stream of gRPC: a call takes half the time of one with a stream of its
 * own. Callers bound how many wait at once, so nobody waits for the stream to drain.
 *
 * in   the process's client, the promise of its end
 * out  calls by the name of their request in RenderCall (policy.proto), in camelCase; their errors are TroupeErrors
 * Invariant: each call ends once: by its answer, its deadline, or the end of the stream. A call that is too large is
 * refused before it is sent, since gRPC would end the stream with all other calls. A call that is late is cancelled:
 * the process does not carry it out if it has not begun. If the stream breaks while the process lives, the next call
 * opens another.
 */
import type { ClientDuplexStream, ServiceError } from '@grpc/grpc-js'
import { afterAwake } from '../../runtime/awakeTimer'
import { TroupeError } from '../../runtime/errors'
import { failureOf, maxMessageBytes, type PolicyClient, timedOut } from '../policyClient'

interface Call {
  readonly number: number
  readonly [request: string]: unknown
}

/** `answer` names the field that holds the answer. If it names `refused`, that field holds why the call was refused. */
interface Answer {
  readonly number: number
  readonly answer: string
  readonly [answer: string]: unknown
}

interface Waiting {
  readonly name: string
  readonly answered: (answer: Answer) => void
  readonly failed: (error: Error) => void
}

/** Upper bound on a request's texts and arrays, in bytes. The other 16 MiB are for the lengths and names of gRPC. */
const mostBytes = maxMessageBytes - 16 * 1024 * 1024

export interface Calls {
  /**
   * Makes a call. @throws TroupeError render.refused with the process's reason, or if the request is too large;
   * codec.timeout (retriable) after `timeoutMs`; codec.lost (retriable) if the stream broke; the reason of `lost` if
   * the process has ended
   */
  call<Reply>(name: string, request: object, timeoutMs: number): Promise<Reply>
  /** Ends the stream: calls that wait fail as lost. */
  close(): void
}

export function openCalls(client: PolicyClient, lost: Promise<Error>): Calls {
  const waiting = new Map<number, Waiting>()
  let stream: ClientDuplexStream<Call, Answer> | undefined
  let calls = 0

  function open(): ClientDuplexStream<Call, Answer> {
    const opened = client.stream<Call, Answer>('Calls')
    const broke = (why: (name: string) => Error | Promise<Error>) => {
      if (stream !== opened) return
      stream = undefined
      const all = [...waiting.values()]
      waiting.clear()
      for (const { name, failed } of all) void Promise.resolve(why(name)).then(failed)
    }
    opened.on('data', (answer: Answer) => {
      const one = waiting.get(answer.number)
      waiting.delete(answer.number)
      one?.answered(answer)
    })
    opened.on('error', (error: ServiceError) => broke(name => failureOf(error, name, 'codec', lost)))
    opened.on('end', () => broke(name => lostError(name, 'the process ended the stream')))
    return opened
  }

  return {
    call<Reply>(name: string, request: object, timeoutMs: number): Promise<Reply> {
      return new Promise((resolve, reject) => {
        const bytes = bytesIn(request)
        if (bytes > mostBytes)
          return reject(refusal(`${name}: the request has ${bytes} bytes, at most ${mostBytes} can be sent`))
        stream ??= open()
        const number = calls++ % 2 ** 32
        const cancelTimer = afterAwake(timeoutMs, () => {
          waiting.delete(number)
          stream?.write({ number })
          reject(timedOut(name, timeoutMs, 'codec'))
        })
        waiting.set(number, {
          name,
          answered({ answer, ...fields }) {
            cancelTimer()
            if (answer === 'refused') reject(refusal(`${name}: ${fields.refused}`))
            else resolve(fields[answer] as Reply)
          },
          failed(error) {
            cancelTimer()
            reject(error)
          },
        })
        stream.write({ number, [name]: request })
      })
    },
    close: () => stream?.cancel(),
  }
}

/** Bytes of the texts and arrays of a request. */
function bytesIn(value: unknown): number {
  if (typeof value === 'string') return Buffer.byteLength(value)
  if (value instanceof Uint8Array) return value.length
  if (typeof value !== 'object' || value === null) return 0
  return Object.values(value).reduce((sum: number, part) => sum + bytesIn(part), 0)
}

const refusal = (message: string) => new TroupeError('render.refused', { boundary: 'codec', retriable: false, message })

const lostError = (name: string, why: string) =>
  new TroupeError('codec.lost', { boundary: 'codec', retriable: true, message: `${name}: ${why}` })
