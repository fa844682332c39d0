/** What the dashboard refuses, and how it prepares text that models and tools wrote. */

import { type GuardedRequest, requestGuard } from '../../dashboard/server/requestGuard'
import { mostCharacters, mostOfLine, shownJson, shownLine, shownText } from '../../dashboard/server/shownText'
import { bearerCheck } from '../../sandbox/judge/bearerToken'

const local = requestGuard({ host: '127.0.0.1', allowedHosts: [], token: undefined })
const asking = (headers: GuardedRequest['headers'], change: Partial<GuardedRequest> = {}): GuardedRequest => ({
  ...{ method: 'GET', isData: true, headers: { host: '127.0.0.1:4173', ...headers } },
  ...change,
})

test('a page of this server is served; a Host that was rebound, another Origin, and another site are not', () => {
  expect(local(asking({}))).toBeUndefined()
  expect(local(asking({ host: 'localhost:4173', origin: 'http://localhost:4173' }))).toBeUndefined()
  expect(local(asking({ host: 'evil.example' }))).toMatchObject({ status: 403, code: 'dashboard.bad_host' })
  expect(local(asking({ origin: 'http://evil.example' }))).toMatchObject({ status: 403, code: 'dashboard.bad_origin' })
  expect(local(asking({ origin: 'null' }))).toMatchObject({ status: 403, code: 'dashboard.bad_origin' })
  expect(local(asking({ origin: 'http://127.0.0.1:9999' }))).toMatchObject({ status: 403 })
  expect(local(asking({ 'sec-fetch-site': 'cross-site' }))).toMatchObject({ status: 403 })
})

test('only GET and HEAD are served, and no body', () => {
  expect(local(asking({}, { method: 'HEAD' }))).toBeUndefined()
  expect(local(asking({}, { method: 'POST' }))).toMatchObject({ status: 405 })
  expect(local(asking({ 'content-length': '1' }))).toMatchObject({ status: 413 })
  expect(local(asking({ 'transfer-encoding': 'chunked' }))).toMatchObject({ status: 413 })
})

test('with a token, data needs it and the page itself does not', () => {
  const guard = requestGuard({ host: '0.0.0.0', allowedHosts: [], token: bearerCheck('secret') })
  const from = { host: 'trainer.example:4173' }
  expect(guard(asking(from))).toMatchObject({ status: 401, code: 'dashboard.no_token' })
  expect(guard(asking({ ...from, authorization: 'Bearer wrong' }))).toMatchObject({ status: 401 })
  expect(guard(asking({ ...from, authorization: 'Bearer secret' }))).toBeUndefined()
  expect(guard(asking(from, { isData: false }))).toBeUndefined()
})

test('direction marks, terminal codes and NULs become visible; markup stays as it is, for a text node', () => {
  const hostile = '<script>x</script></textarea>\u202ereversed\u0000\u001b[31m\u061c\u2028\u009b'
  const { text, cut } = shownText(hostile)
  expect(cut).toBe(0)
  expect(text).toContain('<script>x</script></textarea>')
  expect(text).toContain('\\u202ereversed\\u0000\\u001b[31m\\u061c\\u2028\\u009b')
  expect(text).not.toMatch(/[\p{Cc}\u061c\u200e\u200f\u202a-\u202e\u2028\u2029\u2066-\u2069]/u)
})

test('a line of 10 MB is cut with a note, and a long text says how much is missing', () => {
  const line = 'x'.repeat(10_000_000)
  const shown = shownText(line)
  expect(shown.text.length).toBeLessThan(mostOfLine + 100)
  expect(shown.text).toContain(`[${mostCharacters - mostOfLine} more characters of this line]`)
  expect(shown.cut).toBe(line.length - mostCharacters)
  const lines = 'short\n'.repeat(20_000)
  expect(shownText(lines).text.length).toBeLessThanOrEqual(mostCharacters)
  expect(shownText(lines).cut).toBe(lines.length - mostCharacters)
})

test('a cut never leaves half a character', () => {
  const text = `${'a'.repeat(mostCharacters - 1)}😀 and more`
  expect(shownText(text).text).not.toMatch(/[\ud800-\udbff](?![\udc00-\udfff])/)
  expect(shownLine('😀'.repeat(500)).length).toBeLessThanOrEqual(200)
})

test('raw events are written as JSON with long lists cut', () => {
  const { text } = shownJson({ tokens: Int32Array.from({ length: 70 }, (_, i) => i), text: '\u202e' })
  expect(text).toContain('"… 6 more"')
  expect(text).toContain('63')
  expect(text).not.toContain('\u202e')
})
