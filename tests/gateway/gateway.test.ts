/** Whatever an agent does through the gateway, no token is lost, changed or doubled; and every refusal is in its dialect's form. */
import { request as httpRequest } from 'node:http'
import { callRows, callTree } from '../../kernels'
import { factKey } from '../../messages'
import type { CallStarted, Fact } from '../../messages/facts'
import { TroupeError } from '../../runtime/errors'
import { eventsOf, openTestGateway, testGateways } from '../support/gateway/openTestGateway'
import { refused } from '../support/refusal'
import { until } from '../support/until'

jest.setTimeout(60_000)

const call = '<tool_call>\n{"name": "bash", "arguments": {"cmd": "ls"}}\n</tool_call>'
const bash = {
  type: 'function',
  function: { name: 'bash', parameters: { type: 'object', properties: { cmd: { type: 'string' } } } },
}

type Chat = {
  role: string
  content?: string | null
  tool_calls?: object[]
  tool_call_id?: string
  reasoning_content?: string
}
const user = (content: string): Chat => ({ role: 'user', content })

const opened = testGateways()

async function said(response: Response): Promise<Chat> {
  const body = (await response.json()) as { choices?: { message: Chat }[]; error?: { message: string } }
  if (body.choices === undefined) throw new Error(body.error?.message)
  return body.choices[0]!.message
}

const started = (facts: readonly Fact[]) => facts.filter((fact): fact is CallStarted => fact.type === 'call.started')
/** Rows as [calls, trained text], which is easier to read than ids. */
const rowsOf = (facts: readonly Fact[]) => callRows(callTree(facts)).map(row => row.calls)

test('an agent with tools gets its answer, and its turns are one row of tokens as they were sampled', async () => {
  const script = [`I look.\n${call}`, 'There is a.txt.']
  const { post, facts, engine } = await opened((_context, turn) => script[turn]!)
  const body = { model: 'any', messages: [user('go')], tools: [bash] }
  const first = await said(await post('/v1/chat/completions', body, { authorization: 'Bearer me' }))
  expect(first).toMatchObject({
    content: 'I look.',
    tool_calls: [{ type: 'function', function: { name: 'bash', arguments: '{"cmd":"ls"}' } }],
  })
  const { id } = first.tool_calls![0] as { id: string }
  // The client writes the arguments in another way, and numbers the call anew.
  const echoed = {
    ...first,
    tool_calls: [{ id, type: 'function', function: { name: 'bash', arguments: '{ "cmd": "ls" }' } }],
  }
  const messages = [user('go'), echoed, { role: 'tool', tool_call_id: id, content: 'a.txt' }]
  const second = await said(await post('/v1/chat/completions', { ...body, messages }, { authorization: 'Bearer me' }))
  expect(second.content).toBe('There is a.txt.')
  const [row, ...others] = callRows(callTree(await facts()))
  expect(others).toEqual([])
  expect([...row!.tokens]).toEqual([...engine.sampled[1]!.context, ...engine.sampled[1]!.tokens])
  expect(row!.sampledTokens).toBe(engine.sampled[0]!.tokens.length + engine.sampled[1]!.tokens.length)
})

test('a retry joins the running call, one after the end gets the recorded answer, and the same request without a word is a new sample', async () => {
  let answer = (_: string) => {}
  const { post, facts, engine } = await opened((_c, turn) =>
    turn === 0
      ? new Promise(resolve => {
          answer = resolve
        })
      : `sample ${turn}`,
  )
  const body = { model: 'm', messages: [user('go')] }
  const one = post('/v1/chat/completions', body)
  await until(() => engine.asked.length === 1)
  const two = post('/v1/chat/completions', body, { 'x-stainless-retry-count': '1' })
  await new Promise(resolve => setTimeout(resolve, 30))
  answer('once')
  const [first, second] = [await (await one).json(), await (await two).json()]
  expect(second).toEqual(first)
  expect(await (await post('/v1/chat/completions', body, { 'x-stainless-retry-count': '2' })).json()).toEqual(first)
  expect(engine.asked).toHaveLength(1)
  expect((await said(await post('/v1/chat/completions', body))).content).toBe('sample 1')
  expect(started(await facts()).map(fact => fact.branch)).toEqual(['first', 'sample'])
})

