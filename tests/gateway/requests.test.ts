/** Requests beyond messages: sampling, instructions, references to earlier items; and an engine that is lost at the last token. */

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { GenerationLost } from '../../backends/engines/engine'
import { gatewayConfig, gatewaySampling } from '../../cli/gateway/config'
import type { Message } from '../../gateway/conversation/message'
import type { CallStarted } from '../../messages/facts'
import { policyVersion } from '../../messages/ids'
import { openTroupe } from '../../runtime/embed'
import { charRenderer, encodeChars } from '../support/gateway/charRenderer'
import { eventsOf, type TestGateway, testGateways } from '../support/gateway/openTestGateway'
import { refused } from '../support/refusal'
import { until } from '../support/until'

const opened = testGateways()

const messages = [{ role: 'user', content: 'go' }]
const startedIn = async ({ facts }: TestGateway) =>
  (await facts()).filter((fact): fact is CallStarted => fact.type === 'call.started')

describe('temperature and top_p', () => {
  test("of an evaluation are the client's, and top_p 0 is greedy; of training they are the recipe's", async () => {
    const gateway = await opened(() => 'ok')
    const { key } = (await (await gateway.post('/troupe/v1/sessions', { policy: 'eval' })).json()) as { key: string }
    const ask = (more: object, as: string) =>
      gateway.post('/v1/chat/completions', { model: 'm', messages, ...more }, { authorization: `Bearer ${as}` })
    await ask({ temperature: 0 }, key)
    await ask({ temperature: 0.5, top_p: 0.9 }, key)
    await ask({ top_p: 0 }, key)
    await ask({ temperature: 0 }, 'trained')
    expect((await startedIn(gateway)).map(({ sampling: { temperature, topP } }) => [temperature, topP])).toEqual([
      ...[
        [0, 1],
        [0.5, 0.9],
        [0, 1],
      ],
      [1, 1],
    ])
  })

  test.each([
    ['/v1/chat/completions', { messages, temperature: -1 }, 'temperature'],
    ['/v1/completions', { prompt: 'x', temperature: '0' }, 'temperature'],
    ['/v1/responses', { input: 'x', top_p: 1.5 }, 'top_p'],
    ['/v1/messages', { messages, max_tokens: 9, top_p: -0.1 }, 'top_p'],
    ['/v1/chat/completions', { messages, max_tokens: 0 }, 'max_tokens'],
  ])('out of their range are refused: %s %j', async (path, body, field) => {
    const { post, engine } = await opened(() => 'ok')
    const response = await post(path, { model: 'm', ...body })
    const { error } = (await response.json()) as { error: { message: string } }
    expect([response.status, error.message]).toEqual([400, expect.stringContaining(`${field}: `)])
    expect(engine.asked).toHaveLength(0)
  })

  test('--temperature 0 without a recipe is greedy, and is refused beside a recipe', async () => {
    const model = mkdtempSync(join(tmpdir(), 'troupe-greedy-'))
    writeFileSync(join(model, 'config.json'), '{}')
    const options = { model, template: 'hermes', temperature: 0, set: [] }
    expect(gatewaySampling(undefined, await gatewayConfig(undefined, options)).temperature).toBe(0)
    expect(await refused(gatewayConfig('quickstart', options))).toMatchObject({ code: 'cli.wrong_usage' })
    rmSync(model, { recursive: true })
  })
})

test('instructions are of one response: new ones replace those of the response before, and none drop them', async () => {
  const gateway = await opened(() => 'ok')
  const ask = async (input: string, more: object) => {
    const response = await gateway.post('/v1/responses', { model: 'm', input, ...more })
    return ((await response.json()) as { id: string }).id
  }
  const first = await ask('go', { instructions: 'Be brief.' })
  const second = await ask('on', { instructions: 'Be brief.', previous_response_id: first })
  await ask('why', { instructions: 'Be long.', previous_response_id: second })
  await ask('why', { previous_response_id: second })
  const calls = await startedIn(gateway)
  expect(calls.map(one => one.branch)).toEqual(['first', null, 'system-changed', 'system-changed'])
  const said = calls.map(one =>
    (JSON.parse(one.messages) as Message[]).map(({ role, content }) => `${role} ${content}`),
  )
  const history = ['user go', 'assistant ok', 'user on', 'assistant ok', 'user why']
  expect(said).toEqual([['system Be brief.', 'user go'], ['user on'], ['system Be long.', ...history], history])
})

