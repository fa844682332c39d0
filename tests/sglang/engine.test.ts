/** The SGLang engine over a real server on this machine's CPU, with a random Llama in float32. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type SglangEngineOptions, startSglangEngine } from '../../backends/engines/sglang/sglang'
import { startRenderer } from '../../backends/renderer/rendererProcess'
import { engineId } from '../../messages/ids'
import { engineContract } from '../backends/engines/contract'
import { perturbModel } from '../support/forward'
import { type SglangProcessOptions, startSglang } from '../support/sglang'
import { makeTinyModel } from '../support/tinyModel'

const contextTokens = 1024
// Weights of this size make distributions that differ clearly between the two models.
const config = { hidden_size: 64, max_position_embeddings: 2048, initializer_range: 0.2 }
const chatTemplate = '{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}'
const folder = mkdtempSync(join(tmpdir(), 'troupe-sglang-test-'))
const weights = join(folder, 'model')
const otherWeights = join(folder, 'other')
beforeAll(async () => {
  await makeTinyModel(weights, { config, chatTemplate })
  perturbModel(weights, otherWeights, 0.3)
}, 120_000)
afterAll(() => rmSync(folder, { recursive: true, force: true }))

type Options = Partial<SglangEngineOptions> & Pick<SglangProcessOptions, 'flags'>

const contracts: readonly (readonly [string, Options])[] = [
  ['sglang', { flags: ['--incremental-streaming-output'] }],
  ['sglang (each event repeats the tokens, paused by retracting)', { pause: 'retract' }],
]
for (const [name, { flags = [], ...options }] of contracts) {
  engineContract({
    name,
    tolerance: 2e-3,
    timeoutMs: 240_000,
    async start() {
      const renderer = await startRenderer({ modelDirectory: weights })
      const server = await startSglang({ modelDirectory: weights, contextTokens: contextTokens + 6, flags })
      const decode = (tokens: Int32Array) => renderer.decode(tokens)
      const { vocabulary } = await renderer.describe()
      const expected = { vocabulary, contextTokens, trained: true, decode, maxSequences: 16 }
      const engine = await startSglangEngine({ id: engineId('sglang-0'), url: server.url, expected, ...options })
      return {
        engine,
        weights,
        otherWeights,
        context: Int32Array.from({ length: 150 }, (_, i) => 10 + ((i * 37) % 250)),
        decode,
        async stop() {
          await engine.close()
          await renderer.close()
          await server.stop()
        },
      }
    },
  })
}
