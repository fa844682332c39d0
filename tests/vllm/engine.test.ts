/** The vLLM engine over a real server on this machine's CPU, with a random Llama in float32; smoke.test.ts has SmolLM2. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { startVllmEngine } from '../../backends/engines/vllm/vllm'
import { startRenderer } from '../../backends/renderer/rendererProcess'
import { engineId } from '../../messages/ids'
import { engineContract } from '../backends/engines/contract'
import { perturbModel } from '../support/forward'
import { makeTinyModel } from '../support/tinyModel'
import { startVllm } from '../support/vllm'

const contextTokens = 1024
const config = {
  // vLLM's attention on CPUs wants heads of at least 32.
  ...{ hidden_size: 128, intermediate_size: 256, num_hidden_layers: 4, num_attention_heads: 4 },
  ...{ max_position_embeddings: 2048, tie_word_embeddings: true },
  // Weights of this size make distributions that differ clearly between the two models.
  initializer_range: 0.2,
}
const chatTemplate = '{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}'

engineContract({
  name: 'vllm',
  tolerance: 2e-3,
  timeoutMs: 240_000,
  async start() {
    const folder = mkdtempSync(join(tmpdir(), 'troupe-vllm-test-'))
    const [weights, otherWeights] = [join(folder, 'model'), join(folder, 'other')]
    await makeTinyModel(weights, { config, chatTemplate })
    perturbModel(weights, otherWeights, 0.3)
    const server = await startVllm({ modelDirectory: weights, contextTokens })
    const renderer = await startRenderer({ modelDirectory: weights })
    const decode = (tokens: Int32Array) => renderer.decode(tokens)
    const { vocabulary } = await renderer.describe()
    const expected = { tiedHead: true, vocabulary, contextTokens, trained: true, decode, maxSequences: 64 }
    const engine = await startVllmEngine({ id: engineId('vllm-0'), url: server.url, expected })
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
        rmSync(folder, { recursive: true, force: true })
      },
    }
  },
})
