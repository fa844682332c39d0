/**
 * The real engine and renderer processes over gRPC, on a model of a few thousand parameters that the test makes.
 */
import { spawn } from 'node:child_process'
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { createInterface } from 'node:readline'
import type { GenerateRequest, Generation } from '../../backends/engines/engine'
import { type LocalEngine, startLocalEngine } from '../../backends/engines/local/local'
import { startRenderer } from '../../backends/renderer/rendererProcess'
import { engineId, groupId, policyVersion, trajectoryId } from '../../messages/ids'
import { isAlive } from '../support/cli'
import { refused } from '../support/refusal'
import { makeTinyModel } from '../support/tinyModel'
import { until } from '../support/until'

const folder = mkdtempSync(join(tmpdir(), 'troupe-engine-test-'))
const modelDirectory = join(folder, 'model')
const otherDirectory = join(folder, 'other')
const template = `{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}`

const config = { num_key_value_heads: 2, max_position_embeddings: 256 }
const common = { modelDirectory, device: 'cpu', threads: 1, contextTokens: 128 }
const sampling = { temperature: 1, topP: 1, topK: 0, minP: 0, stopTokens: [] as number[] }

function request(member: number, changes: Partial<GenerateRequest> = {}): GenerateRequest {
  return {
    requestId: `r${member}`,
    trajectory: trajectoryId(groupId('g'), member),
    context: Int32Array.from({ length: 20 }, (_, at) => 10 + ((at * 7) % 200)),
    resumedTokens: 0,
    maxTokens: 12,
    sampling,
    seed: member,
    priority: member,
    keep: false,
    ...changes,
  }
}

const joined = (...parts: readonly Int32Array[]) => Int32Array.from(parts.flatMap(part => [...part]))

let engine: LocalEngine
/** Gives entropies too, and is killed by a test. */
let mortal: LocalEngine

beforeAll(async () => {
  await makeTinyModel(modelDirectory, { config, chatTemplate: template, seed: 1 })
  await makeTinyModel(otherDirectory, { config, chatTemplate: template, seed: 2 })
  ;[engine, mortal] = await Promise.all([
    startLocalEngine({ id: engineId('local-0'), ...common, deterministic: true }),
    startLocalEngine({ id: engineId('mortal'), ...common, deterministic: true, entropies: true }),
  ])
}, 300_000)

afterAll(async () => {
  await Promise.all([engine, mortal].map(one => one?.close()))
  rmSync(folder, { recursive: true, force: true })
}, 30_000)

test('an engine says what it can do', () => {
  expect(engine.capabilities).toMatchObject({
    kind: 'local',
    model: 'model',
    contextTokens: 128,
    blockTokens: 16,
    deterministic: true,
    trainable: true,
    prioritySign: -1,
  })
})

test('a request is answered alike alone and among a hundred others', async () => {
  const alone = await engine.generate(request(7))
  const all = await Promise.all(Array.from({ length: 100 }, (_, member) => engine.generate(request(member))))
  const { tokens, logprobs, text, finish } = all[7]!
  expect({ tokens, logprobs, text, finish }).toEqual({
    tokens: alone.tokens,
    logprobs: alone.logprobs,
    text: alone.text,
    finish: 'length',
  })
  expect(tokens).toHaveLength(12)
  expect([...logprobs].every(p => p < 0 && Number.isFinite(p))).toBe(true)
  const { queuedAt, startedAt, firstTokenAt, endedAt } = all[7]!.timing
  expect([queuedAt, startedAt, firstTokenAt, endedAt]).toEqual([queuedAt, startedAt, firstTokenAt, endedAt].sort())
  expect(new Set(all.map(each => each.tokens.join())).size).toBeGreaterThan(90)
}, 60_000)

