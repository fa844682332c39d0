/** The vLLM engine over a real server on this machine's CPU, with SmolLM2-135M in float32. */
import { existsSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { startVllmEngine } from '../../backends/engines/vllm/vllm'
import { startRenderer } from '../../backends/renderer/rendererProcess'
import { smollm2Directory } from '../../cli/setupCommand'
import { engineId } from '../../messages/ids'
import { engineContract } from '../backends/engines/contract'
import { perturbModel } from '../support/forward'
import { startVllm } from '../support/vllm'

const model = process.env.TROUPE_TEST_MODEL ?? resolve(__dirname, '../..', smollm2Directory)
const question = 'Write down the first ten prime numbers, and say of each why it is one. '.repeat(8)

engineContract({
  name: 'vllm',
  tolerance: 2e-3,
  timeoutMs: 240_000,
  async start() {
    if (!existsSync(join(model, 'config.json'))) throw new Error(`${model} holds no model: npx troupe setup smollm2`)
    const folder = mkdtempSync(join(tmpdir(), 'troupe-vllm-test-'))
    const otherWeights = join(folder, 'other')
    perturbModel(model, otherWeights, 0.1)
    const server = await startVllm({ modelDirectory: model, contextTokens: 1024 })
    const renderer = await startRenderer({ modelDirectory: model })
    const decode = (tokens: Int32Array) => renderer.decode(tokens)
    const { vocabulary } = await renderer.describe()
    const expected = { tiedHead: true, vocabulary, contextTokens: 1024, trained: true, decode, maxSequences: 64 }
    const engine = await startVllmEngine({ id: engineId('vllm-0'), url: server.url, expected })
    const { tokens } = await renderer.prompt([{ role: 'user', content: question }], [])
    return {
      engine,
      weights: model,
      otherWeights,
      context: tokens,
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
