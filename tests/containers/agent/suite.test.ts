/** Troupe's own suite: every oracle is rewarded, and an empty solution is not. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { imageOf, loadTask, localDriver, runTask } from '../../../environments'
import { suite, writeSuite } from '../../../recipes/terminal/suite'
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
