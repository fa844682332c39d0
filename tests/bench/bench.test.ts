/** Benchmarks can be run by name, and every budget that is promised has one that holds a figure against it. */
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Engine, GenerateRequest } from '../../backends/engines/engine'
import { reportOf } from '../../bench/quickstart'
import type { BenchReport } from '../../bench/report'
import { pacedBus } from '../../bench/support/pacedBus'
import { processTree, pssBytes } from '../../bench/support/processTree'
import { tracedEngine } from '../../bench/support/tracedEngine'
import { delayedTool, indexOf, textOf, traces } from '../../bench/support/traces'
import { openLoad } from '../../cli/experiment/openLoad'
import { parseToolCalls, quantile, resolveCalls } from '../../kernels'
import { engineId, groupId, trajectoryId } from '../../messages/ids'
import { openBus } from '../../runtime/bus/open'

const folder = join(__dirname, '../../bench')
const names = readdirSync(folder)
  .filter(file => file.endsWith('.ts') && file !== 'report.ts')
  .map(file => file.replace(/\.ts$/, ''))

test.each(names)('bench %s can be run by its name', name => {
  const { bench } = require(join(folder, name)) as { bench: () => Promise<BenchReport> }
  expect(typeof bench).toBe('function')
  const source = readFileSync(join(folder, `${name}.ts`), 'utf8')
  expect(source).toContain(`bench: '${name}'`)
})

