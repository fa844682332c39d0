/** A model that is given as a directory: a recipe whose contexts it does not reach is refused before anything is started. */
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { modelOf, modelThere, notMade } from '../../../actors/run/model'
import { positionsOf, type RecipeConfig, recipeSchema } from '../../../config'
import { diskPause } from '../../../runtime/disk/diskPause'
import { manualEffects } from '../../../runtime/effects'
import { createLog } from '../../../runtime/log'
import { parseConfig } from '../../../runtime/settings/resolveConfig'
import { failure, refused } from '../../support/refusal'

const folder = mkdtempSync(join(tmpdir(), 'troupe-given-'))
afterAll(() => rmSync(folder, { recursive: true, force: true }))

const hermes = join(__dirname, '../../../recipes/templates/hermes.jinja')

let count = 0
function configOf(architecture: object | string, limits: object, evaluation: object = {}): RecipeConfig {
  const path = join(folder, `m${count++}`)
  mkdirSync(path)
  writeFileSync(
    join(path, 'config.json'),
    typeof architecture === 'string' ? architecture : JSON.stringify(architecture),
  )
  return parseConfig(recipeSchema, { name: 't', model: { from: 'directory', path }, limits, evaluation }, 't')
}
const long = { max_position_embeddings: 2048 }

test.each<[string, object, object, object, RegExp]>([
  [
    'a context',
    long,
    { contextTokens: 2049 },
    {},
    /^limits\.contextTokens: a context of 2049 is longer than the model's 2048 \(.*config\.json\)/,
  ],
  [
    'an evaluation',
    long,
    { contextTokens: 512 },
    { limits: { contextTokens: 4096 } },
    /^evaluation\.limits\.contextTokens: a context of 4096 is longer than the model's 2048/,
  ],
  ['a model of GPT-2’s kind', { n_positions: 1024 }, { contextTokens: 2048 }, {}, /the model's 1024/],
  [
    'a model with parts',
    { text_config: { max_position_embeddings: 1000 } },
    { contextTokens: 1001 },
    {},
    /the model's 1000/,
  ],
])('%s beyond the positions of a given model is refused, wherever a part of the run opens it', async (...row) => {
  const [, architecture, limits, evaluation, expected] = row
  const config = configOf(architecture, limits, evaluation)
  const made = await refused(modelOf(config, join(folder, 'none'), async () => []))
  const there = failure(() => modelThere(config, join(folder, 'none')))
  for (const { code, message, hint } of [made, there]) {
    expect([code, message]).toEqual(['config.invalid', expect.stringMatching(expected)])
    expect(hint).toMatch(/^lower (evaluation\.)?limits\.contextTokens/)
  }
})

test('a context that just fits, and a model that names no length, are taken', async () => {
  for (const architecture of [long, {}, { max_position_embeddings: null }]) {
    const config = configOf(architecture, { contextTokens: 2048 })
    expect(await modelOf(config, join(folder, 'none'), async () => [])).toEqual(modelThere(config, ''))
  }
})

test('a config that is no JSON is refused with its place', () => {
  const { code, message } = failure(() => modelThere(configOf('{', {}), ''))
  expect([code, message]).toEqual([
    'config.no_model',
    expect.stringMatching(/m\d+' holds a config\.json that cannot be/),
  ])
})

test.each<[object, number]>([
  [{ rope_scaling: { rope_type: 'yarn', factor: 4, original_max_position_embeddings: 2048 } }, 8192],
  [{ rope_scaling: { type: 'linear', factor: 2 } }, 4096],
  [{ rope_parameters: { rope_type: 'dynamic', factor: 2 } }, 4096],
  // These name the scaled length already.
  [{ rope_scaling: { rope_type: 'llama3', factor: 8, original_max_position_embeddings: 512 } }, 2048],
  [{ rope_parameters: { rope_type: 'default' } }, 2048],
])('positions count as scaled: %j', (scaling, expected) => {
  expect(positionsOf({ ...long, ...scaling })).toBe(expected)
})

test('the tokenizer of a random model is trained on at most 4,000 demonstrations, drawn from all of them', async () => {
  const architecture = {
    model_type: 'llama',
    hidden_size: 8,
    intermediate_size: 8,
    num_hidden_layers: 1,
    num_attention_heads: 1,
    max_position_embeddings: 512,
  }
  const model = { from: 'random', config: architecture, vocabulary: 300, template: hermes, addedTokens: [] }
  const config = parseConfig(recipeSchema, { name: 't', model, limits: { contextTokens: 512 } }, 't')
  const texts = Array.from({ length: 8000 }, (_, n) => `answer ${n}`)
  const directory = join(folder, 'run', 'model')
  await modelOf(config, directory, async () => texts.map(content => [{ role: 'user', content }]))
  expect(readFileSync(join(directory, 'tokenizer.json'), 'utf8')).toContain('"vocab"')
  const lines = readFileSync(join(folder, 'run', 'corpus.jsonl'), 'utf8')
    .trim()
    .split('\n')
  const drawn = lines.map(line => Number((JSON.parse(line) as string[])[0]!.slice('answer '.length)))
  expect(new Set(drawn).size).toBe(4000)
  // Half of each half, within nine standard deviations: neither the first 4,000, nor every second one.
  for (const half of [drawn.filter(n => n < 4000), drawn.filter(n => n % 2 === 0)])
    expect(Math.abs(half.length - 2000)).toBeLessThan(200)
})

test('a random model, too, is refused whose evaluation is longer than it', () => {
  const model = { from: 'random', config: long, vocabulary: 400, template: 't' }
  const evaluation = { limits: { contextTokens: 4096 } }
  const { message } = failure(() =>
    parseConfig(recipeSchema, { name: 't', model, limits: { contextTokens: 512 }, evaluation }, 't'),
  )
  expect(message).toMatch(/evaluation\.limits\.contextTokens: a context of 4096 is longer than the model's 2048/)
})

test('a model whose files find the disk full is made again once there is room', async () => {
  const pause = diskPause({ fx: manualEffects(), log: createLog('test', { level: 'silent' }), lookEveryMs: 1 })
  const model = { from: 'random', config: { model_type: 'llama' }, vocabulary: 300, template: 'chatml' }
  const config = parseConfig(recipeSchema, { name: 't', model }, 't')
  const failures = [Object.assign(new Error('no space left'), { code: 'ENOSPC' }), new Error('the second attempt')]
  const demonstrations = () => Promise.reject(failures.shift())
  const made = modelOf(config, join(folder, 'random'), demonstrations, pause)
  await expect(made).rejects.toThrow('the second attempt')
})

test('the text with which the program that makes models ends on a full disk is told from other failures', () => {
  const program = readFileSync(join(__dirname, '../../../policy/troupe_policy/model/disk_full.py'), 'utf8')
  const [said] = /the disk has no space left[^"{]*/.exec(program) ?? []
  const full = notMade('t', folder, new Error(`init_model ended with exit code 1\nCheckpointError: ${said}/x`))
  expect(full).toMatchObject({ code: 'config.disk_full', retriable: true })
  const other = notMade('t', folder, new Error('init_model ended with exit code 1\nValueError: no such model_type'))
  expect(other).toMatchObject({ code: 'config.model_not_made', retriable: false })
})
