/**
 * The process that encodes and decodes for servers of text takes the recipe's chat template: a model directory without a
 * template of its own starts with `openai:` engines, too. The renderer here notes what it was started with.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { engines } from '../../../actors/inference/engines'
import { startInference } from '../../../actors/run/roles/inference'
import { openScope } from '../../../actors/run/roles/scope'
import type { RunOptions } from '../../../actors/run/run'
import { recipeSchema } from '../../../config'
import { openTroupe } from '../../../runtime/embed'
import { createLog } from '../../../runtime/log'
import { resolveConfig } from '../../../runtime/settings/resolveConfig'
import { until } from '../../support/until'

const started: object[] = []
jest.mock('../../../backends/renderer/rendererProcess', () => ({
  startRenderer: async ({ modelDirectory, template }: { modelDirectory: string; template?: string }) => {
    started.push({ modelDirectory, template })
    return { decode: async () => '', encode: async () => [], lost: new Promise(() => {}), close: async () => {} }
  },
}))

const log = createLog('test', { level: 'silent' })
const choices = [{ index: 0, text: 'a', finish_reason: 'length' }]
const server = createServer((_, answer) => answer.end(JSON.stringify({ data: [{ id: 'm' }], choices })))
beforeAll(() => new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve)))
beforeEach(() => started.splice(0))
const directory = mkdtempSync(join(tmpdir(), 'troupe-reader-'))
writeFileSync(join(directory, 'config.json'), JSON.stringify({ vocab_size: 10 }))
afterAll(() => {
  server.close()
  rmSync(directory, { recursive: true })
})

function config() {
  const urls = [`http://127.0.0.1:${(server.address() as AddressInfo).port}`]
  const model = { from: 'directory', path: directory, template: '/t.jinja' }
  const recipe = { name: 'r', model, engine: { kind: 'openai', urls }, limits: { contextTokens: 64 } }
  return resolveConfig(recipeSchema, { what: 'recipe r', recipe, overrides: [] }).value
}
const asked = [{ modelDirectory: directory, template: '/t.jinja' }]

test("engines of a run read tokens with the recipe's template", async () => {
  const troupe = await openTroupe({ bus: 'memory:', run: 'r', log })
  const options = { config: config(), log, fx: troupe.fx, role: 'inference' } as unknown as RunOptions
  const scope = openScope(options, troupe, () => {})
  try {
    await startInference(scope, { model: { directory, template: '/t.jinja' } })
    await until(() => started.length > 0)
    expect(started).toEqual(asked)
  } finally {
    await scope.close()
    await troupe.close()
  }
})

test("engines of a chat or a gateway read tokens with the recipe's template", async () => {
  const planned = engines({ config: config(), log, learns: false }, directory)
  const engine = await planned.engines[0]!.start()
  expect(started).toEqual(asked)
  await engine.close()
  await planned.close()
})
