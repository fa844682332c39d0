/** The official openai and anthropic packages, unchanged, lose no token through the gateway; replay shows what they did. */
import { execFile, spawn } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { promisify } from 'node:util'
import { callRows } from '../../kernels'
import { environmentsPythonPath } from '../../runtime/python'
import { troupe } from '../support/cli'
import { openTestGateway } from '../support/gateway/openTestGateway'
import { makeTinyModel } from '../support/tinyModel'

jest.setTimeout(240_000)

const agent = async (url: string, file = 'sdkAgent.py'): Promise<Record<string, Record<string, unknown>>> => {
  const script = join(__dirname, '../support/gateway', file)
  const { stdout } = await promisify(execFile)(environmentsPythonPath(), [script, url], { timeout: 120_000 })
  return JSON.parse(stdout)
}

test('tools, streams, responses and errors are as the SDKs read them, and every sampled token is in one training row', async () => {
  const call = '<tool_call>\n{"name": "bash", "arguments": {"cmd": "ls"}}\n</tool_call>'
  const gateway = await openTestGateway(context => {
    if (context.startsWith('Once')) return 'upon a time'
    if (context.includes('"bash"') && !/a\.txt|no such file/.test(context)) return `I look.\n${call}`
    return context.includes('<|im_start|>user\non') ? 'second' : 'It is <b>done</b>.'
  })
  try {
    const said = await agent(gateway.gateway.url)
    expect(said.chat).toEqual({
      finish: 'tool_calls',
      name: 'bash',
      arguments: { cmd: 'ls' },
      text: 'It is <b>done</b>.',
      last: 'stop',
      usage: true,
    })
    expect(said.responses).toEqual({
      ...{ first: 'It is <b>done</b>.', second: 'second', numbers: true },
      events: [
        ...['response.created', 'response.in_progress', 'response.output_item.added', 'response.content_part.added'],
        ...[
          'response.output_text.done',
          'response.content_part.done',
          'response.output_item.done',
          'response.completed',
        ],
      ],
    })
    expect(said.messages).toEqual({
      ...{ stop: 'tool_use', input: { cmd: 'ls' }, text: 'It is <b>done</b>.', final: 'end_turn', counted: true },
      order: ['message_start', 'message_stop'],
    })
    expect(said).toMatchObject({
      completion: 'upon a t',
      models: ['scripted'],
      refusals: { n: 'unsupported_n', image: 'invalid_request_error' },
    })
    const trained = gateway.gateway.sessions.list().flatMap(session =>
      // A text to continue is labelled as an auxiliary call, which is not trained on by default.
      callRows(session.calls.tree, ['main', 'subagent', 'compaction', 'aux']).flatMap(row =>
        [...row.engineLogprobs].filter((_, i) => row.mask[i] === 1),
      ),
    )
    const sampled = gateway.engine.sampled.flatMap(one => [...one.logprobs])
    expect(trained.sort()).toEqual(sampled.sort())
    expect(gateway.engine.asked).toHaveLength(7)
  } finally {
    await gateway.close()
  }
})

test('openai-agents runs its loop of tools in both of its dialects, and ends', async () => {
  const call = '<tool_call>\n{"name": "bash", "arguments": {"cmd": "ls"}}\n</tool_call>'
  const gateway = await openTestGateway(context => (context.includes('a.txt') ? 'It is done.' : call))
  try {
    expect(await agent(gateway.gateway.url, 'harnessAgent.py')).toEqual({
      chat: 'It is done.',
      responses: 'It is done.',
      ran: ['ls', 'ls'],
    })
    const rows = gateway.gateway.sessions.list().map(session => callRows(session.calls.tree).map(row => row.calls))
    expect(rows).toEqual([[[0, 1]], [[0, 1]]])
  } finally {
    await gateway.close()
  }
})

