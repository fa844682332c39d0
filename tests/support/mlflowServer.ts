/**
 * A strict server of MLflow's REST API 2.0 for tests: the calls that a tracker needs, with the limits and errors of
 * MLflow's reference.
 *
 * in   HTTP requests on loopback        out  experiments and runs; `violations`: requests that MLflow's server refuses
 * Invariant: a metric that repeats key, timestamp, step and value is kept once, as MLflow's SQL store keeps it; `sent`
 * counts every one that came. Source of the rules: MLflow's REST API reference, "Create Run", "Log Batch", "Search
 * Runs", "Request Limits".
 */
import { createServer, type IncomingMessage } from 'node:http'
import type { AddressInfo } from 'node:net'

interface Pair {
  readonly key: string
  readonly value: string
}
interface Metric {
  readonly key: string
  readonly value: number
  readonly timestamp: number
  readonly step: number
}
export interface MlflowRun {
  readonly experiment: string
  readonly name: string
  status: string
  endTime: number | undefined
  readonly metrics: Metric[]
  readonly params: Map<string, string>
  readonly tags: Map<string, string>
}
export interface MlflowServer {
  readonly url: string
  readonly experiments: string[]
  readonly runs: MlflowRun[]
  readonly violations: string[]
  /** Number of metrics that came, repeated ones included. */
  readonly sent: () => number
  /** What happens to calls of a path: 'silent' is no answer, 'lost' is done but not answered, a number is a status. */
  fault: ((path: string) => 'silent' | 'lost' | number | undefined) | undefined
  close(): Promise<void>
}

// biome-ignore lint/suspicious/noExplicitAny: bodies are checked field by field, as the server does
type Body = Readonly<Record<string, any>>
class Refused extends Error {
  constructor(
    readonly status: number,
    readonly named: string,
    message: string,
  ) {
    super(message)
  }
}
const allowedName = /^[\w\-. /]{1,250}$/