test('an aborted generation has the first tokens of the whole one, and a resumed one the rest', async () => {
  const whole = await engine.generate(request(1, { maxTokens: 100 }))
  // On a busy machine an abort may come after the last token: then once more.
  let part = whole
  for (let attempt = 0; attempt < 20 && part.finish !== 'aborted'; attempt++) {
    const aborter = new AbortController()
    const again = request(1, { maxTokens: 100, requestId: `aborted-${attempt}` })
    part = await engine.stream(again, () => aborter.abort(), aborter.signal)
  }
  expect(part.finish).toBe('aborted')
  const cut = part.tokens.length
  expect(cut).toBeGreaterThanOrEqual(1)
  expect(cut).toBeLessThan(100)
  expect(part.tokens).toEqual(whole.tokens.slice(0, cut))
  const context = joined(request(1).context, part.tokens)
  const rest = await engine.generate(request(1, { context, resumedTokens: cut, maxTokens: 100 - cut }))
  expect(rest.tokens).toEqual(whole.tokens.slice(cut))
  expect(rest.logprobs).toEqual(whole.logprobs.slice(cut))
  expect(rest.text).toBe(whole.text)
}, 60_000)

test('partial texts add up to the text of the answer', async () => {
  const texts: string[] = []
  const tokens: Int32Array[] = []
  const answer = await engine.stream(request(3, { maxTokens: 60 }), (part, text) => {
    tokens.push(part)
    texts.push(text)
  })
  expect(joined(...tokens)).toEqual(answer.tokens)
  expect(answer.text.startsWith(texts.join(''))).toBe(true)
})

test('entropies come with the tokens where they are asked for, and do not change them', async () => {
  const plain = await engine.generate(request(3))
  const { tokens, entropies } = await mortal.generate(request(3))
  expect(plain.entropies).toBeUndefined()
  expect(tokens).toEqual(plain.tokens)
  expect(entropies).toHaveLength(12)
  // An untrained model's entropies are near the logarithm of its vocabulary.
  const most = Math.log(mortal.capabilities.vocabulary)
  expect([...entropies!].every(value => value > most / 2 && value <= most + 1e-4)).toBe(true)
}, 60_000)

test('a kept trajectory computes only what is new, until it is released', async () => {
  const first = await engine.generate(request(5, { keep: true }))
  const context = joined(request(5).context, first.tokens, Int32Array.of(40, 41, 42))
  const second = await engine.generate(request(5, { context, keep: true }))
  expect(second.cachedTokens).toBe(20 + 12 - 1)
  expect((await engine.status()).cachedTokens).toBeGreaterThan(0)
  await engine.release(request(5).trajectory)
  await until(async () => (await engine.status()).cachedTokens === 0)
})

test('what does not fit is refused with a code, and the engine goes on', async () => {
  const long = await refused(engine.generate(request(0, { context: new Int32Array(128) })))
  expect(long).toMatchObject({ code: 'engine.context_exceeded', retriable: false, boundary: 'engine' })
  const foreign = await refused(engine.generate(request(0, { context: Int32Array.of(engine.capabilities.vocabulary) })))
  expect(foreign.code).toBe('engine.bad_request')
  const running = engine.generate(request(0))
  expect((await refused(engine.generate(request(0)))).code).toBe('engine.bad_request')
  expect((await running).tokens).toHaveLength(12)
})

test('new weights sample differently, old ones again as before, and each answer says which it was', async () => {
  const versions = (answer: Generation) => answer.segments.map(segment => segment.policyVersion)
  const before = await engine.generate(request(2))
  const to = (version: number, directory: string, digest = '') =>
    engine.updateWeights({ version: policyVersion(version), directory, digest, keepKv: false })
  await to(1, otherDirectory)
  const other = await engine.generate(request(2))
  expect(versions(other)).toEqual([1])
  expect(other.tokens).not.toEqual(before.tokens)
  const wrong = await refused(to(2, modelDirectory, 'f'.repeat(64)))
  expect(wrong.message).toMatch(/digest/)
  expect((await engine.status()).version).toBe(1)
  await to(2, modelDirectory)
  const again = await engine.generate(request(2))
  expect(again.tokens).toEqual(before.tokens)
  expect(versions(again)).toEqual([2])
})