test('an environment of verifiers with turns and a tool leads its rollouts by its own client, and scores them', async () => {
  const call = '<tool_call>\n{"name": "add", "arguments": {"a": 12, "b": 30}}\n</tool_call>'
  const gateway = await openTestGateway(context => (/\b42\b/.test(context) ? 'It is 42.' : call))
  try {
    // The reward of the environment's rubric; the model's call, the tool's result and the answer.
    const scored = [[1, 3]]
    expect(await agent(gateway.gateway.url, 'verifiersAgent.py')).toEqual({
      ...{ openai_chat_completions: scored, openai_responses: scored },
    })
    const rows = gateway.gateway.sessions.list().map(session => callRows(session.calls.tree).map(row => row.calls))
    expect(rows).toEqual([[[0, 1]], [[0, 1]]])
  } finally {
    await gateway.close()
  }
})

test('`troupe gateway` serves a model to an SDK, is killed, goes on with its run, and replay reads what was recorded', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'troupe-gateway-'))
  const model = join(directory, 'model')
  await makeTinyModel(model, { config: { max_position_embeddings: 2048 } })
  const bus = `lmdb:${directory}/bus`
  const serve = async () => {
    const args = [
      'gateway',
      '--model',
      model,
      '--port',
      '0',
      '--run',
      'g',
      '--bus',
      bus,
      '--json',
      '--max-tokens',
      '24',
    ]
    const child = spawn(process.execPath, [join(__dirname, '../../cli/bin.js'), ...args], {
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    let stderr = ''
    child.stderr.on('data', text => {
      stderr += text
    })
    const line = await new Promise<string>((resolve, reject) => {
      createInterface({ input: child.stdout }).once('line', resolve)
      child.once('exit', code => reject(new Error(`the gateway ended with ${code}: ${stderr}`)))
    })
    const { url, resumed } = JSON.parse(line) as { url: string; resumed: boolean }
    const ended = new Promise<number | null>(resolve => child.once('exit', resolve))
    return { child, url, resumed, ended }
  }
  const ask = async (url: string, messages: object[]) => {
    const body = JSON.stringify({ model: 'm', messages })
    const response = await fetch(`${url}/v1/chat/completions`, {
      method: 'POST',
      body,
      headers: { authorization: 'Bearer me' },
    })
    const answer = (await response.json()) as { choices: { message: { role: string; content: string } }[] }
    return answer.choices[0]!.message
  }
  try {
    const first = await serve()
    const messages: object[] = [{ role: 'user', content: 'what is 12 times 34?' }]
    messages.push(await ask(first.url, messages), { role: 'user', content: 'what is 12?' })
    first.child.kill('SIGKILL')
    await first.ended
    const second = await serve()
    expect(second.resumed).toBe(true)
    await ask(second.url, messages)
    const session = (await (await fetch(`${second.url}/troupe/v1/sessions/agent.0000%2F0/tree`)).json()) as {
      rows: object[]
      nodes: { branch: string | null }[]
    }
    expect(session.rows).toMatchObject([{ calls: [0, 1] }])
    expect(session.nodes.map(node => node.branch)).toEqual(['first', null])
    for (const [verb, body] of [
      ['reward', { value: 1 }],
      ['end', { outcome: 'done' }],
    ] as const)
      await fetch(`${second.url}/troupe/v1/sessions/agent.0000%2F0/${verb}`, {
        method: 'POST',
        body: JSON.stringify(body),
      })
    second.child.kill('SIGTERM')
    expect(await second.ended).toBe(143)
    const replay = (...args: string[]) => troupe(['replay', ...args, '--run', 'g', '--bus', bus]).done
    const shown = await replay('show', 'agent.0000/0', '--full')
    expect(shown.stdout).toContain('call 1  main, continues call 0')
    expect(shown.stdout).toContain('user │ what is 12?')
    expect(shown.stdout).toMatch(/reward 1/)
    expect((await replay('diff', 'agent.0000/0', 'agent.0000/0')).code).toBe(0)
    const lineage = JSON.parse(
      (await replay('lineage', 'agent.0000/0', '--json')).stdout.trim().split('\n')[0]!,
    ) as object
    expect(lineage).toMatchObject({ trajectory: 'agent.0000/0', policyVersions: [0], reward: 1 })
    expect((await replay('ls', '--json')).stdout).toContain('"agent.0000/0"')
  } finally {
    rmSync(directory, { recursive: true, force: true })
  }
})