test('a gateway that starts again continues its sessions; a call that had no answer is asked again under its seed', async () => {
  const first = await openTestGateway((_c, turn) => (turn === 0 ? 'one' : new Promise<string>(() => {})))
  const body = (messages: Chat[]) => ({ model: 'm', messages })
  const answer = await said(await first.post('/v1/chat/completions', body([user('go')])))
  const next = body([user('go'), answer, user('on')])
  const lost = first.post('/v1/chat/completions', next).catch(() => 'lost')
  await until(() => first.engine.asked.length === 2)
  // The process dies: its engine and its connections are gone, and nothing was written about the call's end.
  const before = await first.facts()
  const second = await opened(() => 'two', { over: first.log })
  const again = await said(await second.post('/v1/chat/completions', next, { 'x-stainless-retry-count': '1' }))
  expect(again.content).toBe('two')
  const [a, b, c] = started(await second.facts())
  expect([a!.call, b!.call, c!.call, c!.attempt, c!.seed]).toEqual([0, 1, 1, 1, b!.seed])
  expect(before.filter(fact => fact.type === 'call.finished')).toHaveLength(1)
  expect(rowsOf(await second.facts())).toEqual([[0, 1]])
  await first.gateway.close()
  await lost
})

test('what no client got is not trained on, until a retry gets it', async () => {
  let answer = (_: string) => {}
  const { post, facts, gateway, engine } = await opened(
    () =>
      new Promise(resolve => {
        answer = resolve
      }),
  )
  const body = { model: 'm', messages: [user('go')], stream: true }
  const aborter = new AbortController()
  const gone = fetch(`${gateway.url}/v1/chat/completions`, {
    method: 'POST',
    body: JSON.stringify(body),
    signal: aborter.signal,
  }).catch(() => 'gone')
  await until(() => engine.asked.length === 1)
  aborter.abort()
  await gone
  await new Promise(resolve => setTimeout(resolve, 50))
  answer('nobody hears')
  await until(async () => (await facts()).some(fact => fact.type === 'call.delivered'))
  expect(rowsOf(await facts())).toEqual([])
  const again = await eventsOf(await post('/v1/chat/completions', body, { 'x-stainless-retry-count': '1' }))
  expect(again.at(-1)!.data).toBe('[DONE]')
  await until(async () => rowsOf(await facts()).length === 1)
})

test('a session has a key; a new opening makes it stale, the end closes it, and the reward is given once', async () => {
  const { post, get, facts } = await opened(() => 'ok')
  const make = async (body: object) =>
    (await (await post('/troupe/v1/sessions', body)).json()) as { id: string; key: string; epoch: number; env: object }
  const one = await make({ group: 'task-1', group_size: 2, slot: 0, task: { id: 't', truth: '4' } })
  const other = await make({ group: 'task-1', group_size: 2, slot: 1 })
  const ask = (key: string, path = '/v1') =>
    post(`${path}/chat/completions`, { model: 'm', messages: [user('hi')] }, { authorization: `Bearer ${key}` })
  expect((await ask(one.key)).status).toBe(200)
  expect((await ask(one.key, `/s/${one.id}/v1`)).status).toBe(200)
  expect((await ask(other.key, `/s/${one.id}/v1`)).status).toBe(403)
  const again = await make({ id: one.id })
  expect(again).toMatchObject({ id: one.id, epoch: 1 })
  const stale = await ask(one.key)
  expect([stale.status, stale.headers.get('x-should-retry')]).toEqual([409, 'false'])
  expect((await ask(again.key)).status).toBe(200)
  const reward = (value: number) => post(`/troupe/v1/sessions/${one.id}/reward`, { value })
  expect([(await reward(1)).status, (await reward(1)).status, (await reward(0)).status]).toEqual([200, 200, 409])
  await post(`/troupe/v1/sessions/${one.id}/end`, { outcome: 'done' })
  await post(`/troupe/v1/sessions/${other.id}/end`, { outcome: 'failed', reason: 'exit 1' })
  const ended = await ask(again.key)
  expect([ended.status, ((await ended.json()) as { error: { code: string } }).error.code]).toEqual([
    409,
    'session_ended',
  ])
  const all = await facts()
  // Once when it was given, and once behind the end, for readers that take the reward of an ended rollout.
  expect(all.filter(fact => fact.type === 'reward.assigned').map(factKey)).toEqual(
    Array(2).fill(`${one.id}#reward.assigned#0`),
  )
  expect(all.at(-1)).toMatchObject({ type: 'group.closed', group: 'task-1', rewarded: [0] })
  const tree = (await (await get(`/troupe/v1/sessions/${one.id}/tree`)).json()) as { nodes: object[]; outcome: string }
  // The calls of the first opening do not count any more.
  expect(tree).toMatchObject({ outcome: 'answered', nodes: [{ call: 2, label: 'main', state: 'stop' }] })
})

