/** Troupe's own suite: every oracle is rewarded, and an empty solution is not. */
import { appendFileSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { imageOf, loadTask, localDriver, runTask } from '../../../environments'
import { loadRecipe } from '../../../recipes/load/loadRecipe'
import { suite, writeSuite } from '../../../recipes/terminal/suite'
import { writeTask } from '../../../recipes/terminal/suite/task'
import { systemEffects } from '../../../runtime/effects'

jest.setTimeout(120_000)
const isRoot = process.platform === 'linux' && process.geteuid?.() === 0

test('the suite has 40 tasks, each with a name of its own, in at least three kinds', () => {
  expect(suite.length).toBeGreaterThanOrEqual(40)
  expect(new Set(suite.map(({ name }) => name)).size).toBe(suite.length)
  expect(new Set(suite.map(({ family }) => family)).size).toBeGreaterThanOrEqual(12)
})

const inEnvironment = isRoot ? test : test.skip
inEnvironment("the oracle's solution of every task is rewarded, and an empty one is not", async () => {
  const directory = mkdtempSync(join(tmpdir(), 'troupe-suite-'))
  const driver = localDriver({ run: 'suite', fx: systemEffects, directory: join(directory, 'store') })
  const waiting = writeSuite(directory)
    .map(loadTask)
    .flatMap(task => (['oracle', 'empty'] as const).map(agent => ({ task, agent })))
  const wrong: string[] = []
  const work = async () => {
    for (let next = waiting.pop(); next !== undefined; next = waiting.pop()) {
      const { task, agent } = next
      const options = { driver, agent, imageOf: () => imageOf(driver, task, task.image) }
      const { rewards, steps } = await runTask(task, options)
      if (rewards.reward !== (agent === 'oracle' ? 1 : 0))
        wrong.push(`${task.name} ${agent}: ${JSON.stringify(rewards)} ${steps[0]?.agent?.stderr} ${steps[0]?.log}`)
    }
  }
  try {
    await Promise.all([work(), work(), work(), work()])
    expect(wrong).toEqual([])
  } finally {
    await driver.close()
    rmSync(directory, { recursive: true, force: true })
  }
})

inEnvironment(
  'a solution sees the variables that the recipe lets tasks read when it becomes a demonstration',
  async () => {
    const directory = mkdtempSync(join(tmpdir(), 'troupe-demonstrated-'))
    const solution = 'test "$WORD" = given'
    const task = { name: 'word', family: 'env', instruction: 'Say the word.', solution, check: 'true' }
    appendFileSync(
      join(writeTask(directory, task), 'task.toml'),
      '\n[environment.env]\nWORD = "$' + '{TROUPE_TEST_WORD}"\n',
    )
    process.env.TROUPE_TEST_WORD = 'given'
    try {
      const { recipe, config } = loadRecipe('terminal', [
        ...[`data.tasks=${directory}`, 'environments.env=[TROUPE_TEST_WORD]', 'environments.driver=local'],
        'coldStart.demonstrations=1',
      ])
      const [conversation] = await recipe.demonstrations!(config.value)
      expect(conversation!.map(({ content }) => content).join()).toContain('WORD')
    } finally {
      delete process.env.TROUPE_TEST_WORD
      rmSync(directory, { recursive: true, force: true })
    }
  },
)
