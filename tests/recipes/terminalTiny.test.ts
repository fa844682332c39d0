/** Recipe terminal-tiny: its tasks are apart and depend on their seed alone, its demonstrations come as declared. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { loadRecipe } from '../../recipes/load/loadRecipe'
import { demonstration, demonstrationShares } from '../../recipes/terminal/tiny/demonstrations'
import { shellFamilies } from '../../recipes/terminal/tiny/families'
import { splitOf, type TinyTask, tinyTask } from '../../recipes/terminal/tiny/tasks'

const indices = (n: number) => Array.from({ length: n }, (_, index) => index)
/** Words of the form that is drawn for names and lines; `line` is in the instructions' own text. */
const drawn = (text: string) => (text.match(/\b([bdfgklmnprstvz][aeiou]){2}\b/g) ?? []).filter(word => word !== 'line')
const textOf = ({ instruction, files, command }: TinyTask) => JSON.stringify([instruction, files, command])

test('no word or file name of a held-out task occurs in training or a demonstration, under any seed', () => {
  const words = { train: new Set<string>(), eval: new Set<string>() }
  for (const seed of [0, 1, 2 ** 31 - 1])
    for (const index of indices(600)) {
      for (const split of ['train', 'eval'] as const)
        for (const word of drawn(textOf(tinyTask(index, seed, split)))) words[split].add(word)
      for (const { content } of demonstration(index, seed).messages)
        for (const word of drawn(content)) words.train.add(word)
    }
  expect([words.eval.size > 400, words.train.size > 3000]).toEqual([true, true])
  expect([...words.eval].filter(word => splitOf(word) !== 'eval' || words.train.has(word))).toEqual([])
})

test('a task depends on its index, seed and split alone; all families come equally often, and tasks do not repeat', () => {
  expect(tinyTask(7, 1, 'train')).toEqual(tinyTask(7, 1, 'train'))
  expect(tinyTask(7, 2, 'train')).not.toEqual(tinyTask(7, 1, 'train'))
  const tasks = indices(480).map(index => tinyTask(index, 1, 'train'))
  expect(new Set(tasks.map(({ instruction }) => instruction)).size).toBe(480)
  for (const family of Object.keys(shellFamilies)) expect(tasks.filter(task => task.family === family)).toHaveLength(40)
})

test('demonstrations come in the declared shares, and fewer than half of them solve their task', () => {
  const sample = indices(4000).map(index => demonstration(index, 1))
  expect(Object.values(demonstrationShares).reduce((sum, share) => sum + share, 0)).toBeCloseTo(1)
  for (const [kind, share] of Object.entries(demonstrationShares)) {
    const seen = sample.filter(one => one.kind === kind).length / sample.length
    expect(Math.abs(seen - share)).toBeLessThan(5 * Math.sqrt((share * (1 - share)) / sample.length))
  }
  const solved = sample.filter(({ kind }) => ['solves', 'recovers', 'stumbles'].includes(kind))
  expect(solved.length / sample.length).toBeLessThan(0.5)
})

const home = mkdtempSync(join(tmpdir(), 'troupe-tiny-home-'))
const before = process.env.TROUPE_HOME
afterAll(() => {
  if (before === undefined) delete process.env.TROUPE_HOME
  else process.env.TROUPE_HOME = before
  rmSync(home, { recursive: true, force: true })
})

test('the recipe trains on as many tasks as it says, and evaluates on others', async () => {
  process.env.TROUPE_HOME = home
  const { recipe, config } = loadRecipe('terminal-tiny', ['data.trainTasks=5', 'evaluation.problems=3'])
  const source = await recipe.tasks(config.value)
  expect(source.size).toBe(5)
  const [trained, held] = [indices(5).map(source.train), indices(3).map(source.evaluation)]
  expect(trained.map(({ messages }) => messages.at(-1)!.content)).toEqual(
    indices(5).map(index => tinyTask(index, 1, 'train').instruction),
  )
  for (const { id, environment } of [...trained, ...held])
    expect([id, environment]).toEqual([
      expect.stringContaining(trained.some(task => task.id === id) ? 'train-' : 'eval-'),
      expect.objectContaining({ driver: 'local', directory: expect.stringContaining(home) }),
    ])
})
