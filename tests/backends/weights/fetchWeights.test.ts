/** Weights reach an engine whose host does not see the learner's directory: over HTTP, whole, and nothing but the model. */
import { createHash, randomBytes } from 'node:crypto'
import {
  copyFileSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { createServer, type IncomingMessage, request } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { inferencePort } from '../../../actors/inference/inferencePort'
import type { Engine, WeightsUpdate } from '../../../backends/engines/engine'
import { weightsHere } from '../../../backends/weights/fetchWeights'
import { servedWeights } from '../../../backends/weights/servedWeights'
import { serveWeights, type WeightServer } from '../../../backends/weights/serveWeights'
import { policyVersion } from '../../../messages/ids'
import { systemEffects } from '../../../runtime/effects'

const directory = mkdtempSync(join(tmpdir(), 'troupe-fetched-'))
const root = join(directory, 'run')
const version = join(root, 'weights', 'v000001-e7')
const bytes = randomBytes(3_000_000)
const digest = createHash('sha256').update(bytes).digest('hex')
const elsewhere = pathToFileURL(join(directory, 'not-seen-here')).href

const home = process.env.TROUPE_HOME
let server: WeightServer
beforeAll(async () => {
  process.env.TROUPE_HOME = join(directory, 'home')
  mkdirSync(version, { recursive: true })
  writeFileSync(join(version, 'model.safetensors'), bytes)
  writeFileSync(join(version, 'config.json'), '{"model_type":"llama"}')
  mkdirSync(join(version, 'optimizer'))
  writeFileSync(join(version, 'optimizer', 'state.safetensors'), 'moments')
  writeFileSync(join(version, '.secret'), 'no')
  writeFileSync(join(root, 'key.pem'), 'no')
  symlinkSync(join(root, 'key.pem'), join(version, 'link.json'))
  server = await serveWeights({ root, address: '127.0.0.1:0', token: '' })
})
afterAll(async () => {
  if (home === undefined) delete process.env.TROUPE_HOME
  else process.env.TROUPE_HOME = home
  await server.close()
  rmSync(directory, { recursive: true, force: true })
})

const weights = () => ({ url: elsewhere, served: server.urlOf(version), digest })
const into = (name: string) => join(directory, name)

test('what was published is fetched once, whole, by all engines of a process', async () => {
  const all = await Promise.all([1, 2, 3].map(() => weightsHere(weights(), { into: into('a') })))
  expect(new Set(all).size).toBe(1)
  expect(readdirSync(all[0]!).sort()).toEqual(['config.json', 'model.safetensors'])
  expect(readFileSync(join(all[0]!, 'model.safetensors')).equals(bytes)).toBe(true)
  expect(readdirSync(into('a'))).toHaveLength(1)
  const old = server
  server = await serveWeights({ root, address: '127.0.0.1:0', token: '' })
  const served = old.urlOf(version)
  await old.close()
  expect(await weightsHere({ ...weights(), served }, { into: into('a') })).toBe(all[0]) // nobody is asked again
})

test('where the learner’s own directory is seen, nothing is fetched', async () => {
  expect(await weightsHere({ ...weights(), url: pathToFileURL(version).href, served: 'http://127.0.0.1:9' })).toBe(
    version,
  )
})

test('where the learner’s path holds other weights on this host, its own are fetched; where nothing is served, the path is what there is', async () => {
  const other = join(directory, 'other', 'v000001-e7')
  mkdirSync(other, { recursive: true })
  writeFileSync(join(other, 'config.json'), '{"model_type":"llama"}')
  writeFileSync(join(other, 'model.safetensors'), 'of another run')
  const published = { ...weights(), url: pathToFileURL(other).href }
  const both = await Promise.all([1, 2].map(() => weightsHere(published, { into: into('o') })))
  expect(new Set(both).size).toBe(1)
  expect(readFileSync(join(both[0]!, 'model.safetensors')).equals(bytes)).toBe(true)
  expect(await weightsHere({ url: published.url, digest })).toBe(other)
})

const engineThatTakes = (take: (update: WeightsUpdate) => unknown) =>
  ({
    id: 'e',
    capabilities: { takesAdapters: true },
    updateWeights: async (update: WeightsUpdate) => void take(update),
  }) as unknown as Engine

test('an engine is given the fetched directory', async () => {
  const given: string[] = []
  const engine = engineThatTakes(({ directory }) => given.push(directory))
  const published = {
    ...weights(),
    type: 'weights.published',
    at: 0,
    version: policyVersion(1),
    step: 1,
    bytes: 0,
  } as const
  const answer = await inferencePort(
    engine,
    false,
    systemEffects,
  )({ kind: 'update', weights: published }, new AbortController().signal)
  expect(answer).toMatchObject({ facts: [{ type: 'weights.applied', version: 1, digest }] })
  expect(readFileSync(join(given[0]!, 'model.safetensors')).equals(bytes)).toBe(true)
})

test('adapters are fetched alone by an engine that takes them, and the whole model by one that does not', async () => {
  const adapters = randomBytes(1000)
  const adapter = { digest: createHash('sha256').update(adapters).digest('hex'), bytes: adapters.length }
  mkdirSync(join(version, 'adapter'))
  writeFileSync(join(version, 'adapter', 'adapter_model.safetensors'), adapters)
  writeFileSync(join(version, 'adapter', 'adapter_config.json'), '{"peft_type":"LORA"}')
  for (const takesAdapters of [true, false]) {
    const given: WeightsUpdate[] = []
    const engine = { ...engineThatTakes(update => given.push(update)), capabilities: { takesAdapters } } as Engine
    const said = {
      ...weights(),
      type: 'weights.published',
      at: 0,
      version: policyVersion(2),
      step: 2,
      bytes: 0,
    } as const
    const update = { kind: 'update', weights: { ...said, adapter } } as const
    const answer = await inferencePort(engine, false, systemEffects)(update, new AbortController().signal)
    expect(answer).toMatchObject({ facts: [{ type: 'weights.applied', version: 2, digest }] })
    const [taken] = given
    expect(taken).toMatchObject({ isAdapter: takesAdapters, digest: takesAdapters ? adapter.digest : digest })
    const files = takesAdapters
      ? ['adapter_config.json', 'adapter_model.safetensors']
      : ['config.json', 'model.safetensors']
    expect(readdirSync(taken!.directory).sort()).toEqual(files)
  }
  rmSync(join(version, 'adapter'), { recursive: true })
})

test('a connection that breaks in the middle is gone on with from where it broke', async () => {
  const ranges: string[] = []
  let broken = 0
  const proxy = createServer((incoming, response) => {
    const target = new URL(incoming.url!, server.urlOf(version))
    const onward = request(
      target,
      { headers: { ...incoming.headers, host: target.host } },
      (answer: IncomingMessage) => {
        response.writeHead(answer.statusCode!, answer.headers)
        let passed = 0
        const breaks = broken < 2 && target.pathname.endsWith('safetensors')
        if (breaks) broken++
        answer.on('data', (chunk: Buffer) => {
          passed += chunk.length
          if (!breaks || passed < 1_000_000) response.write(chunk)
          else response.write(chunk, () => response.destroy())
        })
        answer.on('end', () => response.end())
        answer.on('error', () => response.destroy())
      },
    )
    if (incoming.headers.range !== undefined) ranges.push(incoming.headers.range)
    response.on('close', () => onward.destroy())
    onward.end()
  })
  await new Promise<void>(resolve => proxy.listen(0, '127.0.0.1', resolve))
  try {
    const { port } = proxy.address() as AddressInfo
    const served = server.urlOf(version).replace(/:\d+\//, `:${port}/`)
    const here = await weightsHere({ ...weights(), served }, { into: into('b') })
    expect(readFileSync(join(here, 'model.safetensors')).equals(bytes)).toBe(true)
    expect(broken).toBe(2)
    expect(ranges.length).toBeGreaterThanOrEqual(1)
    for (const range of ranges) expect(Number(/^bytes=(\d+)-$/.exec(range)?.[1])).toBeGreaterThan(0)
  } finally {
    proxy.closeAllConnections()
    await new Promise(resolve => proxy.close(resolve))
  }
})

test('what an earlier fetch left of other bytes is not gone on with: all is fetched from the beginning', async () => {
  const { served } = weights()
  const name = createHash('sha256').update(`${served} ${digest}`).digest('hex').slice(0, 32)
  const part = join(into('p'), `${name}.${process.pid}.part`)
  for (const left of [Buffer.alloc(1000, 7), Buffer.alloc(bytes.length, 7)]) {
    mkdirSync(part, { recursive: true })
    writeFileSync(join(part, 'model.safetensors'), left)
    const here = await weightsHere(weights(), { into: into('p') })
    expect(readFileSync(join(here, 'model.safetensors')).equals(bytes)).toBe(true)
    rmSync(here, { recursive: true })
  }
})

test('bytes of another digest are not handed on, and leave nothing behind', async () => {
  const wrong = { ...weights(), digest: 'f'.repeat(64) }
  await expect(weightsHere(wrong, { into: into('c') })).rejects.toMatchObject({ code: 'engine.digest_differs' })
  expect(readdirSync(into('c'))).toEqual([])
})

test('the optimizer, what begins with a dot, links and whatever lies elsewhere are not handed out', async () => {
  const base = server.urlOf(version)
  const status = async (path: string, method = 'GET') => (await fetch(`${base}/${path}`, { method })).status
  expect(await (await fetch(`${base}/files.json`)).json()).toEqual([
    { name: 'config.json', bytes: 22 },
    { name: 'model.safetensors', bytes: bytes.length },
  ])
  const refused = [
    'optimizer/state.safetensors',
    'optimizer',
    '.secret',
    'link.json',
    '..%2f..%2fkey.pem',
    '%2e%2e/%2e%2e/key.pem',
    '',
    'a/b',
  ]
  for (const path of refused) expect([path, await status(path)]).toEqual([path, 404])
  expect(await status('config.json', 'POST')).toBe(405)
  expect(await status('config.json', 'HEAD')).toBe(200)
})

test('a version that is a symbolic link, a path with // and a foreign host are refused; a linked folder is served', async () => {
  const of = async (at: WeightServer, path: string) => (await fetch(`${new URL(at.urlOf(root)).origin}${path}`)).status
  symlinkSync(version, join(root, 'weights', 'v000009-e7'))
  mkdirSync(join(root, 'checkpoints'), { recursive: true })
  symlinkSync('/etc', join(root, 'checkpoints', 'etc'))
  for (const path of ['/weights/v000009-e7/files.json', '/weights/v000009-e7/config.json', '/checkpoints/etc/hosts']) {
    expect([path, await of(server, path)]).toEqual([path, 404])
  }
  for (const path of ['//', '///etc', '//weights/v000001-e7/files.json', '/weights//files.json']) {
    expect([path, await of(server, path)]).toEqual([path, 404])
  }
  expect(await of(server, '/weights/v000001-e7/files.json')).toBe(200)
  const { port } = new URL(server.urlOf(root))
  const rebound = await new Promise(resolve =>
    request({ port, path: '/weights/v000001-e7/files.json', headers: { host: 'evil.example' } }, reply => {
      reply.resume()
      resolve(reply.statusCode)
    }).end(),
  )
  expect(rebound).toBe(421)
  const moved = join(directory, 'moved')
  mkdirSync(moved)
  symlinkSync(join(root, 'weights'), join(moved, 'weights'))
  const other = await serveWeights({ root: moved, address: '127.0.0.1:0', token: '' })
  expect(await of(other, '/weights/v000001-e7/files.json')).toBe(200)
  await other.close()
})

test('who does not bear the token gets nothing', async () => {
  const closed = await serveWeights({ root, address: '127.0.0.1:0', token: 'key' })
  try {
    expect((await fetch(`${closed.urlOf(version)}/files.json`)).status).toBe(401)
    const published = { ...weights(), served: closed.urlOf(version) }
    const here = await weightsHere(published, { into: into('d'), token: 'key' })
    expect(readdirSync(here)).toContain('model.safetensors')
  } finally {
    await closed.close()
  }
})

test('a server that says nothing, and a version that is gone, end with what to do', async () => {
  const silent = createServer(() => {})
  await new Promise<void>(resolve => silent.listen(0, '127.0.0.1', resolve))
  try {
    const { port } = silent.address() as AddressInfo
    const quick = { into: into('e'), silenceMs: 20, againMs: 1 }
    for (const served of [`http://127.0.0.1:${port}/weights/v1`, server.urlOf(join(root, 'weights', 'v000009'))]) {
      await expect(weightsHere({ ...weights(), served }, quick)).rejects.toMatchObject({
        code: 'engine.no_weights',
        hint: expect.stringContaining('--serve-weights'),
      })
    }
  } finally {
    silent.closeAllConnections()
    await new Promise(resolve => silent.close(resolve))
  }
})

test('an address that is none is refused with an example', async () => {
  for (const address of ['8900', 'host', 'http://host:1', 'host:99999', '0.0.0.0:80', '[::]:80']) {
    await expect(serveWeights({ root, address, token: 'key' })).rejects.toMatchObject({ code: 'cli.wrong_usage' })
  }
})

test('beyond loopback nothing is served without a token', async () => {
  for (const token of [undefined, '']) {
    await expect(serveWeights({ root, address: '192.0.2.1:8900', token })).rejects.toMatchObject({
      code: 'engine.unsafe_bind',
      hint: expect.stringContaining('TROUPE_WEIGHTS_TOKEN'),
    })
  }
})

test('a version that was damaged on this host is fetched once more', async () => {
  const here = await weightsHere(weights(), { into: into('f') })
  rmSync(join(here, 'model.safetensors'))
  expect(await weightsHere(weights(), { into: into('f') })).toBe(here)
  expect(readFileSync(join(here, 'model.safetensors')).equals(bytes)).toBe(true)
})

test('a checkpoint of an earlier version, with the optimizer beside the weights, is fetched without it', async () => {
  const old = join(root, 'checkpoints', 'step-000000')
  mkdirSync(old, { recursive: true })
  for (const name of ['model.safetensors', 'config.json']) copyFileSync(join(version, name), join(old, name))
  writeFileSync(join(old, 'optimizer.safetensors'), 'moments')
  const here = await weightsHere({ ...weights(), served: server.urlOf(old) }, { into: into('g') })
  expect(readdirSync(here).sort()).toEqual(['config.json', 'model.safetensors'])
  expect(await servedWeights(old, { digest })).toBe(join(old, 'model-only'))
  expect(readdirSync(join(old, 'model-only')).sort()).toEqual(['config.json', 'model.safetensors'])
})

test('weights that take longer to come than later ones are not loaded over them', async () => {
  let letGo = () => {}
  const held = new Promise<void>(resolve => {
    letGo = resolve
  })
  const slow = createServer(async (incoming, response) => {
    await held
    const answer = await fetch(new URL(incoming.url!, server.urlOf(version)))
    response.writeHead(answer.status).end(Buffer.from(await answer.arrayBuffer()))
  })
  await new Promise<void>(resolve => slow.listen(0, '127.0.0.1', resolve))
  try {
    const loaded: number[] = []
    const engine = engineThatTakes(({ version }) => loaded.push(version))
    const perform = inferencePort(engine, false, systemEffects)
    const update = (n: number, served: string) => {
      const common = { ...weights(), type: 'weights.published', at: 0, step: n, bytes: 0 } as const
      return perform(
        { kind: 'update', weights: { ...common, version: policyVersion(n), served } },
        new AbortController().signal,
      )
    }
    const { port } = slow.address() as AddressInfo
    const first = update(1, server.urlOf(version).replace(/:\d+\//, `:${port}/`))
    expect(await update(2, server.urlOf(version))).toMatchObject({ facts: [{ type: 'weights.applied', version: 2 }] })
    letGo()
    expect(await first).toBeUndefined()
    expect(loaded).toEqual([2])
  } finally {
    slow.closeAllConnections()
    await new Promise(resolve => slow.close(resolve))
  }
})

test('who ends its wait for a fetch does not wait for it', async () => {
  const silent = createServer(() => {})
  await new Promise<void>(resolve => silent.listen(0, '127.0.0.1', resolve))
  try {
    const served = `http://127.0.0.1:${(silent.address() as AddressInfo).port}/weights/v1`
    const ended = new AbortController()
    const waiting = weightsHere(
      { ...weights(), served },
      { into: into('h'), signal: ended.signal, silenceMs: 50, againMs: 1 },
    )
    ended.abort(new Error('enough'))
    await expect(waiting).rejects.toThrow('enough')
  } finally {
    silent.closeAllConnections()
    await new Promise(resolve => silent.close(resolve))
  }
})
