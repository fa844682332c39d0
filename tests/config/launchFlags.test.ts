/** Flags of engine.launch: what is refused at the start, and what the refusal names. */
import { recipeSchema } from '../../config'
import { engineOverrides } from '../../config/engineAddress'
import { launchFlagFault } from '../../config/launchFlags'
import { resolveConfig } from '../../runtime/settings/resolveConfig'

const resolved = (...overrides: string[]) => {
  const recipe = { name: 'r', model: { from: 'directory', path: '/m' }, engine: { kind: 'vllm', launch: {} } }
  return resolveConfig(recipeSchema, { what: 'recipe r', recipe, overrides }).value
}

test.each([
  ['vllm', 'enforce-eagar', "is not a flag of vllm serve; did you mean 'enforce-eager'?"],
  ['vllm', 'no-enable-prefix-cachin', "is not a flag of vllm serve; did you mean 'enable-prefix-caching'?"],
  [
    'vllm',
    'max-model-len',
    'is decided by limits.contextTokens and evaluation.limits.contextTokens; leave it out here',
  ],
  ['sglang', 'attention-backnd', "is not a flag of sglang.launch_server; did you mean 'attention-backend'?"],
  ['sglang', 'mem-fraction-static', 'is decided by hardware.engineMemoryShare; leave it out here'],
] as const)('%s: the flag %s %s', (kind, flag, why) => {
  expect(launchFlagFault(kind, flag)).toBe(why)
})

test('known flags are taken, with and without no-', () => {
  for (const flag of ['enforce-eager', 'no-enforce-eager', 'block-size'])
    expect(launchFlagFault('vllm', flag)).toBe(undefined)
  for (const flag of ['attention-backend', 'disable-cuda-graph'])
    expect(launchFlagFault('sglang', flag)).toBe(undefined)
})

test('a recipe with an unknown flag, or with launch for another kind of engine, is refused', () => {
  expect(() => resolved('engine.launch.flags.enforce-eagar=true')).toThrow(
    /engine\.launch\.flags\.enforce-eagar: is not a flag of vllm serve; did you mean 'enforce-eager'\?/,
  )
  expect(() => resolved('engine.kind=local')).toThrow(
    /engine\.launch: starts vLLM or SGLang servers, but engine\.kind is local/,
  )
  expect(() => resolved('engine.launch.flags=[--block-size, 32]')).toThrow(
    /engine\.launch\.flags: expected an object of names and values, received array/,
  )
  expect(resolved('engine.launch.flags.enforce-eager=true').engine.launch!.flags).toEqual({ 'enforce-eager': true })
})

test('--engine replaces the servers of a recipe by engines of any kind', () => {
  expect(resolved(...engineOverrides(['local'])).engine).toMatchObject({ kind: 'local', launch: null })
  expect(resolved(...engineOverrides(['vllm:http://127.0.0.1:8000'])).engine.urls).toEqual(['http://127.0.0.1:8000'])
})
