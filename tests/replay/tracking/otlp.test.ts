/** `otlp:URL`: a receiver gets each rollout as one trace, whose parts belong together and have the same ids in every export. */
import { mkdtempSync, rmSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import protobuf from 'protobufjs'
import type { Fact, TurnAsked } from '../../../messages/facts'
import { epoch } from '../../../messages/ids'
import { openLog } from '../../../replay/log/recordedRun'
import { exportTraces } from '../../../replay/tracking/otlp/exportTraces'
import { spansOf } from '../../../replay/tracking/otlp/spans'
import { troupe } from '../../support/cli'
import { changed, quickstartHistory, saveHistory } from '../../support/histories'
import { refused } from '../../support/refusal'

/** The messages of opentelemetry/proto/trace/v1 and common/v1, as far as they are read here. */
const { root } = protobuf.parse(`syntax = "proto3";
message Request { repeated ResourceSpans resource_spans = 1; }
message ResourceSpans { Resource resource = 1; repeated ScopeSpans scope_spans = 2; string schema_url = 3; }
message Resource { repeated KeyValue attributes = 1; }
message ScopeSpans { Scope scope = 1; repeated Span spans = 2; string schema_url = 3; }
message Scope { string name = 1; string version = 2; }
message KeyValue { string key = 1; AnyValue value = 2; }
message AnyValue { oneof value { string string_value = 1; bool bool_value = 2; int64 int_value = 3; double double_value = 4; ArrayValue array_value = 5; } }
message ArrayValue { repeated AnyValue values = 1; }
message Status { string message = 2; int32 code = 3; }
message Span { bytes trace_id = 1; bytes span_id = 2; bytes parent_span_id = 4; string name = 5; int32 kind = 6;
  fixed64 start_time_unix_nano = 7; fixed64 end_time_unix_nano = 8; repeated KeyValue attributes = 9; Status status = 15; }`)
const requestType = root.lookupType('Request')

interface Received {
  readonly traceId: string
  readonly spanId: string
  readonly parentSpanId?: string
  readonly name: string
  readonly startTimeUnixNano: string
  readonly endTimeUnixNano: string
  readonly attributes: readonly { readonly key: string; readonly value: Readonly<Record<string, unknown>> }[]
  readonly status?: { readonly code: number; readonly message: string }
}

jest.setTimeout(90_000)

const directory = mkdtempSync(join(tmpdir(), 'troupe-otlp-'))
const history = quickstartHistory()
const bus = `lmdb:${directory}`
beforeAll(() => saveHistory(directory, history))
afterAll(() => rmSync(directory, { recursive: true, force: true }))

async function startReceiver(statuses: number[] = []) {
  const spans: Received[] = []
  const headers: (string | undefined)[] = []
  const server = createServer((request, response) => {
    const parts: Buffer[] = []
    request.on('data', part => parts.push(part))
    request.on('end', () => {
      headers.push(request.headers.authorization)
      const status = request.url === '/v1/traces' ? (statuses.shift() ?? 200) : 404
      if (status === 200) {
        const read = requestType.toObject(requestType.decode(Buffer.concat(parts)), { bytes: String, longs: String })
        for (const { scopeSpans } of read.resourceSpans) for (const scope of scopeSpans) spans.push(...scope.spans)
      }
      response.writeHead(status).end()
    })
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  const close = () => new Promise<void>(resolve => server.close(() => resolve()))
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, spans, headers, close }
}

const attribute = ({ attributes }: Received, name: string) => {
  const value = attributes.find(({ key }) => key === name)?.value ?? {}
  return Object.values(value)[0]
}

/** Texts of the prompt, the model and the tool that are somewhere in the spans. */
const saidTexts = (spans: readonly Received[]) => {
  const all = JSON.stringify(spans)
  return ['Compute 75 times 55', 'print(75*55-29)', 'stdout: 4096'].filter(text => all.includes(text))
}

async function exported(url: string, options: Partial<Parameters<typeof exportTraces>[1]> = {}, at = bus) {
  const recorded = await openLog({ bus: at, run: history.run })
  return exportTraces(recorded, { url, follow: false, content: false, everyMs: 5, ...options }).finally(() =>
    recorded.close(),
  )
}

test('each rollout is a trace with its turns, tool calls and verdict inside, and no text unless it is asked for', async () => {
  const receiver = await startReceiver()
  try {
    const { spans, finished } = await exported(receiver.url)
    expect(finished?.outcome).toBe('done')
    expect(receiver.spans).toHaveLength(spans)
    const count = (type: string) => history.records.filter(({ message }) => message.type === type).length
    const named = (start: string) => receiver.spans.filter(({ name }) => name.startsWith(start))
    expect(named('invoke_agent quickstart')).toHaveLength(count('rollout.finished'))
    expect(named('chat quickstart-model')).toHaveLength(count('turn.completed') + count('turn.interrupted'))
    expect(named('execute_tool ')).toHaveLength(count('tool.completed'))
    expect(named('evaluate')).toHaveLength(count('reward.assigned') + count('reward.failed'))
    const roots = new Map(named('invoke_agent').map(root => [root.traceId, root.spanId]))
    for (const { name, traceId, parentSpanId } of receiver.spans)
      expect(parentSpanId ?? '').toBe(name.startsWith('invoke_agent') ? '' : roots.get(traceId))
    expect(new Set(receiver.spans.map(({ spanId }) => spanId)).size).toBe(spans)
    const first = named('chat').find(span => attribute(span, 'gen_ai.conversation.id') === 'e0000.0000/0')!
    expect(attribute(first, 'gen_ai.usage.input_tokens')).toBe('28')
    expect(attribute(first, 'gen_ai.provider.name')).toBe('local')
    expect(Number(first.endTimeUnixNano) - Number(first.startTimeUnixNano)).toBeCloseTo(31.453e6, -5)
    const failed = history.records.filter(({ message: m }) => m.type === 'tool.completed' && m.status !== 'ok').length
    expect(named('execute_tool').filter(({ status }) => status?.code === 2)).toHaveLength(failed)
    expect(saidTexts(receiver.spans)).toEqual([])

    const ids = receiver.spans.map(({ spanId }) => spanId)
    receiver.spans.length = 0
    await exported(receiver.url, { content: true })
    expect(receiver.spans.map(({ spanId }) => spanId)).toEqual(ids)
    expect(saidTexts(receiver.spans)).toEqual(['Compute 75 times 55', 'print(75*55-29)', 'stdout: 4096'])
  } finally {
    await receiver.close()
  }
})

test('a call of a captured session is one span, though the run answered it with a turn', async () => {
  const ask = history.records.map(({ message }) => message).find((m): m is TurnAsked => m.type === 'turn.asked')!
  const { trajectory, turn, attempt, sampling, seed, maxTokens, contextTokens } = ask
  const ofType = <T extends Fact['type']>(type: T) =>
    history.records
      .map(({ message }) => message as Fact)
      .find(
        (f): f is Extract<Fact, { type: T }> =>
          f.type === type && (!('trajectory' in f) || f.trajectory === trajectory),
      )!
  const completed = ofType('turn.completed')
  const { tokens, logprobs, text, segments, timing, cachedTokens, preemptions, engine } = completed
  const call = { at: ask.at, trajectory, call: turn, attempt }
  const facts: Fact[] = [
    ofType('rollout.requested'),
    { type: 'session.opened', at: ask.at, trajectory, opening: 0, keyDigest: '', expiresAt: 0 },
    {
      ...{ type: 'call.started', ...call, opening: 0, dialect: 'chat', model: 'm', label: 'main', parent: null },
      ...{ branch: 'first', digest: '', messages: '[]', tools: '[]', tokens, contextTokens, sampling, seed, maxTokens },
      asked: {},
    },
    ask,
    completed,
    {
      ...{ type: 'call.finished', ...call, engine, tokens, logprobs, text, finish: 'stop', error: '', segments },
      ...{ cachedTokens, preemptions, timing },
    },
  ]
  const spans = facts.flatMap(spansOf('r', ofType('run.started'), { content: false }))
  expect(spans.map(({ attributes }) => attributes['troupe.call'])).toEqual([turn])
})

test('a malformed escape in the headers is refused by the name of its header, without its value', async () => {
  const env = { OTEL_EXPORTER_OTLP_HEADERS: 'x=1,Authorization=Bearer 100%' }
  const { code, message } = await refused(exported('http://127.0.0.1:9', { env }))
  expect({ code, message }).toEqual({
    code: 'tracker.wrong_headers',
    message: "OTEL_EXPORTER_OTLP_HEADERS: the value of 'authorization' has a malformed escape",
  })
})

test('a receiver that is down gets every span later; one that refuses is named with its answer', async () => {
  const receiver = await startReceiver([503, 429])
  const said: (string | undefined)[] = []
  try {
    const { spans } = await exported(receiver.url, {
      onTrouble: error => said.push(error?.code),
      env: { OTEL_EXPORTER_OTLP_HEADERS: 'Authorization=Bearer%20key,x=1' },
    })
    expect(said).toEqual(['tracker.unreachable', undefined])
    expect(receiver.spans).toHaveLength(spans)
    expect(new Set(receiver.headers)).toEqual(new Set(['Bearer key']))
    await expect(exported(`${receiver.url}/elsewhere`)).rejects.toMatchObject({ code: 'tracker.refused' })
    const down = await startReceiver(Array(100).fill(503))
    await expect(exported(down.url, { patienceMs: 30 })).rejects.toMatchObject({ code: 'tracker.unreachable' })
    await down.close()
  } finally {
    await receiver.close()
  }
})

test('a live run is followed to its end, and the command says how many spans there are', async () => {
  const receiver = await startReceiver()
  try {
    const live = join(directory, 'live')
    await saveHistory(
      live,
      changed(history, m => (m.type === 'run.finished' ? null : m)),
    )
    const over = new AbortController()
    const watched = exported(receiver.url, { follow: true, signal: over.signal }, `lmdb:${live}`)
    setTimeout(() => over.abort(), 300)
    expect((await watched).finished).toBeUndefined()
    const { code, stderr } = await troupe(['track', history.run, '--to', `otlp:${receiver.url}`, '--bus', bus]).done
    expect({ code, stderr }).toMatchObject({ code: 0, stderr: expect.stringMatching(/done, \d+ spans/) })
  } finally {
    await receiver.close()
  }
})

test('the end of a run that a replaced learner wrote is no end', async () => {
  const receiver = await startReceiver()
  try {
    const stale = join(directory, 'stale')
    const at = history.records.findIndex(({ message }) => message.type === 'run.finished')
    const { message: finished } = history.records[at]!
    const claim = { type: 'draws.claimed', at: 0, owner: 'other', learnerEpoch: epoch(7) } as const
    const records = [
      ...history.records.slice(0, at),
      { topic: 'runs', partition: 0, message: claim },
      { topic: 'runs', partition: 0, message: { ...finished, learnerEpoch: epoch(3) } as Fact },
      ...history.records.slice(at + 1),
    ] as typeof history.records
    await saveHistory(stale, { ...history, records })
    expect((await exported(receiver.url, {}, `lmdb:${stale}`)).finished).toBeUndefined()
    expect((await exported(receiver.url)).finished?.outcome).toBe('done')
  } finally {
    await receiver.close()
  }
})
