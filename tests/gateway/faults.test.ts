/** Each fault of an engine, a client or the gateway has the answer that docs/gateway.md names, in its dialect's form. */
import { execFileSync } from 'node:child_process'
import { GenerationLost } from '../../backends/engines/engine'
import { openEnginePool } from '../../gateway/engines/enginePool'
import { callRows } from '../../kernels'
import { groupId, policyVersion, trajectoryId } from '../../messages/ids'
import { systemEffects } from '../../runtime/effects'
import { charRenderer, decodeChars, encodeChars } from '../support/gateway/charRenderer'
import { eventsOf, openTestGateway, testGateways } from '../support/gateway/openTestGateway'
import { scriptedEngine } from '../support/gateway/scriptedEngine'
import { until } from '../support/until'

const opened = testGateways()

const messages = [{ role: 'user', content: 'go' }]
const body = { model: 'm', messages }
const chat = '/v1/chat/completions'

/** Error of an engine that is lost after it has sampled `text` under policy version 7. */
function lostAfter(text: string): GenerationLost {
  const tokens = encodeChars(text)
  return new GenerationLost(new Error('CUDA error'), {
    ...{ tokens, logprobs: Float32Array.from(tokens, (_, i) => -8 - i) },
    segments: [{ policyVersion: policyVersion(7), start: 0, end: tokens.length }],
  })
}

test('a call whose engine is lost in mid-stream continues after its tokens, and each is trained as it was sampled', async () => {
  const gateway = await opened((_context, turn) => {
    if (turn === 0) throw lostAfter('upon ')
    return 'a time'
  })
  const events = await eventsOf(await gateway.post(chat, { ...body, stream: true }))
  const text = events.map(({ data }) => (data as { choices?: { delta: { content?: string } }[] }).choices?.[0]?.delta)
  expect(text.map(delta => delta?.content ?? '').join('')).toBe('upon a time')
  expect(gateway.engine.asked.map(one => decodeChars(one.context).split('assistant\n')[1])).toEqual(['', 'upon '])
  const [row] = callRows(gateway.gateway.sessions.list()[0]!.calls.tree)
  const trained = [...row!.tokens.keys()].filter(i => row!.mask[i] === 1)
  expect(decodeChars(row!.tokens.filter((_, i) => row!.mask[i] === 1))).toBe('upon a time<|im_end|>')
  expect(trained.map(i => row!.versions[i])).toEqual([...Array(5).fill(7), ...Array(7).fill(0)])
  const second = gateway.engine.sampled[0]!.logprobs
  expect(trained.map(i => row!.engineLogprobs[i])).toEqual([-8, -9, -10, -11, -12, ...second])
})

