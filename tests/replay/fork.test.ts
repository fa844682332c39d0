/** What a fork needs besides the log: the recipe's code, and a notebook that says what it said. The forks themselves are in slice/replay. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import * as runTools from '../../actors/tools/runTools'
import { type RecipeConfig, recipeSchema } from '../../config'
import type { Fact } from '../../messages/facts'
import { runId } from '../../messages/ids'
import { changedCells } from '../../replay/fork/changedCells'
import { forkFacts } from '../../replay/fork/forkFacts'
import { planForks } from '../../replay/fork/planForks'
import { recipeCode } from '../../replay/log/recipeCode'
import { openLog } from '../../replay/log/recordedRun'
import type { Trajectory } from '../../replay/trajectories/trajectory'
import { notebookTool } from '../../sandbox/tools/notebookTool'
import { troupe } from '../support/cli'
import { requested } from '../support/facts'
import { changed, quickstartHistory, saveHistory } from '../support/histories'
import { refused } from '../support/refusal'

jest.setTimeout(120_000)

const directory = mkdtempSync(join(tmpdir(), 'troupe-fork-'))
afterAll(() => rmSync(directory, { recursive: true, force: true }))

const history = quickstartHistory()
const configOf = (over: object): RecipeConfig =>
  recipeSchema.parse({ name: 'mine', model: { from: 'directory', path: '/m' }, ...over })

/** A trajectory of two turns with a cell each. */
function notebook(...said: readonly string[]): Trajectory {
  const request = { ...requested('g', 0), tools: [notebookTool.name] }
  const { trajectory } = request
  const codes = ['x = [1, 2]', 'x.append(len(x))\nprint(x)']
  const entries = codes.flatMap((code, turn) => {
    const place = { at: 0, trajectory, turn, call: 0, attempt: 0, tool: notebookTool.name }
    const text = said[turn]!
    const ran = { status: 'ok', text, stdout: '', stderr: '', exitCode: 0, wallMs: 1, cpuMs: 1, executor: 'e' }
    return [
      { type: 'tool.asked', ...place, epoch: 0, arguments: { code } },
      { type: 'tool.completed', ...place, ...ran },
    ] as unknown as Fact[]
  })
  return { trajectory, request, entries: entries.map(message => ({ message })), texts: ['', '', ''] } as never
}

test('cells before the fork are run again, and those that say otherwise than the record are named', async () => {
  const code = { config: configOf({ tools: { names: [notebookTool.name] } }), recipe: { tools: [] } }
  const same = notebook('Tool call success', 'Tool call success\nstdout: [1, 2, 2]')
  expect(await changedCells(same, 2, code)).toEqual([])
  const other = notebook('Tool call success', 'Tool call success\nstdout: [1, 2, 3]')
  expect(await changedCells(other, 2, code)).toEqual([
    { turn: 1, call: 0, recorded: expect.stringContaining('[1, 2, 3]'), now: expect.stringContaining('[1, 2, 2]') },
  ])
  expect(await changedCells(other, 1, code)).toEqual([])
})

test('a cell whose run throws ends the rerun with its error, and the tools are closed', async () => {
  const close = jest.fn(async () => {})
  const fails = async () => {
    throw new Error('the sandbox is lost')
  }
  const tools = { schemas: [], tools: new Map([[notebookTool.name as string, fails]]), close }
  const opened = jest.spyOn(runTools, 'openRunTools').mockResolvedValue(tools)
  const code = { config: configOf({ tools: { names: [notebookTool.name] } }), recipe: { tools: [] } }
  await expect(changedCells(notebook('', ''), 2, code)).rejects.toThrow('the sandbox is lost')
  expect(close).toHaveBeenCalledTimes(1)
  opened.mockRestore()
})

