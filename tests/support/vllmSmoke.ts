/**
 * Measures a real vLLM server with SmolLM2-135M on a device: the vLLM part of the smoke run.
 *
 * in   cpu or cuda
 * out  figures: log-probabilities compared with transformers', tokens a second, sleep, wake, new weights
 * Invariant: if vLLM or the model is not installed, the only figure says so, with the command that installs it. A CPU
 * server frees no memory when it sleeps, so freed memory is measured on a GPU only.
 */
import { execFileSync } from 'node:child_process'
import { existsSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import type { Engine, Generation } from '../../backends/engines/engine'
import { startVllmEngine } from '../../backends/engines/vllm/vllm'
import type { Renderer } from '../../backends/renderer/renderer'
import { startRenderer } from '../../backends/renderer/rendererProcess'
import { smollm2Directory } from '../../cli/setupCommand'
import { engineId, policyVersion } from '../../messages/ids'
import { asError } from '../../runtime/errors'
import { requestOn } from '../backends/engines/contract'
import { type Forward, farthest, forwardReference, perturbModel } from './forward'
import type { FigureLine } from './gpuReport'
import { startVllm, vllmIsInstalled } from './vllm'

type SmokeDevice = 'cpu' | 'cuda'

const check = 'vllm'
const contextTokens = 1024
const sequences = 16
/**
 * Largest allowed difference, in nats, of a log-probability from transformers' in float32. The GPU's bound is larger,
 * since the server computes in bfloat16 there, and rounding grows over 30 layers.
 */
const tolerance = { cpu: 2e-3, cuda: 0.3 } as const
const question = 'Write down the first ten prime numbers, and say of each why it is one. '

export async function* vllmFigures(device: SmokeDevice): AsyncGenerator<FigureLine> {
  const model = resolve(__dirname, '../..', smollm2Directory)
  const missing = !vllmIsInstalled() ? 'vllm' : !existsSync(join(model, 'config.json')) ? 'smollm2' : undefined
  if (missing !== undefined) {
    yield { check, figure: 'ran to its end', ok: null, why: `npx troupe setup ${missing} installs what it needs` }
    return
  }
  const folder = mkdtempSync(join(tmpdir(), 'troupe-vllm-smoke-'))
  const reference = forwardReference()
  try {
    const other = join(folder, 'other')
    perturbModel(model, other, 0.1)
    const began = performance.now()
    const server = await startVllm({
      ...{ modelDirectory: model, contextTokens, maxSequences: sequences, device },
      dtype: device === 'cpu' ? 'float32' : 'bfloat16',
    })
    yield seconds('start of the server', began)
    const renderer = await startRenderer({ modelDirectory: model })
    try {
      const decode = (tokens: Int32Array) => renderer.decode(tokens)
      const { vocabulary } = await renderer.describe()
      const expected = { tiedHead: true, vocabulary, contextTokens, trained: true, decode, maxSequences: sequences }
      const engine = await startVllmEngine({ id: engineId('vllm'), url: server.url, expected, sleepLevel: 2 })
      yield* figuresOf(engine, renderer, { device, model, other, forward: reference.forward })
      await engine.close()
    } finally {
      await renderer.close()
      await server.stop()
    }
  } catch (thrown) {
    yield { check, figure: 'ran to its end', ok: false, why: asError(thrown).message }
  } finally {
    await reference.close()
    rmSync(folder, { recursive: true, force: true })
  }
}

interface Measured {
  readonly device: SmokeDevice
  readonly model: string
  readonly other: string
  readonly forward: Forward
}

async function* figuresOf(
  engine: Engine,
  renderer: Renderer,
  { device, model, other, forward }: Measured,
): AsyncGenerator<FigureLine> {
  const { tokens: context } = await renderer.prompt([{ role: 'user', content: question }], [])
  const generate = (): Promise<Generation> => engine.generate(requestOn(context, { maxTokens: 64 }))
  const distance = async (weights: string, figure: string): Promise<FigureLine> => {
    const { tokens, logprobs } = await generate()
    const [expected] = await forward(weights, [{ context, tokens, temperature: 1 }])
    const value = farthest(logprobs, expected!)
    const bound = tolerance[device]
    return { check, figure, value, unit: 'nats', bound: `≤ ${bound}`, ok: tokens.length > 0 && value <= bound }
  }
  yield await distance(model, 'difference to transformers')
  const began = performance.now()
  const all = await Promise.all(Array.from({ length: sequences }, generate))
  const sampled = all.reduce((sum, { tokens }) => sum + tokens.length, 0)
  yield rate(`tokens a second, ${sequences} at once`, sampled, began)

  const update = { version: policyVersion(1), directory: other, digest: '', keepKv: false }
  const before = usedMib(device)
  let at = performance.now()
  await engine.sleep!()
  yield seconds('falling asleep, level 2', at)
  if (before !== undefined) {
    const value = before - usedMib(device)!
    yield { check, figure: 'memory freed by sleep', value, unit: 'MiB', bound: '> 0', ok: value > 0 }
  }
  at = performance.now()
  await engine.wake!(update)
  yield seconds('waking with new weights', at)
  yield await distance(other, 'difference after waking with new weights')
  at = performance.now()
  await engine.updateWeights({ ...update, version: policyVersion(2), directory: model })
  yield seconds('update of weights while awake', at)
  yield await distance(model, 'difference after an update while awake')
}

const seconds = (figure: string, began: number): FigureLine => ({
  ...{ check, figure, value: (performance.now() - began) / 1000, unit: 's', bound: null, ok: true },
})

const rate = (figure: string, count: number, began: number): FigureLine => ({
  ...{
    check,
    figure,
    value: count / ((performance.now() - began) / 1000),
    unit: 'tokens/s',
    bound: null,
    ok: count > 0,
  },
})

/** Memory in use on the first GPU, MiB; undefined on a CPU. */
function usedMib(device: SmokeDevice): number | undefined {
  if (device === 'cpu') return undefined
  const args = ['--query-gpu=memory.used', '--format=csv,noheader,nounits', '--id=0']
  return Number(execFileSync('nvidia-smi', args, { encoding: 'utf8', timeout: 30_000 }).trim())
}