test.each([
  ['its last allowed token', 'abc', 'length'],
  ['its stop token', 'ab<|im_end|>', 'stop'],
])('an engine that is lost after %s has answered: no token is asked for again', async (_title, text, finish) => {
  const tokens = encodeChars(text)
  const gateway = await opened(() => {
    const partial = {
      tokens,
      logprobs: new Float32Array(tokens.length).fill(-1),
      segments: [{ policyVersion: policyVersion(0), start: 0, end: tokens.length }],
    }
    throw new GenerationLost(new Error('the connection broke'), partial)
  })
  const response = await gateway.post('/v1/chat/completions', { model: 'm', messages, max_tokens: 3 })
  const { choices } = (await response.json()) as { choices: { message: { content: string }; finish_reason: string }[] }
  expect(choices[0]).toMatchObject({ message: { content: text.replace('<|im_end|>', '') }, finish_reason: finish })
  expect(gateway.engine.asked).toHaveLength(1)
  expect((await gateway.facts()).at(-1)).toMatchObject({ type: 'call.finished', tokens, finish })
})

test('a session whose record fails can be opened again: its place in the group is free', async () => {
  const log = await openTroupe({ bus: 'memory:', run: 'r' })
  let isFull = false
  const journal = {
    ...log.journal,
    append: (facts: Parameters<typeof log.journal.append>[0]) =>
      isFull ? Promise.reject(new Error('no space left on device')) : log.journal.append(facts),
  }
  const { post } = await opened(() => 'ok', { over: log, journal })
  const make = async () => (await post('/troupe/v1/sessions', { group: 'g', slot: 0 })).status
  isFull = true
  expect(await make()).toBe(503)
  isFull = false
  expect(await make()).toBe(200)
  expect(await make()).toBe(409)
})

test('a response is continued by references to its items, and no other session can name it', async () => {
  const call = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
  const gateway = await opened((_c, turn) => (turn === 0 ? `<think>\nhm\n</think>\n\nI add.\n${call}` : 'two'))
  const tools = [{ type: 'function', name: 'add', parameters: { type: 'object', properties: {} } }]
  const ask = (input: unknown, more: object = {}, key = 'me') =>
    gateway.post('/v1/responses', { model: 'm', input, tools, ...more }, { authorization: `Bearer ${key}` })
  const user = { role: 'user', content: 'go' }
  const first = (await (await ask([user])).json()) as {
    id: string
    output: { id: string; type: string; call_id?: string }[]
  }
  expect(first.output.map(one => one.type)).toEqual(['reasoning', 'message', 'function_call'])
  const named = first.output.map(({ id }) => ({ type: 'item_reference', id }))
  const result = { type: 'function_call_output', call_id: first.output[2]!.call_id, output: '2' }
  expect((await ask([user, ...named, result])).status).toBe(200)
  expect((await startedIn(gateway)).map(one => one.parent)).toEqual([null, 0])
  const unknown = await ask([user, { type: 'item_reference', id: 'msg_other_0' }])
  expect([unknown.status, await unknown.json()]).toMatchObject([400, { error: { code: 'item_not_found' } }])
  const other = await ask('on', { previous_response_id: first.id }, 'someone else')
  expect([other.status, await other.json()]).toMatchObject([400, { error: { code: 'previous_response_not_found' } }])
})

test('a fork knows the answers of its history by the ids that their client got, and no other', async () => {
  const gateway = await opened((_c, turn) => `answer ${turn}`)
  const send = (key: string, input: string, previous?: string) =>
    gateway.post(
      '/v1/responses',
      { model: 'm', input, ...(previous === undefined ? {} : { previous_response_id: previous }) },
      { authorization: `Bearer ${key}` },
    )
  const idOf = async (response: Promise<Response>) => ((await (await response).json()) as { id: string }).id
  const forked = async (id: string, call: string | number) =>
    (await (await gateway.post(`/troupe/v1/sessions/${id}/fork`, { call_id: call })).json()) as {
      id: string
      key: string
    }
  const zero = await idOf(send('me', 'go'))
  const one = await idOf(send('me', 'aside'))
  const two = await idOf(send('me', 'on', zero))
  const fork = await forked('agent.0000/0', two)
  const own = await idOf(send(fork.key, 'left', two))
  const again = await forked(fork.id, own)
  await send(again.key, 'further', own)
  await send(again.key, 'back', zero)
  const said = (await startedIn(gateway)).slice(-2).map(({ parent, messages: text }) => [parent, JSON.parse(text)])
  expect(said).toEqual([
    [2, [{ role: 'user', content: 'further' }]],
    [0, [{ role: 'user', content: 'back' }]],
  ])
  for (const { key } of [fork, again]) {
    const other = await send(key, 'on', one)
    expect([other.status, await other.json()]).toMatchObject([400, { error: { code: 'previous_response_not_found' } }])
  }
})

