import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { startLocalEngine } from '../../backends/engines/local/local'
import { startRenderer } from '../../backends/renderer/rendererProcess'
import { engineId } from '../../messages/ids'
import { engineContract } from '../backends/engines/contract'
import { perturbModel } from '../support/forward'
import { makeTinyModel } from '../support/tinyModel'

const config = {
  hidden_size: 64,
  intermediate_size: 128,
  num_key_value_heads: 2,
  max_position_embeddings: 768,
  tie_word_embeddings: true,
  initializer_range: 0.2,
}
const chatTemplate = '{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}'

engineContract({
  name: 'local',
  tolerance: 1e-3,
  timeoutMs: 120_000,
  async start() {
    const folder = mkdtempSync(join(tmpdir(), 'troupe-contract-'))
    const weights = join(folder, 'model')
    const otherWeights = join(folder, 'other')
    await makeTinyModel(weights, { config, chatTemplate, seed: 1 })
    perturbModel(weights, otherWeights, 0.3)
    const renderer = await startRenderer({ modelDirectory: weights })
    const device = { device: 'cpu', threads: 1, contextTokens: 512 }
    const engine = await startLocalEngine({ id: engineId('local-0'), modelDirectory: weights, ...device })
    return {
      engine,
      weights,
      otherWeights,
      context: Int32Array.from({ length: 150 }, (_, at) => 10 + ((at * 7) % 200)),
      decode: tokens => renderer.decode(tokens),
      async stop() {
        await engine.close()
        await renderer.close()
        rmSync(folder, { recursive: true, force: true })
      },
    }
  },
})
