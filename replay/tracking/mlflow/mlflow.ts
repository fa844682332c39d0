/**
 * MLflow as a tracker, over its REST API: one MLflow run for each Troupe run, found by its tag `troupe.run`.
 *
 * in   `run.started`, points of a run, `run.finished`
 * out  parameters, metrics by step, tags (alarms too); the MLflow run's status, set when tracking begins and at the end
 * Invariant: the MLflow run's tag `troupe.kept` has, for each series (the training steps, each evaluation), the latest
 * step that the server accepted. The tag is sent with the last of that step's values, so a restart continues after it.
 */
import type { RunFinished } from '../../../messages/facts'
import { TrackerRefusal } from '../http'
import type { Point, Tracker } from '../runPoints'
import { mlflowClient } from './client'

/** Upper bound of the server on the metrics in one call of log-batch. */
const metricsPerBatch = 1000
/** Upper bound of the server on the parameters in one call of log-batch. */
const paramsPerBatch = 100
/** Upper bound on the characters of a parameter's value that every MLflow server of versions 2 and 3 accepts. */
const valueLength = 500

const statuses: Readonly<Record<RunFinished['outcome'], string>> = {
  done: 'FINISHED',
  stopped: 'KILLED',
  failed: 'FAILED',
}

interface Pair {
  readonly key: string
  readonly value: string
}
interface FoundRun {
  readonly info: { readonly run_id: string; readonly status: string }
  readonly data: { readonly tags?: readonly Pair[] }
}
export interface MlflowOptions {
  /** Experiment to put the run into (default: the recipe's name). It is created if it does not exist. */
  readonly experiment?: string
  /** Deadline of one call, in ms. */
  readonly deadlineMs?: number
}

export function mlflowTracker(url: string, run: string, { experiment, deadlineMs }: MlflowOptions = {}): Tracker {
  const { call } = mlflowClient(url, deadlineMs)
  let id = ''
  let kept: Readonly<Record<string, number>> = {}

  /** Returns the id of the experiment of this name; creates the experiment if the server has none. */
  async function experimentOf(name: string): Promise<string> {
    const path = `experiments/get-by-name?experiment_name=${encodeURIComponent(name)}`
    const found = await call<{ experiment: { experiment_id: string } }>(path).catch(thrown => {
      if (thrown instanceof TrackerRefusal && thrown.named === 'RESOURCE_DOES_NOT_EXIST') return undefined
      throw thrown
    })
    return (
      found?.experiment.experiment_id ??
      (await call<{ experiment_id: string }>('experiments/create', { name })).experiment_id
    )
  }

  async function send(points: readonly Point[]): Promise<void> {
    const metrics = points.flatMap(({ step, at, values }) =>
      Object.entries(values).map(([key, value]) => ({ key: nameOf(key), value, timestamp: at, step })),
    )
    const after = points.reduce((latest, { key, step }) => withLatest(latest, seriesOf(key), step), kept)
    const texts = Object.assign({}, ...points.map(point => point.texts)) as Readonly<Record<string, string>>
    // If the points have more values than one call may carry, the tags go with the last call.
    for (; metrics.length > metricsPerBatch; )
      await call('runs/log-batch', { run_id: id, metrics: metrics.splice(0, metricsPerBatch) })
    await call('runs/log-batch', {
      run_id: id,
      metrics,
      tags: pairs({ ...texts, 'troupe.kept': JSON.stringify(after) }),
    })
    kept = after
  }

  return {
    async begin({ recipe, versions, at }) {
      const named = experiment ?? String(recipe.name ?? 'troupe')
      const experiment_id = await experimentOf(named)
      const filter = `tags."troupe.run" = '${run}'`
      const { runs = [] } = await call<{ runs?: FoundRun[] }>('runs/search', {
        experiment_ids: [experiment_id],
        filter,
        max_results: 1,
      })
      const tags = pairs({ 'troupe.run': run, ...prefixed('version', versions) })
      const found =
        runs[0] ??
        (await call<{ run: FoundRun }>('runs/create', { experiment_id, run_name: run, start_time: at, tags })).run
      id = found.info.run_id
      kept = JSON.parse(found.data.tags?.find(({ key }) => key === 'troupe.kept')?.value ?? '{}')
      if (found.info.status !== 'RUNNING') await call('runs/update', { run_id: id, status: 'RUNNING' })
      const params = pairs(leavesOf(recipe))
      for (let first = 0; first < params.length; first += paramsPerBatch)
        await call('runs/log-batch', { run_id: id, params: params.slice(first, first + paramsPerBatch) })
    },
    async keep(points) {
      // Sorted by step: within a series steps rise, but times do not if the machine's clock was set back.
      const sorted = [...points].sort((a, b) => a.step - b.step)
      const fresh = sorted.filter(({ key, step, texts }) => texts !== undefined || step > (kept[seriesOf(key)] ?? -1))
      for (let batch: Point[] = [], values = 0, i = 0; i < fresh.length; i++) {
        batch.push(fresh[i]!)
        values += Object.keys(fresh[i]!.values).length
        const next = Object.keys(fresh[i + 1]?.values ?? {}).length
        if (i + 1 < fresh.length && values + next <= metricsPerBatch && batch.length < paramsPerBatch / 2) continue
        await send(batch)
        ;[batch, values] = [[], 0]
      }
    },
    async end({ outcome, at }) {
      await call('runs/update', { run_id: id, status: statuses[outcome], end_time: at })
    },
    async close() {},
  }
}

/** Series of a point: its key without the step. Alarms are texts, which `kept` leaves out. */
const seriesOf = (key: string): string => key.slice(0, key.lastIndexOf('/'))

const withLatest = (kept: Readonly<Record<string, number>>, series: string, step: number) =>
  series.startsWith('alarm/') ? kept : { ...kept, [series]: Math.max(kept[series] ?? -1, step) }

/** Replaces characters that MLflow refuses in names of metrics, parameters and tags; cuts a name to 250 characters. */
const nameOf = (name: string): string => name.replace(/[^\w\-. /]/g, '_').slice(0, 250)

const pairs = (values: Readonly<Record<string, string>>): Pair[] =>
  Object.entries(values).map(([key, value]) => ({ key: nameOf(key), value: value.slice(0, 5000) }))

const prefixed = (prefix: string, values: Readonly<Record<string, string>>): Record<string, string> =>
  Object.fromEntries(Object.entries(values).map(([name, value]) => [`${prefix}.${name}`, value]))

/** The recipe's values by their path (`train.learningRate`); a list is one value. */
function leavesOf(value: Readonly<Record<string, unknown>>, path = ''): Record<string, string> {
  return Object.fromEntries(
    Object.entries(value).flatMap(([name, inner]): [string, string][] => {
      const at = `${path}${name}`
      if (typeof inner === 'object' && inner !== null && !Array.isArray(inner))
        return Object.entries(leavesOf(inner as Readonly<Record<string, unknown>>, `${at}.`))
      const text = typeof inner === 'string' ? inner : JSON.stringify(inner)
      return text === undefined || text === '' ? [] : [[at, text.slice(0, valueLength)]]
    }),
  )
}
