/** The command line of a launched server: what follows from which field. */
import { launchCommand } from '../../../../backends/engines/launch/command'
import { recipeSchema } from '../../../../config'
import { resolveConfig } from '../../../../runtime/settings/resolveConfig'

const architecture = { hidden_size: 64, num_hidden_layers: 2, num_attention_heads: 2, vocab_size: 100 }
const place = { modelDirectory: '/m', architecture, port: 4242, token: 'secret', vllmPython: undefined }

function commandOf(kind: string, ...overrides: string[]) {
  const recipe = { name: 'r', model: { from: 'directory', path: '/m' }, engine: { kind, launch: {} } }
  const { value } = resolveConfig(recipeSchema, { what: 'recipe r', recipe, overrides })
  const { command, env } = launchCommand(value, place)
  const at = (flag: string) => command[command.indexOf(flag) + 1]
  return { words: command, text: command.join(' '), env, at }
}

test('vllm serve is told what the engine needs for training, and listens on loopback with a key that no argument holds', () => {
  const { words, text, env, at } = commandOf('vllm', 'limits.contextTokens=4096', 'engine.dtype=bfloat16')
  expect(words.slice(0, 3)).toEqual(['vllm', 'serve', '/m'])
  expect([at('--host'), at('--port'), at('--max-model-len'), at('--dtype')]).toEqual(['127.0.0.1', '4242', '4096', 'bfloat16']) // biome-ignore format: one thing
  expect([at('--max-num-seqs'), at('--gpu-memory-utilization'), at('--tensor-parallel-size')]).toEqual(['64', '0.8', '1']) // biome-ignore format: one thing
  expect(text).toContain(
    '--scheduling-policy priority --logprobs-mode processed_logprobs --enable-prompt-tokens-details',
  )
  expect(text).not.toContain('secret')
  expect(text).not.toMatch(/--enable-(sleep-mode|lora)/)
  expect(env).toMatchObject({ VLLM_API_KEY: 'secret', VLLM_SERVER_DEV_MODE: '1' })
})

test('colocated servers can sleep, wide ones span GPUs, adapters are taken unless their base is discarded', () => {
  const colocated = commandOf(
    'vllm',
    'hardware.plan.kind=colocated',
    'hardware.tensorParallel=2',
    'train.lora={rank: 8}',
  )
  expect(colocated.text).toContain('--enable-sleep-mode')
  expect(colocated.at('--tensor-parallel-size')).toBe('2')
  expect(colocated.text).toContain('--enable-lora --max-lora-rank 8 --max-loras 2')
  expect(colocated.env.VLLM_ALLOW_RUNTIME_LORA_UPDATING).toBe('1')
  const discarded = commandOf('vllm', 'hardware.plan={kind: colocated, sleepLevel: 2}', 'train.lora={rank: 8}')
  expect(discarded.text).not.toContain('--enable-lora')
})

test('on a CPU the KV cache is what kvTokens take, and no GPU is asked for', () => {
  // 2 layers × 2 heads × 32 × keys and values × 2 bytes are 512 bytes a token; 2²² tokens are 2 GiB.
  const { text, env } = commandOf('vllm', 'engine.device=cpu', 'engine.kvTokens=4194304', 'engine.threads=3')
  expect(text).toContain('--enforce-eager')
  expect(text).not.toMatch(/gpu-memory|tensor-parallel|sleep-mode/)
  expect(env).toMatchObject({ VLLM_TARGET_DEVICE: 'cpu', VLLM_CPU_KVCACHE_SPACE: '2', OMP_NUM_THREADS: '3' })
})

test('SGLang gets six tokens more than the context, and frees memory only in a colocated plan', () => {
  const { words, text, at } = commandOf('sglang', 'limits.contextTokens=4096')
  expect(words.slice(0, 3)).toEqual(['python3', '-m', 'sglang.launch_server'])
  expect([at('--model-path'), at('--context-length'), at('--mem-fraction-static')]).toEqual(['/m', '4102', '0.8'])
  expect(text).toContain('--incremental-streaming-output')
  expect(text).not.toContain('--enable-memory-saver')
  expect(commandOf('sglang', 'hardware.plan.kind=colocated').text).toContain('--enable-memory-saver')
})

test('a recipe gives its own program, flags and variables', () => {
  const { words, text, env } = commandOf(
    'vllm',
    'engine.launch={command: [/opt/vllm, -v], flags: {block-size: 32, enforce-eager: true, enable-prefix-caching: false}, env: {A: b}}',
  )
  expect(words.slice(0, 4)).toEqual(['/opt/vllm', '-v', 'serve', '/m'])
  expect(text).toMatch(/--block-size 32 --enforce-eager$/)
  expect(env.A).toBe('b')
})
