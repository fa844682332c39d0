/** The local engine against the contract of engines, on a model of a few thousand parameters that the test makes. */
import { execFileSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { engineId } from '../../messages/ids'
import { startLocalEngine } from '../../runtime/engines/local'
import { policyDirectory, pythonPath } from '../../runtime/python'
import { startRenderer } from '../../runtime/rendererProcess'
import { engineContract } from '../engineContract'
import { perturbModel } from '../support/forward'

const spec = (folder: string) => ({
  config: {
    model_type: 'llama',
    hidden_size: 64,
    intermediate_size: 128,
    num_hidden_layers: 2,
    num_attention_heads: 4,
    num_key_value_heads: 2,
    max_position_embeddings: 768,
    tie_word_embeddings: true,
    initializer_range: 0.2,
  },
  corpus: join(folder, 'corpus.txt'),
  vocabulary: 280,
  seed: 1,
  chatTemplate: join(folder, 't.jinja'),
})

engineContract({
  name: 'local',
  tolerance: 1e-3,
  timeoutMs: 120_000,
  async start() {
    const folder = mkdtempSync(join(tmpdir(), 'troupe-contract-'))
    const weights = join(folder, 'model')
    const otherWeights = join(folder, 'other')
    writeFileSync(join(folder, 'corpus.txt'), 'what is 12 times 34?\n'.repeat(20))
    writeFileSync(join(folder, 't.jinja'), '{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}')
    const args = ['-m', 'troupe_policy.init_model', '--out', weights, '--spec', JSON.stringify(spec(folder))]
    execFileSync(pythonPath(), args, { cwd: policyDirectory(), timeout: 120_000, stdio: ['ignore', 'ignore', 'pipe'] })
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
