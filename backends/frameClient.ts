/**
 * A client of a service of policy.proto whose calls are short and many, over frames instead of gRPC: a call takes a
 * tenth of the CPU time. `policy/troupe_policy/frames.py` describes the frames and serves them.
 *
 * in   the process's service, its socket, the promise of its end
 * out  calls by method name, whose errors are TroupeErrors, as those of `connectPolicy`
 * Invariant: each call ends once, by its answer, its deadline, or the end of the connection. A call that is late is
 * cancelled: the process does not carry it out if it has not begun. Calls that wait keep the process alive, an idle
 * connection does not.
 */
import { connect } from 'node:net'
import { afterAwake } from '../runtime/awakeTimer'
import { TroupeError } from '../runtime/errors'
import { boundaries, maxMessageBytes, methodsOf, type PolicyService, timedOut, type UnaryClient } from './policyClient'

interface Waiting {
  readonly answered: (message: Buffer) => void
  readonly refused: (reason: string) => void
  readonly lost: () => void
}

const headBytes = 9
/** Time in ms to wait, after the connection broke, for the reason of the process's end. */
const reasonMs = 500

/** Connects to `socket`, an address such as `unix:/run/socket` at which the process serves already. */
export function connectFrames(service: PolicyService, socket: string, ended: Promise<Error>): UnaryClient {
  const boundary = boundaries[service]
  const methods = methodsOf(service)
  const waiting = new Map<number, Waiting>()
  const connection = connect(socket.replace(/^unix:/, '')).unref()
  let calls = 0
  let why: string | undefined

  connection.on('data', framesOf(take))
  connection.on('error', () => {}) // 'close' follows
  connection.once('close', () => {
    why ??= 'the connection was closed'
    for (const one of waiting.values()) one.lost()
  })

  function take(frame: Buffer): void {
    const one = waiting.get(frame.readUInt32LE(0))
    const message = frame.subarray(5)
    if (frame[4] === 0) one?.answered(message)
    else one?.refused(message.toString('utf8'))
  }

  function send(call: number, name: string, message: Uint8Array): void {
    const begin = headBytes + name.length
    const frame = Buffer.allocUnsafe(begin + message.length)
    frame.writeUInt32LE(frame.length - 4, 0)
    frame.writeUInt32LE(call, 4)
    frame[8] = name.length
    frame.write(name, headBytes, 'latin1')
    frame.set(message, begin)
    connection.write(frame)
  }

  const error = (code: 'lost' | 'failed', method: string, reason: string) =>
    new TroupeError(`${boundary}.${code}`, { boundary, retriable: code === 'lost', message: `${method}: ${reason}` })

  return {
    unary<Reply>(method: string, request: object, timeoutMs: number): Promise<Reply> {
      return new Promise((resolve, reject) => {
        const { requestSerialize, responseDeserialize } = methods[method]!
        if (why !== undefined) return reject(error('lost', method, why))
        const message = requestSerialize(request)
        if (message.length > maxMessageBytes) {
          const bytes = `the request has ${message.length} bytes, expected at most ${maxMessageBytes}`
          return reject(error('failed', method, bytes))
        }
        const call = calls++ % 2 ** 32
        const end = () => {
          cancelTimer()
          waiting.delete(call)
          if (waiting.size === 0) connection.unref()
        }
        const cancelTimer = afterAwake(timeoutMs, () => {
          end()
          send(call, '', Buffer.alloc(0))
          reject(timedOut(method, timeoutMs, boundary))
        })
        if (waiting.size === 0) connection.ref()
        waiting.set(call, {
          answered(reply) {
            end()
            resolve(responseDeserialize(reply) as Reply)
          },
          refused(reason) {
            end()
            reject(error('failed', method, reason))
          },
          // A process that died gives its reason on stderr, which arrives a moment after the connection breaks.
          lost() {
            end()
            const wait = new Promise<undefined>(done => setTimeout(done, reasonMs, undefined))
            void Promise.race([ended, wait]).then(reason => reject(reason ?? error('lost', method, why!)))
          },
        })
        send(call, method, message)
      })
    },
    close() {
      why ??= 'the client was shut down'
      connection.destroy()
    },
  }
}

/** Returns a reader of pieces of a stream that calls `take` with each frame, without its length. */
function framesOf(take: (frame: Buffer) => void): (piece: Buffer) => void {
  let pieces: Buffer[] = []
  let bytes = 0
  let wanted = 4
  return piece => {
    pieces.push(piece)
    bytes += piece.length
    if (bytes < wanted) return
    const data = pieces.length === 1 ? piece : Buffer.concat(pieces)
    let at = 0
    for (;;) {
      wanted = data.length - at < 4 ? 4 : 4 + data.readUInt32LE(at)
      if (data.length - at < wanted) break
      take(data.subarray(at + 4, at + wanted))
      at += wanted
    }
    pieces = at < data.length ? [data.subarray(at)] : []
    bytes = data.length - at
  }
}