/** The first issue's budgets: which bench prints each, and the text and bound that it prints. */
const promised: readonly (readonly [string, RegExp])[] = [
  ['head', /times one dense product's`, ratio\(all\), 1\.3\)/],
  ['grade', /atMost\('10,000 integers, seconds', .*, 2\)/],
  ['grade', /atMost\('10,000 MATH answers, seconds', .*, 60\)/],
  ['quickstart', /atMost\('wall time, seconds', [^)]*, 300\)/],
  ['quickstart', /atMost\('pass@1 before', .*, 0\.5\)/],
  ['quickstart', /atLeast\('pass@1 after', .*, 0\.9\)/],
  ['quickstart', /atLeast\('problems not trained on', .*, 256\)/],
  ['quickstart', /atMost\('tool errors in positives, last over first'/],
  ['quickstart', /atMost\('peak memory, GB', .*, 3\)/],
  ['bus', /atLeast\('durable appends.*, 0\.5\)/],
  ['bus', /atLeast\('replay.*, 0\.5\)/],
  ['kafka', /share of raw kafkajs`, figures\.bus \/ figures\.raw, 0\.8\)/],
  ['kafka', /atMost\('append to handled, p50 ms', at\(0\.5\), 15\)/],
  ['kafka', /atMost\('append to handled, p99 ms', at\(0\.99\), 60\)/],
  ['actors', /atLeast\(.*0\.6/],
  ['codec', /atLeast\(.*0\.8/],
  ['gateway', /atMost\('first token, added, p50 ms', [^)]*\), 3\)/],
  ['gateway', /atMost\('first token, added, p99 ms', [^)]*\), 15\)/],
  ['gateway', /atLeast\('calls a second', .*, 1000\)/],
  ['gateway', /atMost\('turn 200 beside turn 10', .*, 2\)/],
  ['gateway', /atMost\('idle session, KiB', .*, 64\)/],
  ['replay', /atLeast\('trajectories in the log', [^,]*, 100_000\)/],
  ['replay', /atMost\('ls, seconds', ls, 2\)/],
  ['replay', /atMost\('show by its id, seconds after the start', show, 0\.3\)/],
  ['replay', /atLeast\('verify, facts a second', .*, 20_000\)/],
  ['replay', /atMost\('start from a checkout, seconds', start, 0\.7\)/],
  ['replay', /atMost\('start of a build, seconds', built, 0\.3\)/],
  ['rollout', /name: 'quickstart',\s+bound: 0\.85/],
  ['rollout', /name: 'smollm2',\s+bound: 0\.95/],
  ['scheduler', /atMost\('base: makespan over static-async', .*, 0\.82\)/],
  ['scheduler', /atMost\('base: makespan over least-requests', .*, 0\.86\)/],
  ['scheduler', /atMost\('base: recomputed over generated tokens', .*, 0\.25\)/],
  ['scheduler', /atMost\('sweep: mean over least-requests', .*, 0\.9\)/],
  ['scheduler', /atMost\('sweep: worst over the best of the others', .*, 1\.01\)/],
  ['scheduler', /atMost\('µs a decision, 10,000 queued', .*, 20\)/],
  ['vllm', /atLeast\('rollout: tokens\/s, share of the bare client', .*, 0\.95\)/],
  ['vllm', /atLeast\('preemptions: static over kv-headroom', .*, 10\)/],
  ['vllm', /atLeast\('preemptions: tokens\/s, kv-headroom over static', .*, 1\)/],
  ['vllm', /atMost\(`\$\{load\}: makespan, share off`, .*, 0\.1\)/],
  ['vllm', /atMost\(`\$\{load\}: mean time to the first token, share off`, .*, 0\.2\)/],
  ['kafkaStep', /atMost\('step on Kafka.*, 1\.15\)/],
  ['kafkaStep', /atMost\('start to the first prompts.*, 10\)/],
  ['learner', /atLeast\("tokens\/s, times TRL's", .*, 1\.5\)/],
  ['learner', /atMost\("peak memory, times TRL's", .*, 0\.5\)/],
  ['checkpoint', /blocked by a checkpoint of 135M parameters, seconds',[^;]*one\.waited\)\),\s+0\.5,/],
  ['estimate', /const tolerance = 0\.1\nconst timeTolerance = 0\.25\n/],
  ['estimate', /--estimate-only, seconds', [^,]*, 3\)/],
  ['kvMemory', /atMost\(`\$\{name\}: reserved over promised`, .*, 1\.1\)/],
  ['environments', /first command at 8 in flight, p50 ms', quantile\(start, 0\.5\), 80\)/],
  ['environments', /first command at 8 in flight, p99 ms', quantile\(start, 0\.99\), 250\)/],
  ['environments', /atMost\("'true', ms", median\(exec\), 5\)/],
  ['environments', /snapshot of 1 MB, ms', median\(small\), 20\)/],
  ['environmentScale', /atLeast\('alive and answering at once', answering, alive\)/],
  ['environmentScale', /left behind`, n, 0\)/],
  ['environments', /snapshot of 100 MB, ms', median\(large\), 400\)/],
  ['environments', /atMost\('fork, ms', median\(fork\), 100\)/],
  ['step', /atMost\('step on lmdb.*, 1\.05\)/],
  ['support/sandbox/rates', /atLeast\('trivial: judge over HTTP.*, 5\.3\)/],
  ['support/sandbox/rates', /bound: 4\.6/],
  ['support/sandbox/rates', /\? 32 : 93/],
  ['support/sandbox/rates', /fresh-process worker[^)]*\),\s+0\.5,/],
  ['support/sandbox/rates', /atLeast\('trivial: library, share of the bare zygote'.*, 0\.45\)/],
  ['support/sandbox/rates', /fork and _exit[^)]*\) \/ cores,\s+0\.05,/],
  ['support/sandbox/rates', /atLeast\('trivial: HTTP, share of the library'.*, 0\.9\)/],
  ['support/sandbox/rates', /0\.9 \* cores/],
  ['support/sandbox/service', /atMost\('burst of 45,000: seconds', seconds, 60\)/],
  ['support/sandbox/service', /atMost\('latency at 70 % load: p50, ms', p50, 5\).*p99, 50\)/],
  ['support/sandbox/service', /5 % spinners: p99[^\n]*, 2\)/],
  ['support/sandbox/service', /share that ended ok', [^,]*, 1\)/],
  ['support/sandbox/lanes', /beyond its limit[^\n]*, 20\)/],
  ['support/sandbox/lanes', /sleep 0\.5 s: seconds', seconds, 3\)/],
  ['support/sandbox/lanes', /idle zygote with numpy and sympy, MiB', sympy, 80\)/],
  ['support/sandbox/lanes', /sessionMiB, 8\)/],
  ['support/sandbox/manySessions', /share of right answers', [^,]*, 1\)/],
  ['support/sandbox/manySessions', /times one of 2 to 6', growth, 1\.2\)/],
]

test.each(promised)('bench %s prints a budget for %s', (name, budget) => {
  expect(readFileSync(join(folder, `${name}.ts`), 'utf8')).toMatch(budget)
})

const summary = {
  type: 'summary' as const,
  run: 'r',
  outcome: 'done',
  reason: '',
  steps: 12,
  evalBefore: { passAt1: 0.4, standardError: 0.03, n: 256 },
  evalAfter: { passAt1: 0.95, standardError: 0.01, n: 256 },
  toolErrorsInPositives: { first: 0.4, last: 0.02 },
  wallSeconds: 250,
  cpuSeconds: { engine: 100, trainer: 60, tools: 20, node: 20 },
}
const failing = (change: object, peakBytes = 1e9) =>
  reportOf({ summary: { ...summary, ...change }, peakBytes } as Parameters<typeof reportOf>[0])
    .budgets.filter(b => !b.ok)
    .map(b => b.name)

test('a quickstart within its promises meets every budget, and its CPU split adds up', () => {
  expect(failing({})).toEqual([])
  expect(failing({ toolErrorsInPositives: { first: 0.4, last: 0 } })).toEqual([])
  const { metrics } = reportOf({ summary, peakBytes: 1e9 } as Parameters<typeof reportOf>[0])
  expect(metrics['cpuShare.engine']).toBe(0.5)
})

test('a quickstart that misses one promise falls short in that one', () => {
  expect(failing({ wallSeconds: 301 })).toEqual(['wall time, seconds'])
  expect(failing({ evalBefore: { passAt1: 0.51, standardError: 0, n: 256 } })).toEqual(['pass@1 before'])
  expect(failing({ evalAfter: { passAt1: 0.89, standardError: 0, n: 256 } })).toEqual(['pass@1 after'])
  expect(failing({ evalAfter: { passAt1: 0.9, standardError: 0, n: 255 } })).toEqual(['problems not trained on'])
  expect(failing({}, 3.1e9)).toEqual(['peak memory, GB'])
  const errors = 'tool errors in positives, last over first'
  expect(failing({ toolErrorsInPositives: { first: 0.4, last: 0.09 } })).toEqual([errors])
  expect(failing({ toolErrorsInPositives: { first: 0, last: 0 } })).toEqual([errors])
})

test('a quickstart that ended before its evaluations meets no budget that needs them', () => {
  const none = { evalBefore: null, evalAfter: null, toolErrorsInPositives: { first: null, last: null } }
  expect(failing(none)).toHaveLength(4)
})

const shape = { turns: [2, 3], newTokens: [16, 44], toolMs: [20, 60] } as const

test('a trace follows from its index and the seed, and every turn but the last calls the tool', async () => {
  const plan = traces(50, shape, 7)
  expect(traces(60, shape, 7).slice(0, 50)).toEqual(plan)
  expect(traces(50, shape, 8)).not.toEqual(plan)
  for (const trace of plan) {
    trace.turns.forEach(({ newTokens, toolMs }, turn) => {
      const { calls } = parseToolCalls(textOf(trace, turn))
      const last = turn === trace.turns.length - 1
      expect(calls).toHaveLength(last ? 0 : 1)
      expect(newTokens).toBeGreaterThanOrEqual(16)
      expect(last ? toolMs : toolMs >= 20).toBe(last ? 0 : true)
    })
  }
  const { resolved } = resolveCalls(parseToolCalls(textOf(plan[0]!, 0)).calls, ['execute_python_code_with_standard_io'])
  if (resolved[0]?.kind !== 'ready') throw new Error('the call of a trace cannot be made')
  expect((await delayedTool(resolved[0].arguments)).wallMs).toBe(plan[0]!.turns[0]!.toolMs)
})

test('a rollout has one place in a step, whatever the step', () => {
  const places = [0, 1, 2].flatMap(group => [0, 1, 2, 3].map(member => [group, member] as const))
  const of = (step: number) => places.map(([g, m]) => indexOf(trajectoryId(groupId(`s000${step}.000${g}`), m), 4))
  expect(of(1)).toEqual(Array.from({ length: 12 }, (_, k) => k))
  expect(of(2)).toEqual(of(1))
})

test('an engine is asked for the lengths of the trace and no stop token, and its text is that of the trace', async () => {
  const asked: GenerateRequest[] = []
  const engine = {
    id: engineId('e'),
    async generate(request: GenerateRequest) {
      asked.push(request)
      return { tokens: new Int32Array(request.maxTokens), finish: asked.length === 1 ? 'aborted' : 'length', text: 'x' }
    },
  } as unknown as Engine
  const [trace] = traces(1, shape, 1)
  const traced = tracedEngine(engine, () => trace!)
  const trajectory = trajectoryId(groupId('g'), 0)
  const request = {
    trajectory,
    maxTokens: 100,
    sampling: { temperature: 1, stopTokens: [3] },
  } as unknown as GenerateRequest
  // An aborted turn is asked for again, with the same length.
  expect((await traced.generate(request)).finish).toBe('aborted')
  for (const turn of trace!.turns.keys()) {
    const { text, finish } = await traced.generate(request)
    expect({ text, finish }).toEqual({ text: textOf(trace!, turn), finish: 'stop' })
  }
  const lengths = trace!.turns.map(turn => turn.newTokens)
  expect(asked.map(r => r.maxTokens)).toEqual([lengths[0], ...lengths])
  expect(asked.every(r => r.sampling.stopTokens.length === 0)).toBe(true)
  await expect(traced.generate({ ...request, maxTokens: 1 })).rejects.toThrow('exceeds the request')
})

test('a paced bus holds the rollouts of a step back until it is opened, and nothing else', async () => {
  const bus = await openBus('memory:', { mode: 'write' })
  const paced = pacedBus(bus)
  await paced.bus.createTopics([{ topic: 't', partitions: 1, retentionMs: null }])
  const record = (type: string) => ({ topic: 't', key: 'k', headers: { type }, value: new Uint8Array() })
  const held = paced.bus.append([record('rollout.requested'), record('curriculum.advanced')])
  await paced.bus.append([record('turn.asked')])
  expect((await bus.read('t', 0, 0)).map(r => r.headers.type)).toEqual(['turn.asked'])
  const open = await paced.nextDraw()
  open()
  await expect(held).resolves.toHaveLength(2)
  const last = [1, 2].map(() => paced.bus.append([record('rollout.requested')]))
  const unopened = await paced.nextDraw()
  paced.openForGood()
  unopened()
  expect(await Promise.all(last)).toHaveLength(2)
  expect(await bus.read('t', 0, 0)).toHaveLength(5)
  await bus.close()
})

test('a process tree holds this process with the CPU time and memory that it has', () => {
  const [self] = processTree(process.pid)
  expect(self?.pid).toBe(process.pid)
  const { user, system } = process.cpuUsage()
  // Rounded down to ticks, and with children that were waited for.
  expect(self!.cpuMs).toBeGreaterThan((user + system) / 1000 - 100)
  expect(pssBytes(process.pid)).toBeGreaterThan(10e6)
  expect(pssBytes(2 ** 30)).toBe(0)
})

test('an open load begins its calls at the same times for the same seed, whether or not they are answered', async () => {
  const load = { perSecond: 200, seconds: 0.5, seed: 3 }
  const at = async () => {
    const begun: number[] = []
    const start = performance.now()
    const over = openLoad(load, async index => {
      begun[index] = performance.now() - start
      await new Promise(resolve => setTimeout(resolve, 100))
    })
    await jest.advanceTimersByTimeAsync(2000)
    await over
    return begun
  }
  jest.useFakeTimers()
  try {
    const [one, other] = [await at(), await at()]
    expect(one.length).toBe(other.length)
    expect(one.length).toBeGreaterThan(60)
    for (const [i, ms] of one.entries()) expect(Math.abs(ms - other[i]!)).toBeLessThan(2)
  } finally {
    jest.useRealTimers()
  }
  expect([quantile([3, 1, 2], 0.5), quantile([5], 0.99)]).toEqual([2, 5])
})