export async function startMlflowServer(port = 0): Promise<MlflowServer> {
  const experiments: string[] = []
  const runs: MlflowRun[] = []
  const violations: string[] = []
  let sent = 0
  const bad = (message: string) => new Refused(400, 'INVALID_PARAMETER_VALUE', message)
  const runOf = (id: string): MlflowRun => {
    const run = runs[Number(id?.slice(4))]
    if (run === undefined) throw new Refused(404, 'RESOURCE_DOES_NOT_EXIST', `no run ${id}`)
    return run
  }
  const shown = (run: MlflowRun) => ({
    info: { run_id: `run-${runs.indexOf(run)}`, status: run.status },
    data: { tags: [...run.tags].map(([key, value]) => ({ key, value })) },
  })
  const tagged = (run: MlflowRun, tags: readonly Pair[] = []) => {
    for (const { key, value } of tags) {
      if (!allowedName.test(key) || typeof value !== 'string' || value.length > 8000) throw bad(`tag ${key}`)
      run.tags.set(key, value)
    }
  }

  const calls: Readonly<Record<string, (body: Body, query: URLSearchParams) => object>> = {
    'GET experiments/get-by-name': (_, query) => {
      const at = experiments.indexOf(query.get('experiment_name') ?? '')
      if (at < 0) throw new Refused(404, 'RESOURCE_DOES_NOT_EXIST', 'no such experiment')
      return { experiment: { experiment_id: String(at), lifecycle_stage: 'active' } }
    },
    'POST experiments/create': ({ name }) => {
      if (experiments.includes(name)) throw new Refused(400, 'RESOURCE_ALREADY_EXISTS', 'there is one')
      return { experiment_id: String(experiments.push(name) - 1) }
    },
    'POST runs/search': ({ experiment_ids, filter }) => {
      const [, key = '', value] = /^tags\."([\w.]+)" = '([^']*)'$/.exec(filter) ?? []
      if (key === '') throw bad(`filter ${filter}`)
      const found = runs.filter(run => experiment_ids.includes(run.experiment) && run.tags.get(key) === value)
      return found.length === 0 ? {} : { runs: found.map(shown) }
    },
    'POST runs/create': ({ experiment_id, run_name, start_time, tags }) => {
      if (experiments[experiment_id] === undefined || !Number.isInteger(start_time)) throw bad('runs/create')
      const run: MlflowRun = {
        ...{ experiment: experiment_id, name: run_name, status: 'RUNNING', endTime: undefined },
        ...{ metrics: [], params: new Map(), tags: new Map() },
      }
      tagged(run, tags)
      runs.push(run)
      return { run: shown(run) }
    },
    'POST runs/update': ({ run_id, status, end_time }) => {
      if (!['RUNNING', 'FINISHED', 'FAILED', 'KILLED'].includes(status)) throw bad(`status ${status}`)
      const run = runOf(run_id)
      run.status = status
      run.endTime = end_time
      return { run_info: shown(run).info }
    },
    'POST runs/log-batch': ({ run_id, metrics = [], params = [], tags = [] }) => {
      const run = runOf(run_id)
      const count = metrics.length + params.length + tags.length
      if (metrics.length > 1000 || params.length > 100 || tags.length > 100 || count > 1000 + 100) throw bad('too many')
      for (const metric of metrics as Metric[]) {
        const { key, value, timestamp, step } = metric
        if (!allowedName.test(key) || typeof value !== 'number') throw bad(`metric ${key}`)
        if (!Number.isInteger(timestamp) || !Number.isInteger(step)) throw bad(`metric ${key}: timestamp or step`)
        sent++
        const same = run.metrics.some(m => m.key === key && m.step === step && m.timestamp === timestamp)
        if (!same) run.metrics.push(metric)
      }
      for (const { key, value } of params as Pair[]) {
        if (!allowedName.test(key) || value.length > 500) throw bad(`param ${key}`)
        if ((run.params.get(key) ?? value) !== value) throw bad(`param ${key} has another value already`)
        run.params.set(key, value)
      }
      tagged(run, tags)
      return {}
    },
  }

  const state: { fault: MlflowServer['fault'] } = { fault: undefined }
  const server = createServer(async (request, response) => {
    const { pathname, searchParams } = new URL(request.url!, 'http://localhost')
    const path = pathname.replace(/^\/api\/2\.0\/mlflow\//, '')
    const fault = state.fault?.(path)
    const answer = (status: number, value: object) => {
      if (fault === 'lost') response.destroy()
      else response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(value))
    }
    const body = await bodyOf(request)
    if (fault === 'silent') return
    if (typeof fault === 'number') return answer(fault, { error_code: 'TEMPORARILY_UNAVAILABLE', message: 'later' })
    try {
      const call = calls[`${request.method} ${path}`]
      if (call === undefined) throw new Refused(404, 'ENDPOINT_NOT_FOUND', `${request.method} ${path}`)
      answer(200, call(body, searchParams))
    } catch (thrown) {
      const { status, named, message } =
        thrown instanceof Refused ? thrown : new Refused(500, 'INTERNAL_ERROR', String(thrown))
      if (named !== 'RESOURCE_DOES_NOT_EXIST') violations.push(message)
      answer(status, { error_code: named, message })
    }
  })
  await new Promise<void>(resolve => server.listen(port, '127.0.0.1', resolve))
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    ...{ experiments, runs, violations, sent: () => sent },
    get fault() {
      return state.fault
    },
    set fault(given) {
      state.fault = given
    },
    close: () =>
      new Promise(resolve => {
        server.close(() => resolve())
        server.closeAllConnections()
      }),
  }
}

async function bodyOf(request: IncomingMessage): Promise<Body> {
  const parts: Buffer[] = []
  for await (const part of request) parts.push(part as Buffer)
  const text = Buffer.concat(parts).toString()
  return text === '' ? {} : JSON.parse(text)
}
