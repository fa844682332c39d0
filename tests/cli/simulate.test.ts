/** `troupe simulate` as a user runs it: its figures, its table, and how it refuses files that are not what they should be. */
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { readEngineModel } from '../../backends/engines/simulated/engineModelFile'
import { parseAzureTrace } from '../../cli/simulate/azureTrace'
import { readTrace } from '../../cli/simulate/inputs'
import { readLoad, sizesOf } from '../../cli/simulate/recorded'
import type { Fact } from '../../messages/facts'
import { engineId, epoch, groupId, runId, trajectoryId } from '../../messages/ids'
import { memoryBlobs } from '../../runtime/bus/blobs'
import { openMemoryBus } from '../../runtime/bus/memory/memoryBus'
import { openBus } from '../../runtime/bus/open'
import { openJournal } from '../../runtime/journal/openJournal'
import { runDirectory } from '../../runtime/runDirectory'
import { troupe } from '../support/cli'
import { completed, requested } from '../support/facts'
import { failure } from '../support/refusal'
import { troupeHere } from '../support/troupeHere'

const model = {
  name: 'tiny',
  family: 'vllm',
  kvTokens: 640,
  blockTokens: 16,
  maxSequences: 8,
  maxBatchTokens: 256,
  prefixSharing: true,
  stepMs: {
    overhead: 1,
    denseFloor: 0,
    densePerToken: 0.5,
    decodeBase: 0,
    decodePerSequence: 0,
    decodePerKvToken: 0,
    prefillBase: 0,
    prefillPerToken: 0,
    prefillPerPair: 0,
  },
}
const line = (member: number, change: object = {}) => ({
  trajectoryId: `g/${member}`,
  groupId: 'g',
  arrivalMs: 0,
  promptTokens: 10,
  turns: [{ newTokens: 3, toolMs: 0, toolTokens: 0 }],
  ...change,
})

let directory: string
beforeAll(() => {
  directory = mkdtempSync(join(tmpdir(), 'troupe-simulate-'))
})
afterAll(() => rmSync(directory, { recursive: true, force: true }))

function file(name: string, content: unknown): string {
  const path = join(directory, name)
  const lines = Array.isArray(content) ? content : [content]
  writeFileSync(path, lines.map(one => (typeof one === 'string' ? one : JSON.stringify(one))).join('\n'))
  return path
}

test('it prints what the formula gives, the same each time, and a table of all policies', async () => {
  const files = ['--engine-model', file('m.json', model), '--trace', file('t.jsonl', [line(0), '', line(1)])]
  const args = ['simulate', ...files, '--engines', '1', '--policy', 'static-async', '--json']
  const [first, second, table] = await Promise.all([
    troupe(args).done,
    troupe(args).done,
    troupe(['simulate', ...files]).done,
  ])
  expect([first.code, first.stderr]).toEqual([0, expect.not.stringContaining('troupe:')])
  const result = JSON.parse(first.stdout)
  // A step of 20 tokens of prompts, then two of two decodes.
  expect(result).toMatchObject({ policy: 'static-async', turns: 2, preemptions: 0, recomputedTokens: 0 })
  expect(result.makespanMs).toBeCloseTo(11 + 2 + 2, 9)
  expect(result.ttftMsMean).toBeCloseTo(11, 9)
  expect(result.tpotMsMean).toBeCloseTo(2, 9)
  expect(result.lowerBoundMs).toBeLessThanOrEqual(result.makespanMs)
  expect(second.stdout).toBe(first.stdout)
  expect(table.stdout).toMatch(/policy +makespan/)
  for (const policy of ['static ', 'static-async', 'least-requests', 'kv-headroom']) {
    expect(table.stdout).toContain(policy)
  }
})

test('a wrong file or option ends with exit 2, the place, and what to do', async () => {
  const good = file('good.jsonl', line(0))
  const trace = file('bad.jsonl', [line(0), line(1, { arrivalMs: -5 })])
  const [bad, missing, unknown] = await Promise.all([
    troupeHere(['simulate', '--engine-model', file('m2.json', model), '--trace', trace]),
    troupeHere(['simulate', '--engine-model', join(directory, 'none.json'), '--trace', good]),
    troupeHere(['simulate', '--engine-model', file('m3.json', model), '--trace', good, '--policy', 'fifo']),
  ])
  expect([bad.code, missing.code, unknown.code]).toEqual([2, 2, 2])
  expect(bad.stderr).toContain('bad.jsonl line 2: a problem\n  arrivalMs: ')
  expect(bad.stderr).toContain('hint: docs/scheduler.md')
  expect(missing.stderr).toContain('none.json cannot be read')
  expect(unknown.stderr).toContain('kv-headroom')
})

