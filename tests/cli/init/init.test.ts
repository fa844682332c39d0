/** `troupe init` makes a project whose recipe has no problem and whose own tests pass; the first things a user then tries work. */
import { execFileSync, spawnSync } from 'node:child_process'
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { checkRecipe } from '../../../cli/check/checkRecipe'
import { init } from '../../../cli/init'
import { prices } from '../../../cli/init/demonstrations'
import { loadRecipe } from '../../../recipes/load/loadRecipe'
import { failure } from '../../support/refusal'

jest.setTimeout(60_000)

const bin = join(__dirname, '../../../cli/bin.js')
const folder = mkdtempSync(join(tmpdir(), 'troupe-init-'))
afterAll(() => rmSync(folder, { recursive: true }))

test.each(['yaml', 'python'] as const)('a project in %s: no problems, ten rows, tests that pass', async language => {
  const own = join(folder, language)
  expect(init(own, language)).toMatch(/npx troupe train/)
  const recipe = join(own, language === 'yaml' ? 'recipe.yaml' : 'recipe.py')
  expect((await checkRecipe(recipe, { set: [], learns: true, directory: own })).faults).toEqual([])
  expect(readFileSync(join(own, 'problems.jsonl'), 'utf8').trim().split('\n')).toHaveLength(10)
  expect(readFileSync(join(own, 'README.md'), 'utf8').trim().split('\n').length).toBeLessThanOrEqual(10)
  const { status, stderr } = spawnSync('python3', ['-m', 'unittest'], { cwd: own, encoding: 'utf8' })
  expect([status, stderr]).toEqual([0, expect.stringContaining('Ran 3 tests')])
  const { config } = loadRecipe(recipe)
  expect(config.value).toMatchObject({ tools: { functions: { run: 'sandbox' } }, reward: { name: 'python' } })
  expect(config.value.limits.contextTokens).toBe(320) // of the quickstart, which it extends
})

test('a project in TypeScript, outside of every package: `troupe/recipes` is the copy that runs', () => {
  const own = join(folder, 'ts')
  init(own, 'ts')
  // Without a name, the recipe is the one of the directory.
  const checked = execFileSync(process.execPath, [bin, 'check', '--json'], { cwd: own, encoding: 'utf8' })
  expect(JSON.parse(checked)).toMatchObject({ type: 'summary', recipe: 'recipe.ts', errors: 0, warnings: 0 })
  expect(JSON.parse(readFileSync(join(own, 'prices.json'), 'utf8'))).toEqual(prices)
})

test("the page's program writes conversations in the form of a run, which a recipe can use", async () => {
  const own = join(folder, 'conversations')
  init(own, 'yaml')
  const page = readFileSync(join(__dirname, '../../../docs/first-hour.md'), 'utf8')
  const [, program] = /```python\n(import json\n.*?)```/s.exec(page)!
  const before = new Set(readFileSync(join(own, 'demonstrations.jsonl'), 'utf8').trim().split('\n'))
  execFileSync('python3', ['-c', program!], { cwd: own })
  const rows = readFileSync(join(own, 'demonstrations.jsonl'), 'utf8').trim().split('\n')
  expect(rows).toHaveLength(800)
  // A flawless conversation is, byte for byte, one of those that `init` wrote.
  const same = rows.filter(row => before.has(JSON.stringify(JSON.parse(row))))
  expect(same.length).toBeGreaterThan(300)
  expect((await checkRecipe(join(own, 'recipe.yaml'), { set: [], learns: true, directory: own })).faults).toEqual([])
})

test('a TypeScript recipe that extends another merges its config and has its own parts, as in YAML', () => {
  const own = join(folder, 'extending')
  init(own, 'yaml')
  const name = '../../../recipes'
  const module = (config: string, more = '') =>
    `import { extendRecipe } from ${JSON.stringify(join(__dirname, name))}
export const recipe = extendRecipe({ extends: './recipe.yaml', config: ${config}, ${more} })`
  writeFileSync(join(own, 'own.ts'), module('{ train: { steps: 3 } }', 'rewards: { mine: () => 1 }'))
  const { recipe, config } = loadRecipe(join(own, 'own.ts'))
  const base = loadRecipe(join(own, 'recipe.yaml')).config.value
  expect(config.value).toEqual({ ...base, name: 'own', train: { ...base.train, steps: 3 } })
  expect(config.value.tools.functions).toMatchObject({ file: join(own, 'tools.py') })
  expect([config.origins.get('train.steps'), config.origins.get('train.learningRate')]).toEqual([
    'recipe',
    'extends quickstart',
  ])
  expect(Object.keys(recipe.rewards ?? {})).toEqual(['mine'])
  writeFileSync(join(own, 'wrong.ts'), module('{}').replace('./recipe.yaml', 'quikstart'))
  expect(failure(() => loadRecipe(join(own, 'wrong.ts')))).toMatchObject({ code: 'config.no_base' })
})

test('a file that is there is left as it is, and nothing is written beside it', () => {
  const own = mkdtempSync(join(folder, 'there-'))
  writeFileSync(join(own, 'README.md'), 'mine')
  expect(failure(() => init(own, 'yaml'))).toMatchObject({ code: 'cli.file_exists' })
  expect([readFileSync(join(own, 'README.md'), 'utf8'), existsSync(join(own, 'recipe.yaml'))]).toEqual(['mine', false])
})

test('extends: quickstart with a file of problems trains on them and holds a fifth out for the evaluation', async () => {
  const rows = Array.from({ length: 20 }, (_, k) =>
    JSON.stringify({ problem: `What is ${k} * 3 + 1?`, answer: 3 * k + 1 }),
  )
  writeFileSync(join(folder, 'mine.jsonl'), rows.join('\n'))
  writeFileSync(join(folder, 'mine.yaml'), 'extends: quickstart\ndata: { file: mine.jsonl }\n')
  const { recipe, config } = loadRecipe(join(folder, 'mine.yaml'))
  expect([config.value.evaluation.problems, config.origins.get('evaluation.problems')]).toEqual([
    4,
    'a fifth of data.file',
  ])
  const source = await recipe.tasks(config.value)
  expect(source.size).toBe(16)
  const trained = Array.from({ length: 16 }, (_, at) => source.train(at).messages[0]!.content)
  expect(trained).not.toContain(source.evaluation(0).messages[0]!.content)
  expect(source.evaluation(0).truth).toBe('49')
  expect((await checkRecipe(join(folder, 'mine.yaml'), { set: [], learns: true })).faults).toEqual([])
})

test('a YAML recipe without extends gets sizes that fit its model', () => {
  const model = join(folder, 'model')
  execFileSync('mkdir', ['-p', model])
  const config = {
    model_type: 'llama',
    hidden_size: 576,
    num_hidden_layers: 30,
    max_position_embeddings: 1024,
    vocab_size: 49_152,
  }
  writeFileSync(join(model, 'config.json'), JSON.stringify(config))
  writeFileSync(
    join(folder, 'small.yaml'),
    'model: { from: directory, path: model }\ndata: { file: mine.jsonl }\nrollout: { groupSize: 6 }\n',
  )
  const { value, origins } = loadRecipe(join(folder, 'small.yaml')).config
  expect(value).toMatchObject({
    limits: { contextTokens: 1024, responseTokens: 768 },
    rollout: { groupSize: 6, groupsPerStep: 8 },
    selection: { keep: 3, minPositive: 1, minNegative: 1 },
    train: { learningRate: 1e-5 },
  })
  expect(origins.get('limits.contextTokens')).toBe('default for this model')
})