test('a fork begins with the tokens up to a call, and goes its own way', async () => {
  const { post, engine } = await opened((_c, turn) => `answer ${turn}`)
  const body = (messages: Chat[]) => ({ model: 'm', messages })
  const first = await said(await post('/v1/chat/completions', body([user('go')])))
  const made = (await (await post('/troupe/v1/sessions/agent.0000/0/fork', { call_id: 0 })).json()) as {
    id: string
    key: string
  }
  const on = await post('/v1/chat/completions', body([user('go'), first, user('left')]), {
    authorization: `Bearer ${made.key}`,
  })
  expect((await said(on)).content).toBe('answer 1')
  const { context, tokens } = engine.sampled[0]!
  expect([...engine.sampled[1]!.context.subarray(0, context.length + tokens.length)]).toEqual([...context, ...tokens])
})

test('events of a session are those of the log, then new ones', async () => {
  const { post, gateway } = await opened(() => 'ok')
  await post('/v1/chat/completions', { model: 'm', messages: [user('a')] })
  const stop = new AbortController()
  const response = await fetch(`${gateway.url}/troupe/v1/sessions/agent.0000/0/events`, { signal: stop.signal })
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader()
  let text = ''
  const readTo = async (count: number) => {
    while (text.split('\n\n').length <= count) text += (await reader.read()).value ?? ''
  }
  await readTo(3)
  await post('/v1/chat/completions', { model: 'm', messages: [user('b')] })
  await readTo(5)
  expect([...text.matchAll(/^event: (.*)$/gm)].map(one => one[1])).toEqual([
    'session.opened',
    'call.started',
    'call.finished',
    'call.started',
    'call.finished',
  ])
  stop.abort()
  await reader.cancel().catch(() => {})
})

