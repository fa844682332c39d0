/** The trackers' own packages read back every point of a run once: from a log that grew between two calls, and again. */
import { mkdirSync, mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { wandbPythonPath } from '../../runtime/python'
import { troupe } from '../support/cli'
import { changed, quickstartHistory, saveHistory } from '../support/histories'
import { readWith, startMlflow, startPhoenix, startTrackio, trackerServers } from '../support/trackerServers'

jest.setTimeout(600_000)

const directory = mkdtempSync(join(tmpdir(), 'troupe-trackers-'))
const history = quickstartHistory()
const early = `lmdb:${join(directory, 'early')}`
const whole = `lmdb:${join(directory, 'whole')}`
beforeAll(async () => {
  const [first] = history.records.flatMap(({ message: m }) => (m.type === 'step.completed' ? [m.at] : []))
  const start = changed(history, m => (!('at' in m) || m.at <= first! ? m : null))
  await saveHistory(early.slice(5), start)
  await saveHistory(whole.slice(5), history)
})
afterAll(() => rmSync(directory, { recursive: true, force: true }))

/** Gives the tracker a log that ends after step 1, then the whole log, then the whole log again. */
async function track(to: string, env: Readonly<Record<string, string>> = {}): Promise<void> {
  for (const bus of [early, whole, whole]) {
    const { code, stderr } = await troupe(['track', history.run, '--to', to, '--bus', bus, '--no-follow'], env).done
    expect({ code, stderr }).toMatchObject({ code: 0 })
  }
}
const steps = [1, 2, 3].map(step => `step/${step}`)
const keys = ['eval/held-out/0', ...steps, 'eval/held-out/3']

test("wandb's own reader finds each point once in the offline files, with the recipe as configuration", async () => {
  const home = join(directory, 'wandb-home')
  mkdirSync(home)
  await track('wandb:maths', { WANDB_MODE: 'offline', WANDB_DIR: home })
  const program = `
import importlib.util, json, sys, wandb
wandb._assert_is_internal_process = True
spec = importlib.util.spec_from_file_location('reader', sys.argv[1] + '/wandb/sdk/internal/datastore.py')
reader = importlib.util.module_from_spec(spec); spec.loader.exec_module(reader)
from wandb.proto.wandb_internal_pb2 import Record
rows, config, project = [], {}, None
for path in sys.argv[2:]:
    store = reader.DataStore(); store.open_for_scan(path)
    while (data := store.scan_data()) is not None:
        record = Record(); record.ParseFromString(data)
        if record.WhichOneof('record_type') == 'history':
            rows.append({item.key or '/'.join(item.nested_key): json.loads(item.value_json) for item in record.history.item})
        if record.WhichOneof('record_type') == 'run':
            project = record.run.project
            config.update({item.key: json.loads(item.value_json) for item in record.run.config.update if item.key})
print(json.dumps({'rows': rows, 'config': config, 'project': project}))`
  const files = readdirSync(join(home, 'wandb'))
    .filter(name => name.startsWith('offline-run-'))
    .sort()
    .map(name => join(home, 'wandb', name, `run-${history.run}.wandb`))
  expect(files).toHaveLength(2) // the third call had nothing to write
  const arguments_ = [join(trackerServers, 'wandb-reader'), ...files]
  const read = await readWith<{
    readonly project: string
    readonly config: Readonly<Record<string, unknown>>
    readonly rows: readonly Readonly<Record<string, unknown>>[]
  }>(program, arguments_, wandbPythonPath())
  expect(read.rows.map(row => row['troupe/point'])).toEqual(keys)
  expect(read.rows.map(row => row._step)).toEqual([0, 1, 2, 3, 4])
  expect(read.rows[3]).toMatchObject({ 'troupe/step': 3, 'train/passAt1': 0.75 })
  expect(read).toMatchObject({ project: 'maths', config: { name: 'quickstart' } })
})

test('a Trackio server has each point once, and refuses a wrong token by name', async () => {
  const server = await startTrackio(join(directory, 'trackio'), 'right')
  try {
    const to = `trackio:${server.url}#maths`
    const wrong = await troupe(['track', history.run, '--to', to, '--bus', whole], { TRACKIO_WRITE_TOKEN: 'wrong' })
      .done
    expect(wrong).toMatchObject({ code: 1, stderr: expect.stringContaining('TRACKIO_WRITE_TOKEN') })
    await track(to, { TRACKIO_WRITE_TOKEN: 'right' })
    const program = `
import json, sys, os
os.environ['TRACKIO_DIR'] = sys.argv[1]
import trackio
run = trackio.Api().runs('maths')[0]
from trackio.sqlite_storage import SQLiteStorage
print(json.dumps([run.name, run.config.get('name'), SQLiteStorage.get_logs('maths', run.name)]))`
    const [name, recipe, logs] = await readWith<[string, string, readonly Readonly<Record<string, unknown>>[]]>(
      program,
      [join(directory, 'trackio')],
    )
    expect([name, recipe]).toEqual([history.run, 'quickstart'])
    expect(logs.filter(log => 'train/passAt1' in log).map(log => [log.step, log['train/passAt1']])).toEqual([
      ...[1, 2, 3].map(step => [step, expect.any(Number)]),
    ])
    expect(logs).toHaveLength(5)
  } finally {
    await server.stop()
  }
})

test('an MLflow server has each value once, read back with its own client', async () => {
  const home = join(directory, 'mlflow')
  mkdirSync(home)
  const server = await startMlflow(home)
  try {
    await track(`mlflow:${server.url}#maths`)
    const program = `
import json, sys
from mlflow import MlflowClient
client = MlflowClient(sys.argv[1])
run, = client.search_runs([client.get_experiment_by_name('maths').experiment_id])
values = [[m.step, m.value] for m in client.get_metric_history(run.info.run_id, 'train/passAt1')]
print(json.dumps([run.info.status, run.data.params['train.steps'], values]))`
    const [status, planned, values] = await readWith<[string, string, [number, number][]]>(program, [server.url])
    expect([status, planned]).toEqual(['FINISHED', '3'])
    expect(values.map(([step]) => step)).toEqual([1, 2, 3])
  } finally {
    await server.stop()
  }
})

test("TensorBoard's own reader finds each scalar once", async () => {
  const home = join(directory, 'tensorboard')
  await track(`tensorboard:${home}`)
  const program = `
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
read = EventAccumulator(sys.argv[1]); read.Reload()
print(json.dumps([[e.step, e.value] for e in read.Scalars('train/passAt1')]))`
  const values = await readWith<[number, number][]>(program, [join(home, history.run)])
  expect(values.map(([step]) => step)).toEqual([1, 2, 3])
})

/** Time in ms in which Phoenix writes what it was sent, on a busy machine. */
const writtenMs = 120_000

interface PhoenixSpan {
  readonly name: string
  readonly context: { readonly trace_id: string; readonly span_id: string }
  readonly parent_id: string | null
  readonly span_kind: string
  readonly attributes: Readonly<Record<string, unknown>>
}

test('a Phoenix server reads each rollout as one trace of an agent, and has each span once after three exports', async () => {
  const server = await startPhoenix(directory)
  try {
    await track(`otlp:${server.url}`)
    const read = async (): Promise<readonly PhoenixSpan[]> => {
      const found: PhoenixSpan[] = []
      for (let cursor: string | null = ''; cursor !== null; ) {
        const answer = await fetch(`${server.url}/v1/projects/default/spans?limit=500&cursor=${cursor}`)
        const page = (await answer.json()) as { data: PhoenixSpan[]; next_cursor: string | null }
        found.push(...page.data)
        cursor = page.next_cursor
      }
      return found
    }
    const count = (type: string) => history.records.filter(({ message }) => message.type === type).length
    const sent = { AGENT: count('rollout.finished'), LLM: count('turn.completed'), TOOL: count('tool.completed') }
    // Phoenix answers before it has written: all spans are there after a while, and then no further one may come.
    let spans: readonly PhoenixSpan[] = []
    const isWhole = () =>
      Object.entries(sent).every(([kind, n]) => spans.filter(({ span_kind }) => span_kind === kind).length >= n)
    for (const began = performance.now(); !isWhole() && performance.now() - began < writtenMs; ) {
      await sleep(1000)
      spans = await read()
    }
    for (let before = -1; before < spans.length; await sleep(3000)) {
      before = spans.length
      spans = await read()
    }
    const agents = spans.filter(({ span_kind }) => span_kind === 'AGENT')
    expect(agents).toHaveLength(sent.AGENT)
    expect(spans.filter(({ span_kind }) => span_kind === 'LLM')).toHaveLength(sent.LLM)
    expect(spans.filter(({ span_kind }) => span_kind === 'TOOL')).toHaveLength(sent.TOOL)
    expect(new Set(spans.map(({ context }) => context.span_id)).size).toBe(spans.length)
    const roots = new Map(agents.map(({ context }) => [context.trace_id, context.span_id]))
    for (const { context, parent_id } of spans)
      if (parent_id !== null) expect(parent_id).toBe(roots.get(context.trace_id))
    expect(agents[0]!.attributes['llm.model_name']).toBe('quickstart-model')
  } finally {
    await server.stop()
  }
})
