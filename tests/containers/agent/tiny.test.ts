/**
 * Tasks of recipe terminal-tiny in real environments: the command of each is rewarded; doing nothing, and each command
 * that demonstrations run by mistake, is not; responses in demonstrations are what the tools answer.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { imageOf, loadTask, localDriver, runTask } from '../../../environments'
import { runEnvironmentTool } from '../../../environments/tools/runTool'
import { parseToolCalls, resolveCalls, toolResultText } from '../../../kernels'
import { writeTask } from '../../../recipes/terminal/suite/task'
import { breakages, brokenCall, demonstration, tinyTools } from '../../../recipes/terminal/tiny/demonstrations'
import { shellFamilies } from '../../../recipes/terminal/tiny/families'
import { tinyTask } from '../../../recipes/terminal/tiny/tasks'
import { systemEffects } from '../../../runtime/effects'

jest.setTimeout(120_000)
const isRoot = process.platform === 'linux' && process.geteuid?.() === 0
const inEnvironment = isRoot ? test : test.skip
const directory = mkdtempSync(join(tmpdir(), 'troupe-tiny-'))
const driver = localDriver({ run: 'tiny', fx: systemEffects, directory: join(directory, 'store') })
const families = Object.keys(shellFamilies).length
afterAll(async () => {
  await driver.close()
  rmSync(directory, { recursive: true, force: true })
})

inEnvironment(
  'the command of a task is rewarded, no command is not, and neither is one of the wrong ones',
  async () => {
    const tasks = Array.from({ length: 2 * families }, (_, at) => tinyTask(at, 1, at < families ? 'train' : 'eval'))
    const waiting = tasks.flatMap(task => [
      { task, agent: 'empty' as const, rewarded: 0 },
      { task, agent: 'oracle' as const, rewarded: 1 },
      ...task.wrong.map((command, at) => {
        const wrong = { ...task, name: `${task.name}-wrong-${at}`, solution: command }
        return { task: wrong, agent: 'oracle' as const, rewarded: 0 }
      }),
    ])
    const wrong: string[] = []
    const work = async () => {
      for (let next = waiting.pop(); next !== undefined; next = waiting.pop()) {
        const harbor = loadTask(writeTask(directory, next.task))
        const { rewards, steps } = await runTask(harbor, {
          ...{ driver, agent: next.agent, imageOf: () => imageOf(driver, harbor, harbor.image) },
        })
        const { status = 'ok', stdout = '', stderr = '' } = steps[0]?.agent ?? {}
        if (rewards.reward !== next.rewarded || status !== 'ok' || `${stdout}${stderr}` !== '')
          wrong.push(
            `${harbor.name} ${next.agent} '${next.task.solution}': ${rewards.reward} ${status} ${stdout}${stderr}`,
          )
      }
    }
    await Promise.all([work(), work(), work(), work()])
    expect(wrong).toEqual([])
  },
)

inEnvironment('every response in a demonstration is what the tools answer to that call', async () => {
  const wrong: string[] = []
  for (let at = 0; at < families; at++) {
    const { messages, task } = demonstration(at, 1)
    const harbor = loadTask(writeTask(directory, { ...task, name: `demonstrated-${at}` }))
    const image = await imageOf(driver, harbor, harbor.image)
    const environment = await driver.start({
      image: image!,
      network: 'no-network',
      limits: { memoryMb: 256, processes: 64 },
    })
    const exchanges = [...breakages.flatMap(one => brokenCall(one, task.command)), ...messages.slice(1, -1)]
    for (let turn = 0; turn < exchanges.length; turn += 2) {
      const { content } = exchanges[turn]!
      const names = tinyTools.map(({ name }) => name)
      const [call] = resolveCalls(parseToolCalls(content).calls, names).resolved
      if (call === undefined) throw new Error(`no call: ${content}`)
      const said =
        call.kind === 'refused'
          ? call.text
          : toolResultText(await runEnvironmentTool(environment, call.tool, call.arguments, { timeoutMs: 10_000 }))
      if (said !== exchanges[turn + 1]!.content)
        wrong.push(`${content}\nsaid ${said}\nnot  ${exchanges[turn + 1]!.content}`)
    }
    await environment.stop()
  }
  expect(wrong).toEqual([])
})