test.each<[string, object | string, RegExp]>([
  ['text', '{"name":', /not valid JSON/],
  ['a field that is none', { ...model, kvTokns: 1 }, /kvTokns: unknown field; did you mean 'kvTokens'/],
  ['a family that is none', { ...model, family: 'tgi' }, /family: /],
  ['half a token', { ...model, kvTokens: 10.5 }, /kvTokens: /],
  ['a negative time', { ...model, stepMs: { ...model.stepMs, overhead: -1 } }, /stepMs\.overhead: /],
  ['a missing coefficient', { ...model, stepMs: { overhead: 1 } }, /stepMs\.prefillPerPair: /],
  ['blocks larger than the cache', { ...model, blockTokens: 1000 }, /blockTokens: 1000 is more than kvTokens/],
  [
    'a prefill without end',
    { ...model, stepMs: { ...model.stepMs, prefillPerToken: 1e308 } },
    /256 tokens of a prompt behind 640/,
  ],
  ['µs for ms', { ...model, stepMs: { ...model.stepMs, overhead: 20e6 } }, /are the coefficients in ms/],
])('an engine model with %s is refused by field', (_title, content, expected) => {
  expect(failure(() => readEngineModel(file('engine.json', content))).message).toMatch(expected)
})

test('a byte order mark before a file changes nothing', () => {
  const mark = '\uFEFF'
  const engine = readEngineModel(file('bom.json', `${mark}${JSON.stringify(model)}`))
  expect(engine).toEqual(model)
  expect(readTrace(file('bom.jsonl', `${mark}${JSON.stringify(line(0))}`), engine).trace).toEqual([line(0)])
  const azure = 'TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,40,8\n'
  expect(readTrace(file('bom.csv', mark + azure), engine).trace).toMatchObject([{ promptTokens: 40 }])
})

test.each<[string, readonly (object | string)[], RegExp]>([
  ['nothing', ['', ' '], /trace\.jsonl: the file contains no trajectory/],
  ['text', [line(0), 'turns'], /line 2: not valid JSON/],
  ['a trajectory twice', [line(0), '', line(0)], /line 3: trajectoryId: 'g\/0' is used in line 1 already/],
  ['no turns', [line(0, { turns: [] })], /line 1: a problem\n {2}turns: /],
  [
    'a turn of no tokens',
    [line(0, { turns: [{ newTokens: 0, toolMs: 0, toolTokens: 0 }] })],
    /line 1: a problem\n {2}turns\.0\.newTokens: /,
  ],
  [
    'a field by another name',
    [line(0, { turns: [{ tokens: 3, toolMs: 0, toolTokens: 0 }] })],
    /turns\.0\.tokens: unknown/,
  ],
  [
    'a context over the engine’s',
    [line(0), line(1, { promptTokens: 700 })],
    /line 2: turns: .* needs 702 tokens .* 640/,
  ],
])('a trace with %s is refused by line and field', (_title, lines, expected) => {
  const engine = readEngineModel(file('e.json', model))
  expect(failure(() => readTrace(file('trace.jsonl', lines), engine)).message).toMatch(expected)
})

const engine = engineId('e0')
const trajectory = trajectoryId(groupId('g'), 0)
const asked = (turn: number, attempt: number, at: number, contextTokens: number) => ({
  ...{ type: 'turn.asked' as const, at, trajectory, turn, attempt, epoch: epoch(0), engine: null, seed: 0 },
  ...{ sampling: requested('g', 0).sampling, maxTokens: 100, contextTokens, contextDigest: '' },
})
const done = (turn: number, attempt: number, at: number, tokens: number) =>
  completed({ trajectory, turn, attempt } as Parameters<typeof completed>[0], '', {
    at,
    tokens: new Int32Array(tokens),
    cachedTokens: 2,
    timing: { queuedAt: at - 50, startedAt: at - 40, firstTokenAt: at - 30, endedAt: at - 1 },
  })
const lost = (attempt: number, at: number, tokens: number) => ({
  ...{ type: 'turn.interrupted' as const, at, trajectory, turn: 1, attempt, engine, tokens: new Int32Array(tokens) },
  ...{ logprobs: new Float32Array(tokens), segments: [], reason: 'engine-lost' as const, error: '' },
})
const appended = (tokens: number) => ({
  ...{ type: 'context.appended' as const, at: 1300, trajectory, turn: 0, epoch: epoch(0), text: '' },
  tokens: new Int32Array(tokens),
})

async function loadOf(...facts: readonly Fact[]) {
  const bus = openMemoryBus()
  const journal = openJournal(bus, memoryBlobs(), runId('r'))
  await journal.create(1)
  await journal.append(facts)
  return readLoad(journal).finally(() => bus.close())
}

