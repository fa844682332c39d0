/**
 * Thousands of calls at once, and a renderer that stands still for a while, make no renderer miss a deadline and cost no turn:
 * a call's deadline begins when it is made, and a late one is made again.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { inferencePort } from '../../actors/inference/inferencePort'
import { simulatedEngine } from '../../backends/engines/simulated/simulated'
import { startRenderer } from '../../backends/renderer/rendererProcess'
import type { EngineModel } from '../../kernels'
import type { GenerateTurn } from '../../messages/commands'
import { engineId, epoch, groupId, trajectoryId } from '../../messages/ids'
import { systemEffects } from '../../runtime/effects'
import { makeTinyModel } from '../support/tinyModel'

jest.setTimeout(600_000)

/** Steps of 2 ms, which a speed of 1000 makes 2 µs. */
const flat = { overhead: 2, denseFloor: 0, densePerToken: 0, decodeBase: 0, decodePerSequence: 0, decodePerKvToken: 0 }
const model: EngineModel = {
  ...{ name: 'quick', family: 'vllm', kvTokens: 65_536, blockTokens: 16, maxSequences: 256, maxBatchTokens: 8192 },
  ...{ prefixSharing: true, stepMs: { ...flat, prefillBase: 0, prefillPerToken: 0, prefillPerPair: 0 } },
}

const directory = mkdtempSync(join(tmpdir(), 'troupe-slice-renderer-'))
const modelDirectory = join(directory, 'model')
beforeAll(() => makeTinyModel(modelDirectory, { chatTemplate: '{{ messages[0].content }}' }))
afterAll(() => rmSync(directory, { recursive: true, force: true }))

test('16,384 decodes at once are all answered, although together they take longer than the deadline of one', async () => {
  const renderer = await startRenderer({ modelDirectory, timeoutMs: 250 })
  try {
    const begun = performance.now()
    const asked = Array.from({ length: 16_384 }, (_, n) => renderer.decode(Int32Array.of(20 + (n % 50), 21)))
    const failed = (await Promise.allSettled(asked)).filter(({ status }) => status === 'rejected')
    expect(failed).toHaveLength(0)
    expect(performance.now() - begun).toBeGreaterThan(250)
  } finally {
    await renderer.close()
  }
})

test('32 engines that answer 4,096 turns at once waste at most 1 % of them while the renderer stands still for 3 deadlines', async () => {
  const renderer = await startRenderer({ modelDirectory, timeoutMs: 1_000 })
  const engines = Array.from({ length: 32 }, (_, n) =>
    simulatedEngine({
      ...{ id: engineId(`e-${n}`), model, vocabulary: 280, contextTokens: 128, medianTokens: 16 },
      ...{ speed: 1000, decode: (tokens: Int32Array) => renderer.decode(tokens) },
    }),
  )
  const ports = engines.map(engine => inferencePort(engine, false, systemEffects))
  const ask = (group: number, member: number): GenerateTurn =>
    ({
      ...{ type: 'turn.generate', trajectory: trajectoryId(groupId(`g${group}`), member), turn: 0, attempt: 0 },
      ...{ epoch: epoch(0), order: group, seed: member, context: Int32Array.of(20, 21, 22), resumedTokens: 0 },
      ...{ maxTokens: 32, sampling: { temperature: 1, topP: 1, topK: 0, minP: 0, stopTokens: [] } },
    }) as unknown as GenerateTurn
  try {
    process.kill(renderer.pid, 'SIGSTOP')
    const going = setTimeout(() => process.kill(renderer.pid, 'SIGCONT'), 3_000)
    const turns = Array.from({ length: 128 * 32 }, (_, n) =>
      ports[n % 32]!({ kind: 'generate', ask: ask(Math.floor(n / 32), n % 32) } as never, new AbortController().signal),
    )
    const facts = (await Promise.all(turns)).flatMap(decision => decision!.facts)
    clearTimeout(going)
    const wasted = facts.filter(({ type }) => type === 'turn.interrupted')
    expect(facts).toHaveLength(4096)
    expect(wasted.length).toBeLessThanOrEqual(40)
    expect(facts.filter(({ type }) => type === 'turn.completed').length).toBe(4096 - wasted.length)
  } finally {
    process.kill(renderer.pid, 'SIGCONT')
    for (const engine of engines) await engine.close()
    await renderer.close()
  }
})