test('the status counts tokens, time and memory', async () => {
  const before = await engine.status()
  await engine.generate(request(4))
  const after = await engine.status()
  expect(after.generatedTokens - before.generatedTokens).toBe(12)
  expect(after.busyMs).toBeGreaterThan(before.busyMs)
  expect(after.cpuMs).toBeGreaterThan(before.cpuMs)
  expect(after.maxRssBytes).toBeGreaterThan(50_000_000)
  expect(after).toMatchObject({ type: 'engine.status', engine: 'local-0', running: 0, waiting: 0 })
})

test('an engine that dies rejects what runs, says so, and leaves no directory behind', async () => {
  const socket = readFileSync(`/proc/${mortal.pid}/cmdline`, 'utf8').match(/unix:([^\0]+)/)![1]!
  expect(existsSync(socket)).toBe(true)
  const running = refused(mortal.generate(request(0, { maxTokens: 100 })))
  process.kill(mortal.pid, 'SIGKILL')
  expect(await running).toMatchObject({ code: 'engine.lost', retriable: true })
  expect((await mortal.lost).message).toMatch(/SIGKILL/)
  expect((await refused(mortal.generate(request(1)))).code).toBe('engine.lost')
  await mortal.close()
  expect(existsSync(dirname(socket))).toBe(false)
}, 120_000)

test('a model that cannot be served says why instead of hanging', async () => {
  const error = await refused(startLocalEngine({ id: engineId('none'), modelDirectory: join(folder, 'nowhere') }))
  expect(error).toMatchObject({ code: 'process.start_failed', boundary: 'process' })
  expect(error.message).toMatch(/nowhere/)
}, 120_000)

test('a renderer answers, and refuses what its template cannot say', async () => {
  const renderer = await startRenderer({ modelDirectory })
  try {
    const { stopTokens, vocabulary } = await renderer.describe()
    expect(vocabulary).toBe(engine.capabilities.vocabulary)
    const prompt = await renderer.prompt([{ role: 'user', content: 'what is 12?' }], [])
    expect(prompt.text).toBe('<|im_start|>user\nwhat is 12?<|im_end|>\n<|im_start|>assistant\n')
    const response = await renderer.toolResponses(['144'])
    expect(response.text).toBe('\n<|im_start|>tool\n144<|im_end|>\n<|im_start|>assistant\n')
    const talk = [
      { role: 'user', content: 'what is 12?' },
      { role: 'assistant', content: 'x' },
    ] as const
    const [first, ...more] = await renderer.conversations(
      Array.from({ length: 300 }, () => talk),
      [],
    )
    expect(more).toHaveLength(299)
    expect(first!.text).toBe(`${prompt.text}x<|im_end|>`)
    expect(first!.tokens.at(-1)).toBe(stopTokens[0])
    expect([...first!.mask]).toEqual([...first!.tokens].map((_, at) => (at < prompt.tokens.length ? 0 : 1)))
    expect(await renderer.decode(first!.tokens)).toBe(first!.text)
    expect(await renderer.encode(first!.text)).toEqual(first!.tokens)
    const error = await refused(renderer.conversations([talk.slice(0, 1)], []))
    expect(error).toMatchObject({ code: 'render.refused', retriable: false })
  } finally {
    await renderer.close()
  }
}, 60_000)

test('kill -9 of the parent leaves neither an engine nor a renderer behind', async () => {
  const child = join(__dirname, '../children/engineParent.ts')
  const parent = spawn(process.execPath, ['-r', join(__dirname, '../../cli/register.js'), child, modelDirectory], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const line = await new Promise<string>((resolve, reject) => {
    createInterface({ input: parent.stdout }).once('line', resolve)
    parent.once('exit', code => reject(new Error(`the parent ended with ${code}`)))
  })
  const pids = JSON.parse(line) as number[]
  expect(pids.every(isAlive)).toBe(true)
  parent.kill('SIGKILL')
  await until(() => !pids.some(isAlive), 10_000)
}, 180_000)
