import { serverHttp } from '../../backends/engines/server/http'
import { recipeSchema } from '../../config'
import { engineOverrides } from '../../config/engineAddress'
import { recipes } from '../../recipes'
import type { TroupeError } from '../../runtime/errors'
import { resolveConfig } from '../../runtime/settings/resolveConfig'

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

test('a text that is not an engine address is refused with what can be written', () => {
  const said = (...addresses: readonly string[]) => {
    try {
      engineOverrides(addresses)
    } catch (thrown) {
      const { code, message, hint } = thrown as TroupeError
      return `${code} ${message} ${hint}`
    }
    return 'taken'
  }
  expect(said('http://127.0.0.1:8000')).toMatch(/config\.bad_engine 'http:.*is not an engine address.*vllm:http/)
  expect(said('vllm:')).toMatch(/'' is not an http or https URL/)
  expect(said('vllm:127.0.0.1:8000')).toMatch(/not an http or https URL/)
  expect(said('vllm:http://host/v?api_key=s3cret')).toMatch(/'http:\/\/host\/v\?\*\*\*' has a query/)
  expect(said('vllm:http://host/#s3cret')).toMatch(/has a query or a fragment/)
  expect(said('local', 'vllm:http://a')).toMatch(/several kinds/)
})

test('credentials are refused, name what to use instead, and are not repeated, however they are written', () => {
  const written = [
    'http://me:s3cret@host',
    'HTTPS://s3cret@host/v1',
    'http://me:s3/cr@et?s3cret@host',
    'me:s3cret@host',
  ]
  for (const url of [...written, 'http://me:s3cret@host:99999', '//me:s3cret@host']) {
    const shown: string[] = []
    for (const attempt of [
      () => engineOverrides([`vllm:${url}`]),
      () => engineOverrides([`local,vlm:${url}`]),
      () => resolved('engine.kind=vllm', `engine.urls=${JSON.stringify([url])}`),
      () => serverHttp(url),
    ]) {
      expect(() => {
        try {
          attempt()
        } catch (thrown) {
          const { message, hint } = thrown as TroupeError
          shown.push(`${message} ${hint ?? ''}`)
          throw thrown
        }
      }).toThrow()
    }
    expect(shown).toHaveLength(4)
    expect(shown.join('\n')).not.toMatch(/s3|cr@et/)
  }
  expect(() => serverHttp('http://me:s3cret@host')).toThrow(/engine\.apiKey/)
  expect(() => resolved('engine.kind=vllm', 'engine.urls=["http://a/?x=1"]')).toThrow(/has a query/)
})

test.each([
  ['vllm', 'http://host:80', 'http://HOST/'],
  ['vllm', 'https://host/a', 'https://host:443/a//'],
  ['sglang', 'http://[::1]:9', 'http://[0:0:0:0:0:0:0:1]:9'],
  ['openai', 'http://host', 'http://host/v1/'],
])('a server that is named twice is no second %s engine: %s and %s', (kind, one, two) => {
  const named = [`${kind}:${one}`, `${kind}:${two}`]
  for (const addresses of [named, [named.join(',')]])
    expect(() => engineOverrides(addresses)).toThrow(/are the same server/)
  expect(() => resolved(`engine.kind=${kind}`, `engine.urls=${JSON.stringify([one, two])}`)).toThrow(
    /are the same server/,
  )
})

test('servers that differ in scheme, port or path are several; local is named once, with a count', () => {
  const urls = ['http://h', 'https://h', 'http://h:81', 'http://h/v1', 'http://h/V1']
  expect(resolved(...engineOverrides(urls.map(url => `vllm:${url}`))).urls).toEqual(urls)
  expect(() => engineOverrides(['local,local'])).toThrow(
    expect.objectContaining({ hint: expect.stringMatching(/engine\.count=2/) }),
  )
})

test('KV of older weights is kept where the recipe says so, and a pause in place needs that', () => {
  expect(resolved().keepKv).toBe(false)
  const far = ['engine.kind=sglang', 'engine.urls=["http://a"]', 'engine.pause=in_place']
  expect(() => resolved(...far)).toThrow(/engine\.keepKv/)
  expect(resolved(...far, 'engine.keepKv=true')).toMatchObject({ pause: 'in_place', keepKv: true })
})

test('a recipe whose servers are not named, or that names some for a local engine, is refused', () => {
  expect(() => resolved('engine.kind=vllm')).toThrow(/expected at least one vllm server/)
  expect(() => resolved('engine.urls=["http://a"]')).toThrow(/local engines have no URLs/)
  expect(() => resolved('engine.kind=vllm', 'engine.urls=["ftp://a"]')).toThrow(/'ftp:\/\/a' is not an http/)
  const long = ['limits.contextTokens=200000', 'model.config.max_position_embeddings=200000']
  const far = ['engine.kind=vllm', 'engine.urls=["http://a"]', ...long]
  expect(resolved(...far).urls).toEqual(['http://a']) // how much KV there is, the server says
  expect(() => resolved(...long)).toThrow(/does not fit engine\.kvTokens/)
})