describe('a refusal', () => {
  const cases: [string, string, object, number, RegExp][] = [
    ['n above 1', '/v1/chat/completions', { model: 'm', messages: [user('x')], n: 2 }, 400, /only 1 is supported/],
    [
      'an image',
      '/v1/chat/completions',
      { model: 'm', messages: [{ role: 'user', content: [{ type: 'image_url', image_url: { url: 'x' } }] }] },
      400,
      /'image_url' are not supported/,
    ],
    [
      'a hosted tool',
      '/v1/responses',
      { model: 'm', input: 'x', tools: [{ type: 'web_search' }] },
      400,
      /'web_search' is run by its vendor/,
    ],
    [
      'a function without a name',
      '/v1/responses',
      { model: 'm', input: 'x', tools: [{ type: 'function' }] },
      400,
      /tools\.0\.name: a tool of type 'function' needs a name/,
    ],
    [
      'a hosted tool of Anthropic',
      '/v1/messages',
      {
        model: 'm',
        max_tokens: 9,
        messages: [user('x')],
        tools: [{ type: 'web_search_20250305', name: 'web_search' }],
      },
      400,
      /'web_search' is run by its vendor/,
    ],
    [
      'a begun answer',
      '/v1/messages',
      { model: 'm', max_tokens: 9, messages: [user('x'), { role: 'assistant', content: '{' }] },
      400,
      /the last message is the assistant's/,
    ],
    [
      'a context that is too long',
      '/v1/chat/completions',
      { model: 'm', messages: [user('x'.repeat(100_001))] },
      400,
      /maximum context length is 100000 tokens/,
    ],
    ['another model', '/v1/chat/completions', { model: 'gpt-9', messages: [user('x')] }, 404, /'gpt-9' does not exist/],
    [
      'a session with half an escape',
      '/s/%/v1/completions',
      { model: 'm', prompt: 'x' },
      400,
      /'%' is not percent-encoded/,
    ],
    ['an unknown route', '/v1/embeddings', {}, 404, /POST \/v1\/embeddings is not served/],
  ]
  test.each(cases)('%s is answered in the form of its dialect', async (_title, path, body, status, message) => {
    const { post, engine } = await opened(() => 'ok', { model: 'm', strictModel: true })
    const response = await post(path, body)
    const answer = (await response.json()) as { type?: string; error: { message: string; type: string } }
    expect([response.status, answer.error.message]).toEqual([status, expect.stringMatching(message)])
    expect(answer.type).toBe(path === '/v1/messages' ? 'error' : undefined)
    expect(answer.error.type).toMatch(/_error$/)
    expect(response.headers.get('x-should-retry')).toBe('false')
    expect(engine.asked).toHaveLength(0)
  })

  test('a body above the bound is refused, and a 50 MB body is by the default one', async () => {
    const { post } = await opened(() => 'ok')
    const response = await post('/v1/messages', { model: 'm', messages: [user('x'.repeat(50_000_000))] }).catch(
      () => undefined,
    )
    // A client may see the connection's end before it has sent its body.
    if (response !== undefined)
      expect([response.status, await response.json()]).toMatchObject([
        413,
        { type: 'error', error: { type: 'request_too_large' } },
      ])
  })

  test('an engine that fails is answered with 503 and a time to wait, and nothing of the call is trained on', async () => {
    const { post, facts } = await opened(() => {
      throw new TroupeError('engine.failed', { boundary: 'engine', retriable: true, message: 'CUDA error' })
    })
    const response = await post('/v1/chat/completions', { model: 'm', messages: [user('x')] })
    expect([response.status, response.headers.get('retry-after')]).toEqual([503, '2'])
    expect((await facts()).at(-1)).toMatchObject({ type: 'call.finished', finish: 'failed', error: 'CUDA error' })
    expect(rowsOf(await facts())).toEqual([])
  })

  test('off loopback the gateway needs a key; with one, nobody is answered without', async () => {
    expect(await refused(openTestGateway(() => 'ok', { host: '0.0.0.0' }))).toMatchObject({ code: 'gateway.no_key' })
    const { post, get } = await opened(() => 'ok', { key: 'gateway-key' })
    const body = { model: 'm', messages: [user('x')] }
    expect((await post('/v1/chat/completions', body)).status).toBe(401)
    expect((await post('/v1/chat/completions', body, { authorization: 'Bearer nobody' })).status).toBe(401)
    expect((await post('/troupe/v1/sessions', {})).status).toBe(401)
    expect((await get('/v1/models')).status).toBe(401)
    expect((await post('/v1/messages/count_tokens', { ...body, max_tokens: 1 })).status).toBe(401)
    const made = (await (await post('/troupe/v1/sessions', {}, { authorization: 'Bearer gateway-key' })).json()) as {
      key: string
    }
    expect((await post('/v1/chat/completions', body, { 'x-api-key': made.key })).status).toBe(200)
  })

  test('a page of another site cannot reach a gateway without a key', async () => {
    const { gateway } = await opened(() => 'ok')
    const { port } = new URL(gateway.url)
    const status = await new Promise(resolve => {
      httpRequest({ port, path: '/v1/models', headers: { host: 'evil.example' } }, response =>
        resolve(response.resume().statusCode),
      ).end()
    })
    expect(status).toBe(403)
  })
})
