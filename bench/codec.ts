/**
 * Compares the codec with bare msgpackr: messages to records and back, on a turn of 512 tokens and on small facts.
 *
 * The bare arm packs the same objects with their arrays already converted to bytes, and unpacks to views of those
 * bytes, from which no numbers can be read. The codec copies them into arrays, checks every field both ways and writes
 * key, topic and headers. Rounds alternate; the median of the rounds' ratios (bare time / codec time) is held to the
 * budget. The report also has `turnDecodeShareOfArrays`: the ratio for decoding a turn when the bare arm copies its
 * arrays too.
 */
import { Packr } from 'msgpackr'
import {
  decode,
  encode,
  engineId,
  epoch,
  executorId,
  groupId,
  type Message,
  policyVersion,
  runId,
  trajectoryId,
} from '../messages'
import { atLeast, type BenchReport, describeMachine, median, printReport } from './report'

const rounds = 600
const warmUpRounds = 60
const callsPerRound = 100
const tokens = 512

const run = runId('bench-run')
const trajectory = trajectoryId(groupId('s12-g3'), 7)
const at = 1_732_200_000_000

const turn: Message = {
  type: 'turn.completed',
  at,
  trajectory,
  turn: 2,
  attempt: 0,
  engine: engineId('engine-0'),
  tokens: Int32Array.from({ length: tokens }, (_, i) => (i * 7919) % 49_152),
  logprobs: Float32Array.from({ length: tokens }, (_, i) => -i / 99),
  text: '<think>\nSum the squares, then divide.\n</think>\n'.repeat(44),
  finish: 'stop',
  segments: [{ policyVersion: policyVersion(3), start: 0, end: tokens }],
  cachedTokens: 812,
  preemptions: 0,
  timing: { queuedAt: at + 0.25, startedAt: at + 1.5, firstTokenAt: at + 30.75, endedAt: at + 4210.5 },
}

/** Small facts that training writes beside turns. */
const small: readonly Message[] = [
  {
    type: 'turn.asked',
    at,
    trajectory,
    turn: 1,
    attempt: 0,
    epoch: epoch(12),
    engine: engineId('engine-0'),
    seed: 123_456_789,
    sampling: { temperature: 1, topP: 1, topK: 0, minP: 0, stopTokens: [2, 0] },
    maxTokens: 512,
    contextTokens: 1234,
    contextDigest: '9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08',
  },
  {
    type: 'tool.asked',
    at,
    trajectory,
    turn: 1,
    call: 0,
    attempt: 0,
    epoch: epoch(12),
    tool: 'execute_python_code_with_standard_io',
    arguments: { code: 'print(sum(n * n for n in range(100)))', input: '' },
  },
  {
    type: 'tool.completed',
    at,
    trajectory,
    turn: 1,
    call: 0,
    attempt: 0,
    tool: 'execute_python_code_with_standard_io',
    status: 'ok',
    text: '328350',
    stdout: '328350\n',
    stderr: '',
    exitCode: 0,
    wallMs: 12.5,
    cpuMs: 10.25,
    executor: executorId('executor-0'),
  },
  {
    type: 'group.rejected',
    at,
    group: groupId('s12-g3'),
    epoch: epoch(12),
    step: 12,
    reason: 'equal-rewards',
    rewarded: 16,
    meanReward: 1,
  },
  { type: 'reward.assigned', at, trajectory, attempt: 0, reward: 1, answer: '328350', how: 'integer' },
]

interface Figures {
  readonly oursNs: number
  readonly bareNs: number
  /** Median over the rounds of (bare time / codec time). */
  readonly share: number
}

let sink = 0

/** Nanoseconds per call. Each call gets its own input, made before the clock starts. */
function timed<T>(make: (i: number) => T, act: (input: T) => number, calls: number): number {
  const inputs = Array.from({ length: calls }, (_, i) => make(i))
  const start = performance.now()
  for (let i = 0; i < calls; i++) sink += act(inputs[i]!)
  return ((performance.now() - start) / calls) * 1e6
}

interface Arm<T> {
  readonly make: (i: number) => T
  readonly act: (input: T) => number
}

