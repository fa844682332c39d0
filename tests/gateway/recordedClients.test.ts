/**
 * Requests of large coding agents, as they sent them in a run with one tool call, are answered; the call with the tool's
 * result continues the tokens of the one before.
 *
 * tests/support/gateway/recorded: paths, headers and bodies. Every field and short value is the client's; sentences are
 * replaced by words of ours, since they are not ours to keep.
 */
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { CallStarted } from '../../messages/facts'
import { limits, testGateways } from '../support/gateway/openTestGateway'

interface Recorded {
  readonly client: string
  readonly requests: readonly {
    readonly path: string
    readonly headers: Readonly<Record<string, string>>
    readonly body: object
  }[]
}

const folder = join(__dirname, '../support/gateway/recorded')
const echo = { command: 'echo hi', description: 'says hi' }
/** The tool that the client was told to call, and the calls of the session: its label, and the call it continues. */
const expected: Readonly<Record<string, readonly [string, object, readonly (readonly [string, number | null])[]]>> = {
  'claude-code.json': ['Bash', echo, [['main', null], ['main', 0]]],
  'codex.json': ['exec_command', { cmd: 'echo hi' }, [['main', null], ['main', 0]]],
  // Its first call asks for a title, and offers no tools.
  'opencode.json': ['bash', echo, [['main', null], ['main', null], ['main', 1]]],
} // biome-ignore format: a table

const opened = testGateways()

test('every recorded client is tried', () => {
  expect(readdirSync(folder).sort()).toEqual(Object.keys(expected).sort())
})

test.each(Object.entries(expected))('%s', async (file, [tool, args, calls]) => {
  const { requests } = JSON.parse(readFileSync(join(folder, file), 'utf8')) as Recorded
  const call = `<tool_call>\n${JSON.stringify({ name: tool, arguments: args })}\n</tool_call>`
  const script = (context: string) => (context.includes(call) || !context.includes(`"${tool}"`) ? 'All done.' : call)
  const gateway = await opened(script, { limits: { ...limits, contextTokens: 400_000 } })
  for (const { path, headers, body } of requests) {
    const response = await gateway.post(path, body, { authorization: 'Bearer agent', ...headers })
    const text = await response.text()
    expect([response.status, text]).toEqual([200, expect.stringMatching(/message_stop|response\.completed|\[DONE\]/)])
  }
  const started = (await gateway.facts()).filter((fact): fact is CallStarted => fact.type === 'call.started')
  expect(started.map(({ label, parent }) => [label, parent])).toEqual(calls)
})

test('a function in a namespace is offered, called and sent back under both of its names', async () => {
  const { post, engine } = await opened((_, turn) =>
    turn === 0 ? '<tool_call>\n{"name": "agents::close", "arguments": {"id": "a"}}\n</tool_call>' : 'Closed.',
  )
  const close = { type: 'function', name: 'close', parameters: { type: 'object' } }
  const tools = [
    { type: 'namespace', name: 'agents', tools: [close] },
    { ...close, name: 'plain' },
  ]
  const user = { role: 'user', content: 'close it' }
  const ask = async (input: object[]) =>
    (await (await post('/v1/responses', { model: 'm', tools, input })).json()) as { output: { call_id: string }[] }
  const { output } = await ask([user])
  expect(output).toEqual([expect.objectContaining({ type: 'function_call', namespace: 'agents', name: 'close' })])
  await ask([user, output[0]!, { type: 'function_call_output', call_id: output[0]!.call_id, output: 'ok' }])
  const [first, second] = engine.sampled
  expect([...second!.context.slice(0, first!.context.length)]).toEqual([...first!.context])
  expect([...second!.context.slice(first!.context.length, first!.context.length + first!.tokens.length)]).toEqual([
    ...first!.tokens,
  ])
  const hosted = { type: 'namespace', name: 'agents', tools: [{ type: 'web_search' }] }
  const refusal = await post('/v1/responses', { model: 'm', tools: [hosted], input: [user] })
  expect([refusal.status, ((await refusal.json()) as { error: { param: string } }).error.param]).toEqual([
    400,
    'tools.0.tools.0',
  ])
})
