/**
 * Measures what the gateway adds to a call's duration, over HTTP, with a real renderer, a durable log, and an engine of
 * known duration.
 *
 * - First token: 64 calls in flight, which begin one after another; the client's time to the first text minus its
 *   usual time when it asks the engine directly (bareServer.ts).
 * - Calls: calls per second and CPU time of each process, with 64 clients, prompts of 1 K tokens, an engine that
 *   answers at once, and answers of one token.
 * - Turns: the duration of the last of 200 turns compared with the first ones, at 100 K tokens. A renderer inside this
 *   process (a token a character) replaces the real one, whose cost does not grow: it renders new messages only.
 * - Memory: an idle session's share of the heap.
 */
import { spawn } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { startRenderer } from '../backends/renderer/rendererProcess'
import { type Gateway, openGateway } from '../gateway/openGateway'
import type { TextRenderer } from '../gateway/rendering/conversationRenderer'
import { systemEffects } from '../runtime/effects'
import { openTroupe } from '../runtime/embed'
import { endedHow } from '../runtime/errors'
import { createLog } from '../runtime/log'
import { charRenderer, decodeChars, encodeChars } from '../tests/support/gateway/charRenderer'
import { makeTinyModel } from '../tests/support/tinyModel'
import { atLeast, atMost, type BenchReport, describeMachine, median, printReport } from './report'
import { bareServer } from './support/gateway/bareServer'
import { type Answer, timedEngine } from './support/gateway/timedEngine'
import { processTree } from './support/processTree'

/** Milliseconds that the engine takes for its one token; 64 calls in flight then make 256 calls a second. */
const engineMs = 250
const flight = 64
const measuredCalls = 2000
const turns = 200
const tokensPerTurn = 500
const idleSessions = 1000

const limits = {
  contextTokens: 200_000,
  responseTokens: 64,
  turns: 1,
  callsPerTurn: 1,
  toolTimeoutMs: 1,
  toolResponseChars: 1,
}

async function withGateway<T>(
  renderer: TextRenderer,
  answer: Answer,
  afterMs: number,
  use: (gateway: Gateway) => Promise<T>,
): Promise<T> {
  const directory = mkdtempSync(join(tmpdir(), 'troupe-bench-gateway-'))
  const log = createLog('bench', { level: 'warn' })
  const troupe = await openTroupe({ bus: `lmdb:${directory}`, run: 'bench', log })
  const gateway = await openGateway({
    ...{ journal: troupe.journal, renderer, fx: systemEffects, log, host: '127.0.0.1', port: 0, seed: 1, limits },
    engines: [timedEngine(answer, afterMs)],
    sampling: { temperature: 1, topP: 1, topK: 0, minP: 0 },
  })
  try {
    return await use(gateway)
  } finally {
    await gateway.close()
    await troupe.close()
    rmSync(directory, { recursive: true, force: true })
  }
}

interface Timed {
  readonly firstMs: readonly number[]
  readonly wallMs: number
  readonly cpuMs: number
}

interface Load {
  readonly calls: number
  /** Calls that come first and are not counted. */
  readonly uncounted?: number
  readonly characters: number
  /** Time over which the first calls begin, ms. */
  readonly pacedMs?: number
}

