/** A recipe's trackers run beside a run in processes of their own: whatever they do, the run's end waits a bounded time. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { checkTrackersBus, startTrackers } from '../../../cli/train/trackerProcesses'
import { recipeSchema } from '../../../config'
import { resolveConfig } from '../../../runtime/settings/resolveConfig'
import { descendantsOf } from '../../support/descendants'
import { changed, quickstartHistory, saveHistory } from '../../support/histories'
import { type MlflowServer, startMlflowServer } from '../../support/mlflowServer'
import { until } from '../../support/until'

jest.setTimeout(60_000)

const directory = mkdtempSync(join(tmpdir(), 'troupe-trackers-'))
const history = quickstartHistory()
const said: string[] = []
let server: MlflowServer
beforeAll(() =>
  saveHistory(
    directory,
    changed(history, m => (m.type === 'run.finished' ? null : m)),
  ),
)
afterAll(() => rmSync(directory, { recursive: true, force: true }))
beforeEach(async () => {
  said.length = 0
  server = await startMlflowServer()
})
afterEach(() => server.close())

const start = (endMs = 20_000) => {
  const own = { trackers: [`mlflow:${server.url}`], endMs, restartMs: 10, say: (line: string) => void said.push(line) }
  return startTrackers({ bus: `lmdb:${directory}`, run: history.run, ...own })
}
const stepsOf = () => server.runs[0]?.metrics.filter(m => m.key === 'train/passAt1').map(({ step }) => step)
const processes = () => descendantsOf(process.pid)

test('a process that is killed is started again, goes on behind what the tracker has, and ends with the run', async () => {
  server.fault = path => (path === 'runs/log-batch' && server.runs[0]?.params.size ? 503 : undefined)
  const before = new Set(processes())
  const end = start()
  await until(() => (server.runs[0]?.params.size ?? 0) > 0, 20_000)
  for (const pid of processes().filter(pid => !before.has(pid))) process.kill(pid, 'SIGKILL')
  await until(() => said.length > 0, 20_000)
  server.fault = undefined
  await until(() => stepsOf()?.length === 3, 20_000)
  await end()
  expect(stepsOf()).toEqual([1, 2, 3])
  expect(said).toEqual([expect.stringMatching(/its process ended; starting it again in 0.01 s/)])
  expect(processes().filter(pid => !before.has(pid))).toEqual([])
})

test('a server that never answers delays the end by no more than its bound, and the line says what adds the rest', async () => {
  let calls = 0
  server.fault = () => {
    calls++
    return 'silent'
  }
  const before = new Set(processes())
  const end = start(300)
  await until(() => calls > 0, 20_000)
  const began = performance.now()
  await end()
  expect(performance.now() - began).toBeLessThan(5000)
  expect(said).toEqual([
    expect.stringContaining(`npx troupe track ${history.run} --to 'mlflow:${server.url}' --bus lmdb:`),
  ])
  expect(processes().filter(pid => !before.has(pid))).toEqual([])
})

test('a process that cannot be started does not hold up the end', async () => {
  const node = process.execPath
  process.execPath = '/nonexistent/node'
  const end = start()
  process.execPath = node
  await end()
  expect(said).toEqual([
    expect.stringContaining('it could not be started'),
    expect.stringContaining('it lacks the last points'),
  ])
})

test('an address that is none, and a bus that no process can read, are refused before the run', () => {
  const recipe = (trackers: readonly string[]) =>
    resolveConfig(recipeSchema, {
      what: 'recipe r',
      recipe: { name: 'r', model: { from: 'directory', path: '/m' }, trackers },
      overrides: [],
    }).value.trackers
  expect(recipe(['tensorboard:runs'])).toEqual(['tensorboard:runs'])
  expect(() => recipe(['excel:x'])).toThrow(/trackers\.0: expected tensorboard:DIRECTORY/)
  expect(() => checkTrackersBus('memory:', ['tensorboard:runs'])).toThrow(/memory bus/)
  expect(() => checkTrackersBus('memory:', [])).not.toThrow()
})
