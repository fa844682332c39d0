/**
 * Encodes and decodes the frames between the pool and a zygote (a warm interpreter that forks a child for each call): a
 * head of 32-bit little-endian numbers, then bytes. The layouts are those of struct request and struct reply in
 * shim/state.h.
 *
 * in   calls; whole frames from a zygote      out  frames for a zygote; replies
 * Invariant: the first number of a frame is its length in bytes, head included.
 */
import type { Call } from '../limits'
import type { RunEnding } from '../sandbox'
import { endingOf } from '../waitStatus'

const ASK = { head: 56, run: 1, stop: 2, drop: 3, ping: 4 } as const
const FLAGS = { cell: 1, processes: 2, session: 4, urgent: 8 } as const
const HEAD_BYTES = 72
const KINDS = { 1: 'ready', 2: 'begun', 3: 'done', 4: 'failed', 5: 'pong' } as const

/**
 * Reply of a zygote. ready: it serves. begun: a call's code has begun. done: a call has ended. failed: a call could not
 * begin. pong: heartbeat. `id` is the call's number in the pool (not in `ready`); `pid` is the zygote's, in `ready`
 * only.
 */
export type Reply =
  | { readonly kind: 'ready' | 'begun' | 'pong'; readonly id: number; readonly pid: number }
  | { readonly kind: 'failed'; readonly id: number; readonly error: number }
  | ({ readonly kind: 'done'; readonly id: number } & Ending)

export interface Ending extends RunEnding {
  /** true: the cell's process is paused, so that the next cell can fork from it. */
  readonly paused: boolean
  /**
   * true: the cell left files, open descriptors or shared memory. A fork of an earlier cell would see later changes in
   * them.
   */
  readonly files: boolean
  /**
   * Memory of the paused process in bytes. stateBytes: memory that no earlier state of the session holds as well.
   * heldBytes: all memory that it has and the zygote does not; it holds this alone once the earlier states are gone.
   */
  readonly stateBytes: number
  readonly heldBytes: number
}

export interface Place {
  /** Key of the state that the cell leaves; `parent` is the key of the state that it forks from. 0 means no state. */
  readonly state: number
  readonly parent: number
  /** Seed of the cell's random numbers; 0 means the kernel's randomness. */
  readonly seed: bigint
}

/**
 * Encodes a call. @param urgent true: the call begins before waiting calls, and may begin while so many long calls run
 * that other calls have to wait
 */
export function runFrame(id: number, call: Call, place?: Place, urgent = false): Buffer {
  const frame = Buffer.allocUnsafe(ASK.head + call.code.length + call.stdin.length)
  let flags = call.mode === 'cell' ? FLAGS.cell : 0
  if (call.maxProcesses > 0) flags |= FLAGS.processes
  if (place) flags |= FLAGS.session
  if (urgent) flags |= FLAGS.urgent
  const seed = place?.seed ?? 0n
  const numbers = [
    frame.length,
    ASK.run,
    id,
    flags,
    call.timeoutMs,
    call.maxProcesses,
    call.memoryBytes / 2 ** 20,
    call.maxOutputBytes,
    place?.state ?? 0,
    place?.parent ?? 0,
    Number(seed & 0xffffffffn),
    Number(seed >> 32n),
    call.code.length,
    call.stdin.length,
  ]
  numbers.forEach((number, at) => {
    frame.writeUInt32LE(number, 4 * at)
  })
  frame.set(call.code, ASK.head)
  frame.set(call.stdin, ASK.head + call.code.length)
  return frame
}

/** Encodes a frame without a call. @param number for stop, a call's number; for drop, a state's key */
export function controlFrame(kind: 'stop' | 'drop' | 'ping', number = 0): Buffer {
  const frame = Buffer.alloc(ASK.head)
  frame.writeUInt32LE(ASK.head, 0)
  frame.writeUInt32LE(ASK[kind], 4)
  frame.writeUInt32LE(number, kind === 'drop' ? 32 : 8)
  return frame
}

/** Decodes the replies in a piece that holds whole frames. */
export function* replies(piece: Uint8Array): Generator<Reply> {
  const bytes = Buffer.from(piece.buffer, piece.byteOffset, piece.byteLength)
  for (let at = 0; at < bytes.length; at += bytes.readUInt32LE(at)) yield reply(bytes, at)
}

function reply(bytes: Buffer, at: number): Reply {
  const number = (index: number) => bytes.readUInt32LE(at + 4 * index)
  const kind = KINDS[number(1) as keyof typeof KINDS]
  const id = number(2)
  if (kind === 'failed') return { kind, id, error: number(15) }
  if (kind !== 'done') return { kind, id, pid: number(3) }
  const outEnd = at + HEAD_BYTES + number(8)
  const kept = number(12)
  return {
    kind,
    id,
    ...endingOf(number(3), number(4) !== 0),
    // The streams are copied: a slice would keep the whole piece, with the output of other calls, in memory.
    stdout: new Uint8Array(bytes.subarray(at + HEAD_BYTES, outEnd)),
    stderr: new Uint8Array(bytes.subarray(outEnd, outEnd + number(9))),
    stdoutBytes: number(10) + number(16) * 2 ** 32,
    stderrBytes: number(11) + number(17) * 2 ** 32,
    wallMs: number(5) / 1000,
    cpuMs: number(6) / 1000,
    maxRssBytes: number(7) * 1024,
    paused: (kept & 1) !== 0,
    files: (kept & 2) !== 0,
    stateBytes: number(13) * 1024,
    heldBytes: number(14) * 1024,
  }
}