/** Runs the client against an address. `onCounting`: called once the calls that are not counted are over. */
function client(
  { url }: { readonly url: string },
  mode: 'stream' | 'whole' | 'turns',
  { calls, uncounted = 0, characters, pacedMs = 0 }: Load,
  onCounting: () => void = () => {},
): Promise<Timed> {
  const args = ['-r', join(__dirname, '../cli/register.js'), join(__dirname, 'support/gateway/client.ts'), url]
  const numbers = [flight, calls, characters, pacedMs].map(String)
  const child = spawn(process.execPath, [...args, ...numbers, mode, String(uncounted)], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  let said = ''
  createInterface({ input: child.stdout }).on('line', line => {
    if (line === 'counting') onCounting()
    else said = line
  })
  return new Promise((resolve, reject) => {
    child.once('close', (code, signal) =>
      code === 0 ? resolve(JSON.parse(said) as Timed) : reject(new Error(`the client ${endedHow(code, signal)}`)),
    )
  })
}

const cpuMs = (pid: number) => processTree(pid)[0]?.cpuMs ?? 0

const at = (values: readonly number[], share: number) =>
  [...values].sort((a, b) => a - b)[Math.floor(share * (values.length - 1))]!

/** The smallest median of five parts, so that other work during one of them does not make the time longer. */
function usualOf(times: readonly number[]): number {
  const part = Math.ceil(times.length / 5)
  return Math.min(...[0, 1, 2, 3, 4].map(i => median(times.slice(i * part, (i + 1) * part))))
}

const asleep = (ms: number) => new Promise<void>(resolve => setTimeout(resolve, ms))

setFlagsFromString('--expose-gc')
const collectGarbage = runInNewContext('gc') as () => void

/**
 * Bytes in use, once no further collection frees any: what earlier phases leave behind goes in several, as connections
 * and timers end.
 */
async function bytesUsed(): Promise<number> {
  for (let least = Number.POSITIVE_INFINITY; ; ) {
    await asleep(100)
    collectGarbage()
    const { heapUsed, arrayBuffers } = process.memoryUsage()
    const used = heapUsed + arrayBuffers
    if (used > least - 10_000) return used
    least = used
  }
}

async function bytesPerSession(gateway: Gateway): Promise<number> {
  await openIdle(gateway, 'first', idleSessions / 10)
  const before = await bytesUsed()
  await openIdle(gateway, 'idle', idleSessions)
  return ((await bytesUsed()) - before) / idleSessions
}

async function openIdle(gateway: Gateway, name: string, count: number): Promise<void> {
  for (let i = 0; i < count; i++) {
    const body = JSON.stringify({ model: 'm', messages: [{ role: 'user', content: 'x'.repeat(1000) }] })
    const headers = { authorization: `Bearer ${name}-${i}` }
    await (await fetch(`${gateway.url}/v1/chat/completions`, { method: 'POST', body, headers })).text()
  }
}

export async function bench(): Promise<BenchReport> {
  const directory = mkdtempSync(join(tmpdir(), 'troupe-bench-model-'))
  const model = join(directory, 'model')
  await makeTinyModel(model)
  const template = join(__dirname, '../recipes/templates/hermes.jinja')
  const renderer = await startRenderer({ modelDirectory: model, template, log: createLog('bench', { level: 'warn' }) })
  try {
    const { stopTokens } = await renderer.describe()
    const tokens = Int32Array.of(...(await renderer.encode('a')), stopTokens[0]!)
    const answer = { tokens, text: await renderer.decode(tokens) }
    const streams = { calls: 20 * flight, uncounted: 4 * flight, characters: 200, pacedMs: engineMs }
    const bare = await bareServer(timedEngine(answer, engineMs), 'a')
    const direct = await client(bare, 'stream', streams).finally(() => bare.close())
    const through = await withGateway(renderer, answer, engineMs, gateway => client(gateway, 'stream', streams))
    const usual = usualOf(direct.firstMs)
    const first = through.firstMs.map(ms => ms - usual)
    // The bench's tokenizer has a token for each character of this text.
    const whole = await withGateway(renderer, answer, 0, async gateway => {
      let [before, own] = [0, process.cpuUsage()]
      const load = { calls: measuredCalls, uncounted: 500, characters: 1000 }
      const { wallMs, cpuMs: asking } = await client(gateway, 'whole', load, () => {
        before = cpuMs(renderer.pid)
        own = process.cpuUsage()
      })
      const { user, system } = process.cpuUsage(own)
      return { wallMs, asking, gateway: (user + system) / 1000, renderer: cpuMs(renderer.pid) - before }
    })
    const chars = encodeChars('a<|im_end|>')
    const typed = { tokens: chars, text: decodeChars(chars) }
    const times = (
      await withGateway(charRenderer(), typed, 0, gateway =>
        client(gateway, 'turns', { calls: turns, characters: tokensPerTurn }),
      )
    ).firstMs
    const idle = await withGateway(charRenderer(), typed, 0, bytesPerSession)
    const [early, late] = [median(times.slice(5, 15)), median(times.slice(-10))]
    const perSecond = (1000 * measuredCalls) / whole.wallMs
    return {
      ...{ bench: 'gateway', machine: describeMachine() },
      metrics: {
        ...{ firstTokenAddedMsP50: at(first, 0.5), firstTokenAddedMsP99: at(first, 0.99) },
        ...{ directMsUsual: usual, directMsP50: at(direct.firstMs, 0.5), directMsP99: at(direct.firstMs, 0.99) },
        callsPerSecond: perSecond,
        gatewayCpuMsPerCall: whole.gateway / measuredCalls,
        rendererCpuMsPerCall: whole.renderer / measuredCalls,
        clientCpuMsPerCall: whole.asking / measuredCalls,
        ...{ turnMsEarly: early, turnMsLate: late, idleSessionKib: idle / 1024 },
      },
      budgets: [
        atMost('first token, added, p50 ms', at(first, 0.5), 3),
        atMost('first token, added, p99 ms', at(first, 0.99), 15),
        atLeast('calls a second', perSecond, 1000),
        atMost('turn 200 beside turn 10', late / early, 2),
        atMost('idle session, KiB', idle / 1024, 64),
      ],
    }
  } finally {
    await renderer.close()
    rmSync(directory, { recursive: true, force: true })
  }
}

if (require.main === module) {
  void bench().then(report => {
    process.exitCode = printReport(report, process.argv.includes('--json'))
  })
}
