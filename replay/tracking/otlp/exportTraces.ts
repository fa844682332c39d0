/**
 * Sends a run's traces to a receiver of OTLP over HTTP: a collector, Jaeger, Phoenix, Langfuse, MLflow.
 *
 * in   a recorded run, live or over; headers from OTEL_EXPORTER_OTLP_HEADERS
 * out  requests; one is sent as soon as 256 spans or 2^20 characters of attributes wait, or the log is read to its end
 * Invariants: the log is read on only after the receiver has accepted a full request, so memory is bounded while a
 * receiver is down. Ids are the same at each export, so a repeated call sends the same spans again.
 */
import { fence } from '../../../actors/ownership/fencing'
import { percentDecoded } from '../../../config/percentDecoded'
import type { Fact, RunFinished } from '../../../messages/facts'
import { TroupeError } from '../../../runtime/errors'
import { knowHeaderList } from '../../../runtime/secrets/credentials'
import type { RecordedRun } from '../../log/recordedRun'
import { TrackerRefusal, trackerRequest } from '../http'
import { Patience, troubleOf } from '../patience'
import type { TrackOptions } from '../runPoints'
import { traceRequest } from './request'
import { type Span, spansOf } from './spans'

const spansPerRequest = 256
/** Characters of attributes after which a request is sent, since receivers bound a request (often at 4 MiB). */
const charactersPerRequest = 1 << 20

export interface ExportOptions extends TrackOptions {
  /** Base address of the receiver; `/v1/traces` is added unless it is there. */
  readonly url: string
  /** True: spans carry prompts, answers, arguments and results. */
  readonly content: boolean
  readonly deadlineMs?: number
  readonly env?: NodeJS.ProcessEnv
}

export interface Exported {
  readonly spans: number
  /** undefined if the log has no `run.finished`, or a later `run.resumed`. */
  readonly finished: RunFinished | undefined
}

/**
 * @throws TroupeError tracker.wrong_headers or tracker.refused at once; tracker.unreachable after retries for
 * `patienceMs` (without limit while a followed run goes on), or at the last try after the signal is aborted
 */
export async function exportTraces(recorded: RecordedRun, options: ExportOptions): Promise<Exported> {
  const { follow, signal, url, content, deadlineMs, env = process.env } = options
  const base = url.replace(/\/+$/, '')
  const target = base.endsWith('/v1/traces') ? base : `${base}/v1/traces`
  const headers = { 'content-type': 'application/x-protobuf', ...headersOf(env.OTEL_EXPORTER_OTLP_HEADERS ?? '') }
  const started = await recorded.started()
  const take = spansOf(recorded.run, started, { content })
  const version = started.versions.troupe ?? ''
  const resource = { 'service.name': 'troupe', 'service.version': version, 'troupe.run': recorded.run }
  const counts = fence()
  const patience = new Patience(options)
  let [trajectories, runs]: [number[], number[]] = [[], []]
  let finished: RunFinished | undefined
  let waiting: Span[] = []
  let waitingCharacters = 0
  let sent = 0

  async function send(): Promise<void> {
    if (waiting.length === 0) return
    const body = new Uint8Array(traceRequest(waiting, resource, version))
    for (;;) {
      const trouble = await troubleOf(() => post(body))
      if (trouble === undefined) break
      const isLast = signal?.aborted === true
      await patience.failed(trouble, { isLast, isOver: !follow || finished !== undefined })
    }
    patience.worked()
    sent += waiting.length
    ;[waiting, waitingCharacters] = [[], 0]
  }

  async function post(body: Uint8Array<ArrayBuffer>): Promise<void> {
    const answer = await trackerRequest(target, base, headers, body, deadlineMs)
    if (answer.status >= 200 && answer.status < 300) return
    const hint = 'give the address of an OTLP receiver over HTTP, and its keys in OTEL_EXPORTER_OTLP_HEADERS'
    throw new TrackerRefusal(base, answer, hint)
  }

  for (;;) {
    const isLast = !follow || signal?.aborted === true
    // `runs` is read first: then `trajectories` is read at least to what was written before `run.finished`.
    const ofRuns = await recorded.scan(
      'runs',
      entry => {
        if (!counts(entry)) return
        const { message } = entry
        if (message.type === 'run.finished') finished = message
        if (message.type === 'run.resumed') finished = undefined
      },
      undefined,
      runs,
    )
    runs = ofRuns.map(({ offset }) => offset)
    const ofTrajectories = await recorded.scan(
      'trajectories',
      async entry => {
        if (!counts(entry)) return
        for (const span of take(entry.message as Fact)) {
          waiting.push(span)
          waitingCharacters += JSON.stringify(span.attributes).length
        }
        if (waiting.length >= spansPerRequest || waitingCharacters >= charactersPerRequest) await send()
      },
      undefined,
      trajectories,
    )
    trajectories = ofTrajectories.map(({ offset }) => offset)
    await send()
    if (isLast || finished !== undefined) return { spans: sent, finished }
    await patience.pause(patience.everyMs)
  }
}

/**
 * Reads `key=value,key=value` with percent-encoded values, as every OpenTelemetry exporter does.
 * @throws TroupeError tracker.wrong_headers
 */
function headersOf(text: string): Record<string, string> {
  knowHeaderList(text)
  return Object.fromEntries(
    text.split(',').flatMap(pair => {
      const at = pair.indexOf('=')
      if (at < 1) return []
      const name = pair.slice(0, at).trim().toLowerCase()
      const value = percentDecoded(pair.slice(at + 1).trim())
      if (value === undefined) throw wrongHeader(name)
      return [[name, value]]
    }),
  )
}

/** Creates the error. Its message leaves the header's value out, which is often an API key. */
const wrongHeader = (name: string) =>
  new TroupeError('tracker.wrong_headers', {
    boundary: 'process',
    retriable: false,
    message: `OTEL_EXPORTER_OTLP_HEADERS: the value of '${name}' has a malformed escape`,
    hint: 'write a plain % as %25',
  })
