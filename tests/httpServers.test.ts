/**
 * Every HTTP server of the project survives hostile clients: the gateway, the judge, the servers of weights and
 * metrics, and the dashboard. The proxy of environments is tested by itself (network/allowlistProxy.test.ts).
 */
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { serveWeights } from '../backends/weights/serveWeights'
import { serveMetrics } from '../cli/train/metrics'
import { openDashboard } from '../dashboard/server/openDashboard'
import { openJudge, openSandbox } from '../sandbox'
import { openTestGateway } from './support/gateway/openTestGateway'
import { until } from './support/until'

const { productionFiles } = require('./runner/sizes') as { productionFiles(root: string): Map<string, string> }

/** Short, so that the test of half-sent headers is fast. */
const headersMs = 400
jest.mock('../sandbox/http/connectionLimits', () => ({
  ...jest.requireActual('../sandbox/http/connectionLimits'),
  HEADERS_MS: 400,
}))

const servers = ['gateway', 'judge', 'weights', 'metrics', 'dashboard'] as const
const ports = new Map<string, number>()
const closers: (() => unknown)[] = []
const listens = (name: (typeof servers)[number], url: string, close: () => unknown) => {
  ports.set(name, Number(new URL(url).port))
  closers.unshift(close)
}

beforeAll(async () => {
  const directory = mkdtempSync(join(tmpdir(), 'troupe-servers-'))
  closers.push(() => rmSync(directory, { recursive: true, force: true }))
  const gateway = await openTestGateway(() => 'ok')
  listens('gateway', gateway.gateway.url, gateway.close)
  const sandbox = await openSandbox({ zygotes: 1 })
  closers.unshift(() => sandbox.close())
  const judge = await openJudge(sandbox, { port: 0, headersMs })
  listens('judge', judge.url, () => judge.close())
  const weights = await serveWeights({ root: directory, address: '127.0.0.1:0' })
  listens('weights', weights.urlOf(join(directory, 'weights')), weights.close)
  const lines: string[] = []
  const write = jest.spyOn(process.stderr, 'write').mockImplementation(text => lines.push(String(text)) > 0)
  const metrics = await serveMetrics({ host: '127.0.0.1', port: 0 })
  write.mockRestore()
  listens('metrics', /http:\S+/.exec(lines.join(''))![0], metrics.close)
  const dashboard = await openDashboard({ bus: `lmdb:${join(directory, 'bus')}`, port: 0, host: '127.0.0.1' })
  listens('dashboard', dashboard.url, () => dashboard.close())
})
afterAll(async () => {
  for (const close of closers) await close()
})

/** Sends text over a connection of its own. Resolves with all that the server sends until it closes the connection. */
async function said(name: string, text: string): Promise<string> {
  const socket = connect(ports.get(name)!, '127.0.0.1').on('error', () => undefined)
  let got = ''
  socket.setEncoding('latin1').on('data', part => {
    got += part
  })
  socket.write(text)
  await once(socket, 'close')
  return got
}

const get = (target: string) => `GET ${target} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n`

describe.each(servers)('%s', name => {
  test.each([
    '//',
    '//[',
    '///',
    '/\\',
    '/\\\\',
    'http://',
    'http://[',
    '/%',
    '/s/%/v1/models',
    '*',
    `/${'x'.repeat(40_000)}`,
  ])('a request for %.20s is refused, and the server goes on', async target => {
    const answer = await said(name, get(target))
    expect([target.slice(0, 20), answer.slice(0, 12)]).toEqual([
      target.slice(0, 20),
      expect.stringMatching(/^HTTP\/1\.1 4\d\d/),
    ])
    expect(await said(name, get('/none'))).toMatch(/^HTTP\/1\.1 404/)
  })

  test('connections whose headers are sent by half are closed', async () => {
    let closed = 0
    const half = Array.from({ length: 20 }, () => {
      const socket = connect(ports.get(name)!, '127.0.0.1').on('error', () => undefined)
      socket.resume().once('close', () => closed++)
      socket.write('GET / HTTP/1.1\r\nhost: 127.0.0.1\r\nx-a: ')
      return socket
    })
    try {
      await until(() => closed === half.length, 8 * headersMs)
    } finally {
      for (const socket of half) socket.destroy()
    }
  })
})

test('every HTTP server is a bounded one', () => {
  const files = productionFiles(join(__dirname, '..'))
  const makers = [...files].filter(([, text]) => /import \{[^}]*\bcreateServer\b[^}]*\} from 'node:http'/.test(text))
  // Connections of the proxy become tunnels, which limitConnections would take for idle ones.
  expect(makers.map(([file]) => file).sort()).toEqual([
    'environments/network/allowlist.ts',
    'sandbox/http/boundedServer.ts',
  ])
})