test("a recipe that is given brings its tools and rewards; the run's own are found by its name", () => {
  const file = join(directory, 'mine.js')
  writeFileSync(
    file,
    `exports.recipe = {
      config: { name: 'mine', model: { from: 'directory', path: '/m' }, reward: { name: 'short' } },
      tools: [{ name: 'look', description: 'd', parameters: { type: 'object', properties: {} } }],
      toolFunctions: { look: () => 'seen' },
      rewards: { short: () => 1 },
      tasks: async () => ({ size: 0 }),
    }`,
  )
  const own = configOf({ train: { learningRate: 0.5 } })
  const { recipe, config } = recipeCode(own, file)
  expect(Object.keys(recipe.toolFunctions ?? {})).toEqual(['look'])
  expect(Object.keys(recipe.rewards ?? {})).toEqual(['short'])
  expect(config).toMatchObject({ reward: { name: 'short' }, train: { learningRate: 0.5 } })
  expect(recipeCode(own).recipe.tools).toHaveLength(1)
  expect(() => recipeCode(own, join(directory, 'none.js'))).toThrow(/no recipe/)

  const plan = { parentRun: runId('r'), turn: 1, times: 1, deadlineMs: 1, order: 0, at: 0 }
  const [asked] = forkFacts({ parent: notebook('', ''), ...plan, tools: ['look'] }).facts
  expect(asked).toMatchObject({ type: 'rollout.requested', tools: ['look'] })
})

test('a fork whose tools or rewards no log holds is refused before anything is written, and says where they could be', async () => {
  const bus = join(directory, 'bus')
  const strange = changed(history, m => {
    if (m.type === 'rollout.requested') return { ...m, tools: ['look'] }
    if (m.type !== 'run.started') return m
    return { ...m, recipe: { ...m.recipe, name: 'mine', reward: { name: 'short' } } }
  })
  await saveHistory(bus, strange)
  const args = ['replay', 'fork', 's0001.0000/1', '--from-turn', '1', '--as', 'forks', '--bus', `lmdb:${bus}`]
  const { code, stderr } = await troupe(args).done
  expect({ code, stderr }).toEqual({
    code: 2,
    stderr: expect.stringMatching(
      /the tool 'look' and the reward 'short' of s0001\.0000\/1 is code[\s\S]*--recipe FILE/,
    ),
  })
  const listed = await troupe(['replay', 'ls', '--run', 'forks', '--bus', `lmdb:${bus}`]).done
  expect(listed.stderr).toContain("no run 'forks'")
})

test('a fork is a run of its own: one that is there, the parent too, is never written to', async () => {
  const at = join(directory, 'whole')
  await saveHistory(at, history)
  const fork = (name: string) =>
    troupe(['replay', 'fork', 's0001.0000/1', '--from-turn', '1', '--model', at, '--bus', `lmdb:${at}`, '--as', name])
      .done
  const facts = () => troupe(['replay', 'follow', '--until-end', '--bus', `lmdb:${at}`, '--json']).done
  const before = (await facts()).stdout
  expect(await fork(history.run)).toMatchObject({ code: 2, stderr: expect.stringContaining('run.exists') })
  expect(await fork('a b')).toMatchObject({ code: 2, stderr: expect.stringContaining('run.bad_name') })
  expect((await facts()).stdout).toBe(before)
})

test("forks continue with the run's engines, or with those that are given", async () => {
  const at = join(directory, 'engines')
  await saveHistory(at, history)
  writeFileSync(join(at, 'config.json'), '{}')
  const recorded = await openLog({ bus: `lmdb:${at}`, run: history.run })
  const planned = (engine?: readonly string[]) =>
    planForks(recorded, 's0001.0000/1', { fromTurn: 1, model: at, ...(engine === undefined ? {} : { engine }) })
  try {
    expect((await planned()).code.config.engine).toMatchObject({ kind: 'local' })
    const { engine } = (await planned(['vllm:http://127.0.0.1:8000', 'vllm:http://127.0.0.1:8001'])).code.config
    expect(engine).toMatchObject({ kind: 'vllm', urls: ['http://127.0.0.1:8000', 'http://127.0.0.1:8001'] })
    expect(await refused(planned(['cloud']))).toMatchObject({ code: 'config.bad_engine' })
  } finally {
    await recorded.close()
  }
})
