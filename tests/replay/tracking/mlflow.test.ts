/** `mlflow:URL`: a server that is down, slow or loses answers has every point of a run once, and a run waits for none. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { trackerAddress } from '../../../config/trackerAddress'
import { openLog } from '../../../replay/log/recordedRun'
import { mlflowTracker } from '../../../replay/tracking/mlflow/mlflow'
import { type Point, trackRun } from '../../../replay/tracking/runPoints'
import { troupe } from '../../support/cli'
import { changed, quickstartHistory, saveHistory } from '../../support/histories'
import { type MlflowServer, startMlflowServer } from '../../support/mlflowServer'

const directory = mkdtempSync(join(tmpdir(), 'troupe-mlflow-'))
const history = quickstartHistory()
const bus = `lmdb:${directory}`
let server: MlflowServer
beforeAll(() => saveHistory(directory, history))
afterAll(() => rmSync(directory, { recursive: true, force: true }))
beforeEach(async () => {
  server = await startMlflowServer()
})
afterEach(() => server.close())

const stepsOf = (key: string) => server.runs[0]!.metrics.filter(m => m.key === key).map(({ step }) => step)

async function track(options: Partial<Parameters<typeof trackRun>[2]> = {}, deadlineMs = 2000, at = bus) {
  const recorded = await openLog({ bus: at, run: history.run })
  const tracker = mlflowTracker(server.url, history.run, { deadlineMs })
  return trackRun(recorded, tracker, { follow: false, everyMs: 5, ...options }).finally(() => recorded.close())
}

test('the command gives parameters, metrics by step and the end; a second call sends no metric', async () => {
  const to = `mlflow:${server.url}#mine`
  const call = () => troupe(['track', history.run, '--to', to, '--bus', bus]).done
  expect(await call()).toMatchObject({ code: 0, stderr: expect.stringContaining('done after 3 steps') })
  expect(server.experiments).toEqual(['mine'])
  expect(server.runs).toMatchObject([{ name: history.run, status: 'FINISHED', endTime: expect.any(Number) }])
  expect(stepsOf('train/passAt1')).toEqual([1, 2, 3])
  expect(stepsOf('update/loss')).toEqual([1, 2, 3])
  expect(server.runs[0]!.params.get('train.steps')).toBe('3')
  expect(server.runs[0]!.tags.get('version.node')).toMatch(/\d/)
  const sent = server.sent()
  expect((await call()).code).toBe(0)
  expect([server.sent(), server.runs.length]).toEqual([sent, 1])
  expect(server.violations).toEqual([])
}, 60_000)

test('a tracker that began on part of a run goes on behind it, and the run is the same as read at once', async () => {
  const early = join(directory, 'early')
  const first = history.records.flatMap(({ message: m }) =>
    m.type === 'step.completed' && m.step === 1 ? [m.at] : [],
  )[0]!
  await saveHistory(
    early,
    changed(history, m => (!('at' in m) || m.at <= first ? m : null)),
  )
  await track({}, 2000, `lmdb:${early}`)
  expect(stepsOf('train/passAt1')).toEqual([1])
  expect(server.runs[0]!.status).toBe('RUNNING')
  await track()
  const { metrics } = server.runs[0]!
  expect(server.sent()).toBe(metrics.length)
  await server.close()
  server = await startMlflowServer()
  await track()
  expect(server.runs[0]!.metrics).toEqual(metrics)
})

test.each(['silent', 'lost', 503] as const)(
  'calls that are %s are made again until each point is kept once',
  async fault => {
    const failed = new Map<string, number>()
    server.fault = path => {
      failed.set(path, (failed.get(path) ?? 0) + 1)
      return failed.get(path) === 1 ? fault : undefined
    }
    const said: (string | undefined)[] = []
    const { outcome } = (await track({ onTrouble: error => said.push(error?.code) }, 100))!
    expect(outcome).toBe('done')
    expect(stepsOf('train/passAt1')).toEqual([1, 2, 3])
    expect(server.runs).toMatchObject([{ status: 'FINISHED' }])
    expect(said).toEqual(['tracker.unreachable', undefined])
    expect(server.violations.filter(text => text !== 'there is one')).toEqual([])
  },
)

test('a server that stays away is given up where the run is over, and a signal ends the wait for it', async () => {
  server.fault = () => 503
  const down = { code: 'tracker.unreachable', message: expect.stringContaining('answered 503') }
  await expect(track({ patienceMs: 30 })).rejects.toMatchObject(down)
  const over = new AbortController()
  const live = changed(history, m => (m.type === 'run.finished' ? null : m))
  const at = join(directory, 'live')
  await saveHistory(at, live)
  const waits = track(
    { follow: true, patienceMs: 0, signal: over.signal, onTrouble: () => over.abort() },
    2000,
    `lmdb:${at}`,
  )
  await expect(waits).rejects.toMatchObject(down)
})

test('points of many values are split as the server takes them, and what it refuses is said', async () => {
  const values = Object.fromEntries(Array.from({ length: 1500 }, (_, i) => [`x/${i}:ü`, i]))
  const points: Point[] = [1, 2].map(step => ({ key: `step/${step}`, step, at: 1000 + step, values }))
  const tracker = mlflowTracker(server.url, 'r')
  await tracker.begin({ recipe: { name: 'r' }, versions: {}, at: 1 } as never)
  await tracker.keep(points)
  await tracker.keep(points)
  expect(server.sent()).toBe(3000)
  expect(server.violations).toEqual([])
  server.fault = () => 403
  await expect(tracker.end!({ outcome: 'done', at: 2 } as never)).rejects.toMatchObject({
    code: 'tracker.refused',
    hint: expect.stringContaining('MLFLOW_TRACKING_TOKEN'),
  })
})

test('an address is read, and what is none is refused with the reason', () => {
  expect(trackerAddress('mlflow:http://h:5000/base#an%20experiment')).toEqual({
    ...{ kind: 'mlflow', url: 'http://h:5000/base', experiment: 'an experiment' },
  })
  expect(trackerAddress('tensorboard:/tmp/a:b')).toEqual({ kind: 'tensorboard', directory: '/tmp/a:b' })
  expect(trackerAddress('wandb:me/maths')).toEqual({ kind: 'wandb', entity: 'me', project: 'maths' })
  expect(trackerAddress('wandb:a/b/c')).toMatch(/wandb:ENTITY\/PROJECT/)
  expect(trackerAddress('trackio:http://h:7860/#maths')).toEqual({
    ...{ kind: 'trackio', url: 'http://h:7860/', project: 'maths' },
  })
  expect(trackerAddress('trackio:http://h/?write_token=x')).toMatch(/TRACKIO_WRITE_TOKEN/)
  expect(trackerAddress('otlp:http://h:4318#content')).toEqual({ kind: 'otlp', url: 'http://h:4318/', content: true })
  expect(trackerAddress('otlp:http://h:4318#all')).toMatch(/otlp:URL#content/)
  expect(trackerAddress('excel:x')).toMatch(/expected tensorboard:DIRECTORY, wandb:/)
  expect(trackerAddress('mlflow:localhost')).toMatch(/http:\/\/HOST:PORT/)
  expect(trackerAddress('mlflow:http://h/#%E0%A4%A')).toMatch(/malformed escape/)
  expect(trackerAddress('mlflow:http://me:secret@h')).toMatch(/would be recorded/)
})