test('a recorded run gives its load and its turns’ measures; a turn that was interrupted counts for the load alone', async () => {
  const load = await loadOf(
    {
      ...{ type: 'engine.joined', at: 0, engine, kind: 'sglang', model: 'm', kvTokens: 640, blockTokens: 16 },
      ...{ maxSequences: 8, contextTokens: 640, prefixSharing: true, prioritySign: 0 },
    },
    requested('g', 0, { at: 1000 }),
    requested('g', 1, { at: 1000 }),
    asked(0, 0, 1001, 3),
    done(0, 0, 1100, 9),
    appended(7),
    asked(1, 0, 1310, 19),
    lost(0, 1400, 4),
    asked(1, 1, 1410, 23),
    done(1, 1, 1500, 6),
  )
  expect(load.trace).toEqual([
    {
      trajectoryId: 'g/0',
      groupId: 'g',
      arrivalMs: 0,
      promptTokens: 3,
      turns: [
        { newTokens: 9, toolMs: 210, toolTokens: 7 },
        { newTokens: 10, toolMs: 0, toolTokens: 0 },
      ],
    },
  ])
  expect(load.measured).toEqual([
    {
      ...{ engine, startedMs: 1050, firstTokenMs: 1070, endedMs: 1099 },
      ...{ contextTokens: 3, cachedTokens: 2, newTokens: 9 },
    },
  ])
  expect(load.makespanMs).toBe(499)
  // The turn that was interrupted got its first token from an engine that is gone.
  expect(load.ttftMsMean).toBe(69)
  expect(sizesOf(load.joined[0]!)).toEqual({
    ...{ family: 'sglang', kvTokens: 640, blockTokens: 16, maxSequences: 8, prefixSharing: true },
  })
  expect(sizesOf({ ...load.joined[0]!, kind: 'vllm' })).toMatchObject({ family: 'vllm', kvTokens: 624 })
})

test.each<[string, readonly Fact[], { measured: number; ttftMsMean: number }]>([
  [
    'interrupted before its first token',
    [lost(0, 1400, 0), asked(1, 1, 61_310, 19), done(1, 1, 61_500, 6)],
    { measured: 2, ttftMsMean: (69 + 60_160) / 2 },
  ],
  [
    'that nobody answered',
    [asked(1, 1, 21_310, 19), done(1, 0, 21_320, 50), done(1, 1, 21_500, 6)],
    { measured: 2, ttftMsMean: (69 + 20_160) / 2 },
  ],
  [
    'whose attempt is answered twice',
    [lost(0, 1400, 2), lost(0, 1401, 50), asked(1, 1, 1410, 21), done(1, 1, 1500, 4)],
    { measured: 1, ttftMsMean: 69 },
  ],
  [
    'that ends twice',
    [done(1, 0, 1500, 6), done(1, 0, 1501, 8), asked(1, 1, 1510, 19)],
    { measured: 2, ttftMsMean: (69 + 160) / 2 },
  ],
])(
  'a recorded turn %s is counted once, as the coordinator counts it, and waits from its first ask',
  async (_what, facts, expected) => {
    const begun = [
      requested('g', 0, { at: 1000 }),
      asked(0, 0, 1001, 3),
      done(0, 0, 1100, 9),
      appended(7),
      asked(1, 0, 1310, 19),
    ]
    const { trace, measured, ttftMsMean } = await loadOf(...begun, ...facts)
    expect(trace[0]!.turns).toEqual([
      { newTokens: 9, toolMs: 210, toolTokens: 7 },
      { newTokens: 6, toolMs: 0, toolTokens: 0 },
    ])
    expect({ measured: measured.length, ttftMsMean }).toEqual(expected)
  },
)

test('without files, or with a run that is not there, it says what to give', async () => {
  const [nothing, noRun] = await Promise.all([
    troupeHere(['simulate']),
    troupeHere(['simulate', '--calibrate', 'none', '--bus', `lmdb:${directory}`]),
  ])
  expect([nothing.code, noRun.code]).toEqual([2, 2])
  expect(nothing.stderr).toContain('give --engine-model F.json and --trace F.jsonl')
  expect(noRun.stderr).toContain("no run 'none'")
})

test.each([
  ['--weights-pause-ms has no effect without --weights-every-ms', ['--weights-pause-ms', '5']],
  ['--weights-every-ms must be above 0', ['--weights-every-ms', '0']],
  ['--write-trace has no effect without --calibrate', ['--write-trace', 'w.jsonl']],
  ['--max-batch-tokens has no effect', ['--max-batch-tokens', '64']],
  ['--trace has no effect with --calibrate', ['--calibrate', 'r']],
])('an option that would change nothing is refused: %s', async (said, more) => {
  const files = ['--engine-model', file('idle.json', model), '--trace', file('idle.jsonl', line(0))]
  const { code, stderr } = await troupeHere(['simulate', ...files, ...more])
  expect([code, stderr]).toEqual([2, expect.stringContaining(said)])
})

