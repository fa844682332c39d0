/**
 * Each client that sends a credential, against a server that refuses it and repeats what it was sent: as it came, with
 * `Basic` decoded, as JSON, in a URL and in base64. Neither the error nor a log line of it shows the credential.
 */
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { openMcpServer } from '../../../actors/tools/mcpServer'
import { serverHttp } from '../../../backends/engines/server/http'
import { objectOf } from '../../../backends/engines/server/reply'
import { weightsHere } from '../../../backends/weights/fetchWeights'
import { judgeModel } from '../../../recipes/benchmarks/arenaHard/judge'
import { hubFiles } from '../../../recipes/data/hub'
import { openLog } from '../../../replay/log/recordedRun'
import { mlflowClient } from '../../../replay/tracking/mlflow/client'
import { exportTraces } from '../../../replay/tracking/otlp/exportTraces'
import { trackioTracker } from '../../../replay/tracking/trackio'
import { createLog } from '../../../runtime/log'
import { quickstartHistory, saveHistory } from '../../support/histories'

jest.setTimeout(60_000)

const directory = mkdtempSync(join(tmpdir(), 'troupe-echoing-'))
const history = quickstartHistory()
let server: Server
let url: string

beforeAll(async () => {
  await saveHistory(directory, history)
  server = createServer((request, response) => {
    const sent = Object.entries(request.headers).map(([name, value]) => `${name}: ${value}`)
    const basic = /^Basic (.*)$/.exec(request.headers.authorization ?? '')?.[1]
    const all = [...sent, ...(basic === undefined ? [] : [Buffer.from(basic, 'base64').toString()])].join(' | ')
    const forms = [all, JSON.stringify(all), encodeURIComponent(all), Buffer.from(all).toString('base64')]
    // An error quotes the beginning of an answer: each form comes first for one of four paths of the same server.
    const first = Number(/^\/form(\d)/.exec(request.url ?? '')?.[1] ?? 0)
    response.writeHead(401, { 'content-type': 'text/plain' })
    response.end(`bad credentials ${forms[first]}`)
  })
  await once(server.listen(0, '127.0.0.1'), 'listening')
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
})
afterAll(() => {
  server.closeAllConnections()
  server.close()
  rmSync(directory, { recursive: true, force: true })
})

type Call = (address: string, secret: string) => Promise<unknown>

/** `isQuoted`: the client's error quotes the answer, so it shows [redacted]. The others name the status alone. */
const clients: readonly { readonly client: string; readonly isQuoted: boolean; readonly call: Call }[] = [
  {
    ...{ client: 'MLflow, a token', isQuoted: true },
    call: (at, secret) => mlflowClient(at, 2000, { MLFLOW_TRACKING_TOKEN: secret }).call('x'),
  },
  {
    ...{ client: 'MLflow, a password', isQuoted: true },
    call: (at, secret) =>
      mlflowClient(at, 2000, { MLFLOW_TRACKING_USERNAME: 'me', MLFLOW_TRACKING_PASSWORD: secret }).call('x'),
  },
  {
    ...{ client: 'Trackio, a write token', isQuoted: true },
    call: (at, secret) =>
      trackioTracker(at, 'r', {}, { TRACKIO_WRITE_TOKEN: secret }).keep([
        { key: 'a', step: 1, at: 1, values: { x: 1 } },
      ]),
  },
  {
    ...{ client: 'Trackio, the token of a Space', isQuoted: true },
    call: (at, secret) =>
      trackioTracker(at, 'r', {}, { HF_TOKEN: secret }).keep([{ key: 'a', step: 1, at: 1, values: { x: 1 } }]),
  },
  {
    ...{ client: 'a receiver of OTLP, a percent-encoded header', isQuoted: true },
    async call(at, secret) {
      const env = { OTEL_EXPORTER_OTLP_HEADERS: `x-tenant=troupe,a-name-of-no-secret=${encodeURIComponent(secret)}` }
      const recorded = await openLog({ bus: `lmdb:${directory}`, run: history.run })
      await exportTraces(recorded, { url: at, follow: false, content: false, env }).finally(() => recorded.close())
    },
  },
  {
    ...{ client: 'an engine', isQuoted: true },
    async call(at, secret) {
      const http = serverHttp(at, secret)
      try {
        objectOf(at, '/v1/models', await http.get('/v1/models', 5000))
      } finally {
        http.close()
      }
    },
  },
  {
    ...{ client: "a judge's model", isQuoted: true },
    async call(at, secret) {
      process.env.TROUPE_TEST_JUDGE = secret
      const config = { url: at, model: 'm', apiKey: { env: 'TROUPE_TEST_JUDGE' }, temperature: 0, maxTokens: 1 }
      await judgeModel({ ...config, timeoutMs: 5000, atOnce: 1 })([], {
        signal: new AbortController().signal,
        aside: promise => promise,
      })
    },
  },
  {
    ...{ client: 'an MCP server, a header that the recipe spells out', isQuoted: true },
    call: (at, secret) =>
      openMcpServer('echo', { url: `${at}/mcp`, headers: { 'x-api-key': secret }, startTimeoutMs: 5000 } as never),
  },
  {
    ...{ client: 'a server of weights', isQuoted: false },
    call: (at, token) =>
      weightsHere(
        { url: 'file:///not-here', served: `${at}/v1`, digest: 'd' },
        { into: join(directory, 'w'), token, againMs: 1 },
      ),
  },
  {
    ...{ client: 'the Hugging Face hub', isQuoted: false },
    call: (endpoint, token) => hubFiles({ repo: 'a/b', paths: /x/, cache: directory, endpoint, token }),
  },
]

const refusal = (promise: Promise<unknown>): Promise<Error> =>
  promise.then(
    () => Promise.reject(new Error('the call was not refused')),
    (error: Error) => error,
  )

const forms = ['as it came', 'JSON', 'percent-encoding', 'base64']

describe.each(clients)('$client', ({ client, isQuoted, call }) => {
  test.each(forms)(
    'a server that repeats the credential, %s, does not get it into an error or a log line',
    async form => {
      const k = clients.findIndex(one => one.client === client) * forms.length + forms.indexOf(form)
      // The digits differ, so no test knows the secret of another one. Some characters are escaped in JSON and in URLs.
      const secret = `SEKRET"a+b/c=${String(k).padStart(3, '0')}-${'qwertz'.repeat(2)}`
      const error = await refusal(call(`${url}/form${forms.indexOf(form)}`, secret))
      const lines: string[] = []
      createLog('test', { write: line => lines.push(line), pretty: false }).error({ err: error }, 'the call failed')
      const shown = [error.message, error.stack, (error.cause as Error | undefined)?.message, ...lines].join('\n')
      for (const part of [
        'SEKRET',
        'qwertz',
        encodeURIComponent('"a+b/c'),
        ...base64Parts('SEKRET"a+b/c='),
        ...base64Parts('qwertzqwertz'),
      ])
        expect(shown).not.toContain(part)
      if (isQuoted) expect(error.message).toContain('[redacted]')
    },
  )
})

/** The characters of base64 that a text alone decides, for each place at which it may begin in a group of three bytes. */
const base64Parts = (text: string): readonly string[] =>
  [0, 1, 2].map(at =>
    Buffer.concat([Buffer.alloc(at), Buffer.from(text)])
      .toString('base64')
      .slice(at + 2, Math.floor(((at + text.length) * 8) / 6)),
  )
