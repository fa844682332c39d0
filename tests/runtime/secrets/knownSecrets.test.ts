/**
 * A server that repeats a key, in a refusal or in a tool's answer, does not get it into an error, a log, a fact or onto the
 * terminal. The servers are real ones on loopback, which echo what they were sent.
 */
import { once } from 'node:events'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { openMcpServer } from '../../../actors/tools/mcpServer'
import { serverHttp } from '../../../backends/engines/server/http'
import { objectOf } from '../../../backends/engines/server/reply'
import { main } from '../../../cli/main'
import { asError, TroupeError } from '../../../runtime/errors'
import { createLog } from '../../../runtime/log'
import { knowSecret, redactSecrets } from '../../../runtime/secrets/knownSecrets'
import { resolveSecret } from '../../../runtime/secrets/secretReference'

const KEY = 'SEKRET"a+b/c=1234'
const folder = mkdtempSync(join(tmpdir(), 'known-secrets-'))
let echo: Server
let url: string

beforeAll(async () => {
  writeFileSync(join(folder, 'key'), `${KEY}\n`)
  process.env.TROUPE_TEST_KEY = 'KEY-of-the-environment'
  echo = createServer((request, response) => {
    if (request.url === '/json') {
      response.end('{"data":[{"id":"postgres-7b","max_model_len":4242421234}]}')
      return
    }
    response.writeHead(request.url === '/long' ? 500 : 401, { 'content-type': 'text/plain' })
    response.end(`${'x'.repeat(request.url === '/long' ? 290 : 0)}bad key ${request.headers.authorization}`)
  })
  await once(echo.listen(0, '127.0.0.1'), 'listening')
  url = `http://127.0.0.1:${(echo.address() as AddressInfo).port}`
})
afterAll(() => {
  echo.close()
  rmSync(folder, { recursive: true })
  delete process.env.TROUPE_TEST_KEY
})

const refusal = async (act: () => unknown): Promise<Error> => {
  try {
    await act()
  } catch (thrown) {
    return thrown as Error
  }
  throw new Error('nothing was refused')
}

test('an engine that echoes its key in a refusal is reported without it, in the error and in the log', async () => {
  const http = serverHttp(url, resolveSecret({ file: join(folder, 'key') }))
  const lines: string[] = []
  const log = createLog('test', { write: line => lines.push(line), pretty: false })
  const error = await refusal(async () => objectOf(url, '/v1/models', await http.get('/v1/models', 5000)))
  expect(error.message).toContain('requires an API key: /v1/models says 401: bad key Bearer [redacted]')
  log.warn({ err: error, said: `the server says ${KEY}` }, `it says ${KEY}`)
  expect(lines).toHaveLength(1)
  expect(lines[0]).not.toContain('SEKRET')
  // A message that is cut does not leave the beginning of a key.
  const cut = await refusal(async () => objectOf(url, '/long', await http.get('/long', 5000)))
  expect(cut.message).not.toContain('SEKR')
  http.close()
})

test('a reply that is parsed comes as the server sent it, though a short secret occurs in it', async () => {
  for (const secret of ['postgres', '4242421234']) knowSecret(secret)
  const http = serverHttp(url)
  const models = objectOf(url, '/json', await http.get('/json', 5000))
  expect(models).toEqual({ data: [{ id: 'postgres-7b', max_model_len: 4242421234 }] })
  http.close()
})

test('the result of an MCP tool keeps words that are short secrets, not a long one; an error keeps neither', async () => {
  for (const secret of ['postgres', 'sixteen-letters!']) knowSecret(secret)
  const args = [join(__dirname, '../../support/mcpServer.cjs')]
  const server = await openMcpServer('s', { command: process.execPath, args, env: {}, startTimeoutMs: 30_000 } as never)
  const said = (isError: boolean) =>
    server.tool('say')(
      { said: 'use postgres, sixteen-letters!', isError },
      { timeoutMs: 20_000 } as never,
      new AbortController().signal,
    )
  try {
    expect(await said(false)).toMatchObject({ status: 'ok', stdout: 'use postgres, [redacted]' })
    expect(await said(true)).toMatchObject({ status: 'error', stderr: 'use [redacted], [redacted]' })
  } finally {
    await server.close()
  }
})

test('an MCP server that echoes a header is reported without it', async () => {
  const headers = { authorization: { env: 'TROUPE_TEST_KEY' } }
  const config = { url: `${url}/mcp`, headers, startTimeoutMs: 5000 }
  const error = await refusal(() => openMcpServer('echo', config as never))
  expect(error).toMatchObject({ code: 'config.mcp_failed' })
  expect(error.message).toContain('[redacted]')
  expect(error.message).not.toContain('KEY-of-the-environment')
})

test('a library’s error, in a chain of causes, and every form of a secret are redacted', () => {
  resolveSecret({ file: join(folder, 'key') })
  const cause = asError(new Error(`401 for ${KEY}`))
  expect([cause.message, cause.stack?.includes('SEKRET')]).toEqual(['401 for [redacted]', false])
  expect(new TroupeError('x.y', { boundary: 'cli', retriable: false, message: `denied: ${KEY}` }).message).toBe(
    'denied: [redacted]',
  )
  for (const form of [KEY, JSON.stringify(KEY), encodeURIComponent(KEY), Buffer.from(KEY).toString('base64')]) {
    expect(redactSecrets(`<${form}>`)).toMatch(/^<"?\[redacted\]=*"?>$/)
  }
  const lines: string[] = []
  const log = createLog('test', { write: line => lines.push(line), pretty: true })
  log.error({ err: new Error('outer', { cause: new Error(`inner ${KEY}`) }), text: [KEY] }, 'failed')
  expect(lines.join('')).not.toContain('SEKRET')
})

test('what the command line prints of an error is redacted', async () => {
  knowSecret('a-token-of-the-command-line')
  const said: string[] = []
  const write = jest.spyOn(process.stderr, 'write').mockImplementation(text => said.push(String(text)) > 0)
  try {
    expect(await main(['replay', 'ls', '--bus', 'lmdb:/nowhere/a-token-of-the-command-line', '--run', 'x'])).not.toBe(0)
  } finally {
    write.mockRestore()
  }
  expect(said.join('')).toContain('[redacted]')
  expect(said.join('')).not.toContain('a-token-of-the')
})

test('short texts are not taken for secrets, since they would spoil others', () => {
  knowSecret('abc')
  expect(redactSecrets('abcdef')).toBe('abcdef')
})

test('a secret of digits does not break the numbers of a log line; the message and the fields lose it', () => {
  const digits = knowSecret(String(Date.now()).slice(0, 6))
  for (const pretty of [false, true]) {
    const lines: string[] = []
    const log = createLog('test', { write: line => lines.push(line), pretty })
    log.child({ of: `<${digits}>` }).info({ deep: [{ text: digits }], [digits]: 1 }, `it is ${digits}`)
    expect(lines.join('')).toContain('it is [redacted]')
    expect(lines.join('').replace(/"time":\d+/, '')).not.toContain(digits)
    if (!pretty)
      expect(JSON.parse(lines[0]!)).toMatchObject({
        ...{ time: expect.any(Number), of: '<[redacted]>', deep: [{ text: '[redacted]' }], '[redacted]': 1 },
      })
  }
})