test.each(['--run', '--picture', '--policy', '--engines', '--bound-tokens', '--weights-every-ms'])(
  '%s beside --calibrate is refused before the run is read',
  async option => {
    const value = option === '--policy' ? 'static' : '3'
    const { code, stderr } = await troupeHere(['simulate', '--calibrate', 'none', option, value])
    expect([code, stderr]).toEqual([2, expect.stringContaining(`${option} has no effect with --calibrate`)])
  },
)

test('with an engine model of the user a recorded run is simulated though its turns are too few to fit one', async () => {
  const { log } = runDirectory(directory, runId('few'))
  mkdirSync(log, { recursive: true })
  const bus = await openBus(`lmdb:${log}`)
  const journal = openJournal(bus, memoryBlobs(), runId('few'))
  await journal.create(1)
  await journal.append([
    {
      ...{ type: 'engine.joined', at: 0, engine, kind: 'sglang', model: 'm', kvTokens: 640, blockTokens: 16 },
      ...{ maxSequences: 8, contextTokens: 640, prefixSharing: true, prioritySign: 0 },
    },
    requested('g', 0, { at: 1000 }),
    asked(0, 0, 1001, 3),
    done(0, 0, 1100, 9),
  ])
  await bus.close()
  const args = [
    'simulate',
    '--run',
    'few',
    '--bus',
    `lmdb:${directory}`,
    '--engine-model',
    file('few.json', model),
    '--json',
  ]
  const { code, stdout, stderr } = await troupeHere([...args, '--policy', 'static'])
  expect([code, stderr]).toEqual([0, expect.not.stringContaining('troupe:')])
  expect(JSON.parse(stdout)).toMatchObject({ turns: 1, recordedMakespanMs: 99 })
})

const azure = (...rows: readonly string[]) => ['TIMESTAMP,ContextTokens,GeneratedTokens', ...rows, ''].join('\r\n')

test("Azure's traces are read: a request a trajectory, times to the microsecond, empty ones left out", () => {
  const text = azure(
    '2023-11-16 18:17:03.9799600,4808,10',
    '2023-11-16 18:17:04.0319600,3180,0',
    '2023-11-16 18:18:03,7,8',
  )
  const { trace, lines, empty } = parseAzureTrace(text, 'f.csv')
  expect(trace.map(one => [one.arrivalMs, one.promptTokens, one.turns])).toEqual([
    [0, 4808, [{ newTokens: 10, toolMs: 0, toolTokens: 0 }]],
    [expect.closeTo(59_020.04, 3), 7, [{ newTokens: 8, toolMs: 0, toolTokens: 0 }]],
  ])
  expect({ lines, empty }).toEqual({ lines: [2, 4], empty: 1 })
  expect(new Set(trace.map(one => one.groupId)).size).toBe(2)
})

test.each([
  ['a time that is none', azure('yesterday,1,2'), /line 2: TIMESTAMP 'yesterday'/],
  [
    'a day that is none',
    azure('2023-02-28 23:59:59,1,2', '2023-02-29 00:00:00.5,1,2'),
    /line 3: the time 2023-02-29 00:00:00 does not exist/,
  ],
  ['a minute that is none', azure('2023-11-16 18:61:03,1,2'), /line 2: the time .* does not exist/],
  ['half a token', azure('2023-11-16 18:17:03,1,2', '2023-11-16 18:17:04,1.5,2'), /line 3: ContextTokens '1.5'/],
  ['a negative length', azure('2023-11-16 18:17:03,1,-2'), /line 2: GeneratedTokens '-2'/],
  ['a field too few', azure('2023-11-16 18:17:03,1'), /line 2: 2 fields/],
  ['a time before the first', azure('2023-11-16 18:17:03,1,2', '2023-11-16 18:17:02,1,2'), /line 3: TIMESTAMP/],
] as const)('a trace of Azure with %s is refused by its line', (_what, text, said) => {
  expect(() => parseAzureTrace(text, 'f.csv')).toThrow(said)
})

test('a CSV as trace, and a picture of the policies', async () => {
  const rows = Array.from(
    { length: 40 },
    (_, n) => `2023-11-16 18:17:${String(n).padStart(2, '0')},${100 + n},${10 + n}`,
  )
  const [trace, picture] = [join(directory, 'azure.csv'), join(directory, 'what-if.svg')]
  writeFileSync(trace, azure(...rows))
  const { code, stdout, stderr } = await troupe([
    'simulate',
    '--engine-model',
    file('azure.json', { ...model, maxSequences: 2 }),
    '--trace',
    trace,
    '--picture',
    picture,
  ]).done
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
  expect(stdout).toContain('40 trajectories')
  const svg = readFileSync(picture, 'utf8')
  for (const policy of ['static', 'static-async', 'least-requests', 'kv-headroom']) expect(svg).toContain(`>${policy}<`)
})
