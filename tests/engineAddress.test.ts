import { recipes } from '../recipes'
import { resolveConfig } from '../runtime/config'
import { engineOverrides } from '../runtime/engines/address'
import type { TroupeError } from '../runtime/errors'
import { recipeSchema } from '../runtime/recipe'

const resolved = (...overrides: readonly string[]) =>
  resolveConfig(recipeSchema, { what: 'recipe', recipe: { ...recipes.get('quickstart')!.config }, overrides }).value
    .engine

test('each --engine is a server of its own, in order; none leaves the recipe as it is', () => {
  const addresses = ['vllm:http://127.0.0.1:8000/', 'vllm:https://gpu-1.internal/v,vllm:http://[::1]:9']
  expect(resolved(...engineOverrides(addresses))).toMatchObject({
    kind: 'vllm',
    urls: ['http://127.0.0.1:8000', 'https://gpu-1.internal/v', 'http://[::1]:9'],
  })
  expect(resolved(...engineOverrides(['sglang:http://127.0.0.1:30000']))).toMatchObject({
    kind: 'sglang',
    pause: 'abort',
  })
  expect(resolved(...engineOverrides(['openai:http://127.0.0.1:8080/v1']))).toMatchObject({
    ...{ kind: 'openai', urls: ['http://127.0.0.1:8080/v1'] },
  })
  expect(engineOverrides([])).toEqual([])
  expect(resolved(...engineOverrides(['local']))).toMatchObject({ kind: 'local', urls: [] })
})

test('what is no engine is refused with what can be written', () => {
  const said = (...addresses: readonly string[]) => {
    try {
      engineOverrides(addresses)
    } catch (thrown) {
      const { code, message, hint } = thrown as TroupeError
      return `${code} ${message} ${hint}`
    }
    return 'taken'
  }
  expect(said('http://127.0.0.1:8000')).toMatch(/config\.bad_engine 'http:.*is no engine.*vllm:http/)
  expect(said('vllm:')).toMatch(/'' is no http or https URL/)
  expect(said('vllm:127.0.0.1:8000')).toMatch(/no http or https URL/)
  expect(said('vllm:http://user:pass@host')).toMatch(/no http or https URL/)
  expect(said('local', 'vllm:http://a')).toMatch(/several kinds/)
})

test('a recipe whose servers are not named, or that names some for a local engine, is refused', () => {
  expect(() => resolved('engine.kind=vllm')).toThrow(/names no vllm server/)
  expect(() => resolved('engine.urls=["http://a"]')).toThrow(/local engines have none/)
  expect(() => resolved('engine.kind=vllm', 'engine.urls=["ftp://a"]')).toThrow(/'ftp:\/\/a' is no http/)
  const long = ['limits.contextTokens=200000', 'model.config.max_position_embeddings=200000']
  const far = ['engine.kind=vllm', 'engine.urls=["http://a"]', ...long]
  expect(resolved(...far).urls).toEqual(['http://a']) // how much KV there is, the server says
  expect(() => resolved(...long)).toThrow(/does not fit engine\.kvTokens/)
})