function compare<A, B>(ours: Arm<A>, bare: Arm<B>): Figures {
  const run = <T>({ make, act }: Arm<T>, calls: number) => timed(make, act, calls)
  const pairs: { readonly ours: number; readonly bare: number }[] = []
  for (let i = 0; i < warmUpRounds + rounds; i++) {
    const first = i % 2 === 0 ? run(ours, callsPerRound) : undefined
    const other = run(bare, callsPerRound)
    pairs.push({ ours: first ?? run(ours, callsPerRound), bare: other })
  }
  const kept = pairs.slice(warmUpRounds)
  return {
    oursNs: median(kept.map(pair => pair.ours)),
    bareNs: median(kept.map(pair => pair.bare)),
    share: median(kept.map(pair => pair.bare / pair.ours)),
  }
}

const bytesOf = (array: Int32Array | Float32Array) => Buffer.from(array.buffer, array.byteOffset, array.byteLength)

/** Copies bytes, which may begin at any offset of a larger buffer, into an ArrayBuffer of their own. */
const copied = (bytes: Uint8Array): ArrayBuffer => new Uint8Array(bytes).buffer

function measure(messages: readonly Message[]): Readonly<Record<'encode' | 'decode' | 'decodeToViews', Figures>> {
  const packr = new Packr({ useRecords: false })
  const bare = messages.map(message =>
    message.type === 'turn.completed'
      ? { ...message, tokens: bytesOf(message.tokens), logprobs: bytesOf(message.logprobs) }
      : message,
  )
  const records = messages.map(message => encode(message, { run }))
  const packed = bare.map(message => packr.pack(message))
  const nth = <T>(items: readonly T[], i: number): T => items[i % items.length]!
  // Copies the record for each call: a bus returns each record once, in its own bytes.
  const fresh = (i: number): Uint8Array => Uint8Array.from(nth(packed, i))
  const decoding: Arm<{ readonly headers: Readonly<Record<string, string>>; readonly value: Uint8Array }> = {
    make: i => ({ headers: nth(records, i).headers, value: Uint8Array.from(nth(records, i).value) }),
    act: record => decode(record).type.length,
  }
  return {
    encode: compare(
      { make: i => nth(messages, i), act: message => encode(message, { run }).value.byteLength },
      { make: i => nth(bare, i), act: message => packr.pack(message).byteLength },
    ),
    decode: compare(decoding, {
      make: fresh,
      act: value => {
        const message = packr.unpack(value)
        if (message.tokens) message.tokens = new Int32Array(copied(message.tokens))
        if (message.logprobs) message.logprobs = new Float32Array(copied(message.logprobs))
        return (message as Message).type.length
      },
    }),
    decodeToViews: compare(decoding, { make: fresh, act: value => (packr.unpack(value) as Message).type.length }),
  }
}

export async function bench(): Promise<BenchReport> {
  const large = measure([turn])
  const facts = measure(small)
  if (sink === 0) throw new Error('the benchmark measured nothing: no message was encoded or decoded')
  return {
    bench: 'codec',
    machine: describeMachine(),
    metrics: {
      turnBytes: encode(turn, { run }).value.byteLength,
      turnEncodeNs: large.encode.oursNs,
      turnPackNs: large.encode.bareNs,
      turnDecodeNs: large.decode.oursNs,
      turnUnpackNs: large.decode.bareNs,
      turnUnpackToViewsNs: large.decodeToViews.bareNs,
      turnDecodeShareOfArrays: large.decode.share,
      smallEncodeNs: facts.encode.oursNs,
      smallPackNs: facts.encode.bareNs,
      smallDecodeNs: facts.decodeToViews.oursNs,
      smallUnpackNs: facts.decodeToViews.bareNs,
    },
    budgets: [
      atLeast('encode a turn, share of bare msgpackr', large.encode.share, 0.8),
      atLeast('decode a turn, share of bare msgpackr', large.decodeToViews.share, 0.8),
      atLeast('encode small facts, share of bare msgpackr', facts.encode.share, 0.8),
      atLeast('decode small facts, share of bare msgpackr', facts.decodeToViews.share, 0.8),
    ],
  }
}

if (require.main === module) {
  void bench().then(report => {
    process.exitCode = printReport(report, process.argv.includes('--json'))
  })
}