test.each([
  [chat, body, (last: { data: unknown }) => (last.data as { error: { message: string } }).error.message],
  [
    '/v1/completions',
    { model: 'm', prompt: 'go' },
    last => (last.data as { error: { message: string } }).error.message,
  ],
  ['/v1/responses', { model: 'm', input: 'go' }, last => (last.data as { message: string }).message],
  ['/v1/messages', { ...body, max_tokens: 9 }, last => (last.data as { error: { message: string } }).error.message],
] as [string, object, (last: { data: unknown }) => string][])(
  'a stream whose engines all fail ends with an error event, and is not trained on: %s',
  async (path, asked, messageOf) => {
    const { post, facts, gateway } = await opened(() => {
      throw lostAfter('a')
    })
    const events = await eventsOf(await post(path, { ...asked, stream: true }))
    expect(messageOf(events.at(-1)!)).toBe('CUDA error')
    // Nothing tells the client that the answer is whole.
    expect(JSON.stringify(events)).not.toMatch(/\[DONE\]|message_stop|response\.completed|"finish_reason":"/)
    expect((await facts()).at(-1)).toMatchObject({ type: 'call.finished', finish: 'failed' })
    expect(callRows(gateway.sessions.list()[0]!.calls.tree, ['main', 'aux'])).toEqual([])
  },
)

test('two retries at once of a call that was lost with its gateway are one generation', async () => {
  const first = await openTestGateway(() => new Promise<string>(() => {}))
  const lost = first.post(chat, body).catch(() => 'lost')
  await until(() => first.engine.asked.length === 1)
  const second = await opened(async () => 'once', { over: first.log })
  const retry = async () => (await second.post(chat, body, { 'x-stainless-retry-count': '1' })).json()
  const [one, other] = await Promise.all([retry(), retry()])
  expect(one).toMatchObject({ choices: [{ message: { content: 'once' } }] })
  expect(other).toEqual(one)
  expect(second.engine.asked).toHaveLength(1)
  await first.gateway.close()
  await lost
})

test('a call after the time of its session is refused with 409 and not repeated', async () => {
  let later = 0
  const { post } = await opened(() => 'ok', { fx: { ...systemEffects, now: () => systemEffects.now() + later } })
  const { key } = (await (await post('/troupe/v1/sessions', { ttl_s: 60 })).json()) as { key: string }
  const ask = () => post(chat, body, { authorization: `Bearer ${key}` })
  expect((await ask()).status).toBe(200)
  later = 61_000
  const late = await ask()
  expect([late.status, late.headers.get('x-should-retry')]).toEqual([409, 'false'])
  expect(await late.json()).toMatchObject({ error: { code: 'session_expired' } })
})

test.each([
  [chat, { error: { message: 'no such token', code: 'internal_error' } }],
  ['/v1/messages', { type: 'error', error: { type: 'api_error', message: 'no such token' } }],
])('a fault of the gateway is 500, which no SDK repeats: %s', async (path, expected) => {
  const { post, engine } = await opened(() => 'ok', {
    renderer: {
      ...charRenderer(),
      prompt: async given => {
        // The first prompts are the gateway's own: it tries the template when it starts.
        if (given.some(one => one.content === 'go')) throw new RangeError('no such token')
        return charRenderer().prompt(given, [])
      },
    },
  })
  const response = await post(path, { ...body, max_tokens: 9 })
  expect([response.status, response.headers.get('x-should-retry')]).toEqual([500, 'false'])
  expect(await response.json()).toMatchObject(expected)
  expect(engine.asked).toHaveLength(0)
})

test('when as many calls wait as may, the next one is told to come again', async () => {
  let answer = (_: string) => {}
  const engine = scriptedEngine(() => new Promise(resolve => (answer = resolve)), { maxSequences: 1 })
  const pool = await openEnginePool({ engines: [engine], fx: systemEffects, log: { warn() {} }, mostWaiting: 1 })
  const ask = (turn: number) =>
    pool.generate(
      {
        ...{
          requestId: `r${turn}`,
          trajectory: trajectoryId(groupId('g'), 0),
          turn,
          context: encodeChars('x'),
          maxTokens: 9,
        },
        ...{
          sampling: { temperature: 1, topP: 1, topK: 0, minP: 0, stopTokens: [] },
          seed: 1,
          priority: 0,
          keep: true,
        },
      },
      undefined,
      () => {},
      new AbortController().signal,
    )
  const running = ask(0)
  const waits = ask(1)
  await expect(ask(2)).rejects.toMatchObject({ status: 429, code: 'too_many_calls', retryAfterSeconds: 1 })
  await until(() => engine.asked.length === 1)
  answer('first')
  await running
  await until(() => engine.asked.length === 2)
  answer('second')
  expect((await waits).text).toContain('second')
  await pool.close()
})

test('a thousand agents that begin while the gateway is busy all get a connection', async () => {
  const { gateway } = await opened(() => 'ok')
  const { hostname, port } = new URL(gateway.url)
  const connects = `
    let connected = 0
    for (let i = 0; i < 1000; i++) require('net').connect(${port}, '${hostname}', () => ++connected)
    setInterval(() => connected === 1000 && end(), 50)
    setTimeout(end, 900)
    function end() { process.stdout.write(String(connected)); process.exit() }`
  // This process accepts nothing before the other one has ended. A refused connection is tried again after 1 s.
  expect(execFileSync(process.execPath, ['-e', connects], { encoding: 'utf8' })).toBe('1000')
})
