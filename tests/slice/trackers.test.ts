/** A recipe's trackers start with a run, have its points when it ends, and change neither its end nor its exit code where they are down. */
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { framesOf } from '../../replay/tracking/tfRecords'
import { endAll, type Running, troupe } from '../support/cli'
import { startMlflowServer } from '../support/mlflowServer'
import { smallRun } from '../support/smallRun'

jest.setTimeout(600_000)

const directory = mkdtempSync(join(tmpdir(), 'troupe-slice-trackers-'))
const started: Running[] = []
afterEach(() => endAll(started))
afterAll(() => rmSync(directory, { recursive: true, force: true }))

test('a run of 2 steps is with each tracker that answers when the command ends, done as without trackers', async () => {
  const server = await startMlflowServer()
  const [runs, bus] = [join(directory, 'tb'), `lmdb:${join(directory, 'bus')}`]
  const trackers = [`tensorboard:${runs}`, `mlflow:${server.url}`, 'mlflow:http://127.0.0.1:1']
  const set = ['--set', `trackers=${JSON.stringify(trackers)}`]
  const run = troupe([
    'train',
    'quickstart',
    '--json',
    '--steps',
    '2',
    '--run',
    'r',
    '--bus',
    bus,
    ...smallRun(60),
    ...set,
  ])
  started.push(run)
  const { code, stderr } = await run.done
  await server.close()
  expect({ code, stderr }).toEqual({
    code: 0,
    stderr: expect.stringMatching(/tracker: http:\/\/127\.0\.0\.1:1 cannot be reached/),
  })
  expect(stderr).toContain(
    "tracker mlflow:http://127.0.0.1:1: it lacks the last points; `npx troupe track r --to 'mlflow:http://127.0.0.1:1'",
  )
  expect(server.runs).toMatchObject([{ name: 'r', status: 'FINISHED' }])
  expect(server.runs[0]!.metrics.filter(m => m.key === 'train/passAt1').map(({ step }) => step)).toEqual([1, 2])
  const file = join(runs, 'r', 'events.out.tfevents.0000000000.r')
  expect(existsSync(file)).toBe(true)
  const keys = framesOf(readFileSync(file)).frames.flatMap(data => data.toString('latin1').match(/step\/\d/g) ?? [])
  expect(keys).toEqual(['step/1', 'step/2'])
})