test.each([
  ['that is never closed is thinking alone', 'so much to th', 'so much to th', ''],
  ['that names its tag again ends at the first closing tag', 'a <think> b</think>\n\ndone', 'a <think> b', 'done'],
])('thinking that the prompt opened and %s, whole and streamed', async (_title, answer, thinking, content) => {
  const gateway = await opened(() => answer, { renderer: charRenderer({ opensThinking: true }) })
  const ask = (more: object) => gateway.post('/v1/chat/completions', { model: 'm', messages, ...more })
  interface Said {
    readonly content?: string
    readonly reasoning_content?: string
  }
  const { choices } = (await (await ask({})).json()) as { choices: { message: Said }[] }
  const events = await eventsOf(await ask({ stream: true }))
  const deltas = events.flatMap(({ data }) =>
    data === '[DONE]' ? [] : (data as { choices: { delta: Said }[] }).choices.map(({ delta }) => delta),
  )
  const streamed = (of: keyof Said) => deltas.map(delta => delta[of] ?? '').join('')
  expect(choices[0]!.message).toMatchObject({ content, reasoning_content: thinking })
  expect([streamed('reasoning_content'), streamed('content')]).toEqual([thinking, content])
})

test('a group whose last session ended in the moment of a crash is closed by the next gateway', async () => {
  const log = await openTroupe({ bus: 'memory:', run: 'r' })
  const journal = {
    ...log.journal,
    append: (facts: Parameters<typeof log.journal.append>[0]) =>
      facts[0]?.type === 'group.closed' ? Promise.reject(new Error('killed')) : log.journal.append(facts),
  }
  const first = await opened(() => 'ok', { over: log, journal })
  const { id } = (await (await first.post('/troupe/v1/sessions', { group: 'g' })).json()) as { id: string }
  await first.post(`/troupe/v1/sessions/${id}/reward`, { value: 1 })
  await first.post(`/troupe/v1/sessions/${id}/end`, { outcome: 'done' })
  const closed = async (gateway: TestGateway) => (await gateway.facts()).filter(fact => fact.type === 'group.closed')
  expect(await closed(first)).toEqual([])
  const second = await opened(() => 'ok', { over: log })
  expect(await closed(second)).toMatchObject([{ group: 'g', rewarded: [0] }])
  // The one after it finds the group closed.
  expect(await closed(await opened(() => 'ok', { over: log }))).toHaveLength(1)
})

test('a first reward is taken until the last session of its group has ended, and refused from then on', async () => {
  const log = await openTroupe({ bus: 'memory:', run: 'r' })
  let isClosing = false
  let goOn = () => {}
  const held = new Promise<void>(resolve => {
    goOn = resolve
  })
  const journal = {
    ...log.journal,
    async append(facts: Parameters<typeof log.journal.append>[0]) {
      if (facts[0]?.type === 'group.closed') {
        isClosing = true
        await held
      }
      return log.journal.append(facts)
    },
  }
  const gateway = await opened(() => 'ok', { over: log, journal })
  for (const slot of [0, 1, 2]) await gateway.post('/troupe/v1/sessions', { group: 'g', group_size: 3, slot })
  const reward = async (slot: number, value: number) => {
    const response = await gateway.post(`/troupe/v1/sessions/g%2F${slot}/reward`, { value })
    return [response.status, ((await response.json()) as { error?: { code: string } }).error?.code]
  }
  const end = (slot: number) => gateway.post(`/troupe/v1/sessions/g%2F${slot}/end`, { outcome: 'done' })
  await end(0)
  await end(1)
  expect(await reward(0, 1)).toEqual([200, undefined])
  const last = end(2)
  await until(() => isClosing)
  // The members that count are chosen, though the fact is not durable yet.
  expect(await reward(1, 1)).toEqual([409, 'group_closed'])
  goOn()
  await last
  expect(await reward(2, 0)).toEqual([409, 'group_closed'])
  expect(await reward(0, 1)).toEqual([200, undefined])
  expect((await gateway.facts()).filter(fact => fact.type === 'group.closed')).toMatchObject([{ rewarded: [0] }])
})
