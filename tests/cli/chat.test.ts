/** Chat: what is shown while it comes, what stands on the bus afterwards, and tools of several kinds in one trajectory. */

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { PassThrough } from 'node:stream'
import { openRunTools, type RunTools } from '../../actors/tools/runTools'
import type { Tool } from '../../actors/tools/toolPort'
import type { Engine, GenerateRequest, Generation } from '../../backends/engines/engine'
import { type TokenBytes, tokenText } from '../../backends/renderer/tokenText'
import { type Exchanged, type ExchangeParts, exchange } from '../../cli/chat/exchange'
import { chatConfig } from '../../cli/chat/model'
import { shownText } from '../../cli/chat/shownText'
import { talking } from '../../cli/chat/talk'
import { userLines } from '../../cli/chat/userLines'
import { chatView } from '../../cli/chat/view'
import { type Recipe, recipeSchema } from '../../config'
import type { ChatMessage, Fact, RolloutRequested } from '../../messages/facts'
import { engineId, epoch, groupId, policyVersion, type TrajectoryId, taskId, trajectoryId } from '../../messages/ids'
import { systemEffects } from '../../runtime/effects'
import { parseConfig } from '../../runtime/settings/resolveConfig'
import { openSandbox, type Sandbox } from '../../sandbox'
import { notebookTool } from '../../sandbox/tools/notebookTool'
import { pythonTool } from '../../sandbox/tools/pythonTool'
import { ofType } from '../support/facts'
import { until } from '../support/until'

jest.setTimeout(120_000)

/** A vocabulary of UTF-8 bytes: characters of several tokens are the rule. */
const tokensOf = (text: string) => Int32Array.from(Buffer.from(text, 'utf8'))
const decode = async (tokens: Int32Array) => Buffer.from(Uint8Array.from(tokens)).toString('utf8')

/** An engine that says what it is told to, a few bytes at a time. */
function scripted(
  turns: readonly string[],
  more: { readonly onToken?: (n: number) => void; readonly released?: TrajectoryId[] } = {},
): Engine {
  let turn = 0
  const generate = async (
    request: GenerateRequest,
    onTokens: (tokens: Int32Array) => void,
    signal?: AbortSignal,
  ): Promise<Generation> => {
    const text = turns[turn++]!
    const tokens = tokensOf(text)
    const startedAt = systemEffects.now()
    let firstTokenAt = startedAt
    let at = 0
    for (; at < tokens.length && at < request.maxTokens && !signal?.aborted; at += 3) {
      if (at === 0) firstTokenAt = systemEffects.now()
      onTokens(tokens.slice(at, at + 3))
      more.onToken?.(at)
      await new Promise(resolve => setImmediate(resolve))
    }
    const said = tokens.slice(0, Math.min(at, tokens.length, request.maxTokens))
    const finish = signal?.aborted ? 'aborted' : said.length < tokens.length ? 'length' : 'stop'
    const timing = { queuedAt: startedAt, startedAt, firstTokenAt, endedAt: systemEffects.now() }
    const segments = [{ policyVersion: policyVersion(0), start: 0, end: said.length }]
    return {
      tokens: said,
      logprobs: new Float32Array(said.length),
      text: await decode(said),
      finish,
      segments,
      cachedTokens: 0,
      preemptions: 0,
      timing,
    }
  }
  return {
    id: engineId('scripted'),
    stream: generate,
    generate: (request: GenerateRequest, signal?: AbortSignal) => generate(request, () => {}, signal),
    release: async (trajectory: TrajectoryId) => void more.released?.push(trajectory),
  } as unknown as Engine
}

const call = (name: string, args: object) => `<tool_call>\n${JSON.stringify({ name, arguments: args })}\n</tool_call>`

let sandbox: Sandbox
beforeAll(async () => {
  sandbox = await openSandbox({ lanes: 4 })
})
afterAll(() => sandbox.close())

const recipe: Pick<Recipe, 'tools' | 'toolFunctions'> = {
  tools: [
    pythonTool,
    notebookTool,
    {
      name: 'upper',
      description: 'd',
      parameters: { type: 'object', properties: { text: { type: 'string' } }, required: ['text'] },
    },
  ],
  toolFunctions: { upper: ({ text }) => (text as string).toUpperCase() },
}

async function chatted(
  turns: readonly string[],
  tools: RunTools,
  how: {
    maxTokens?: number
    json?: boolean
    signal?: AbortSignal
    onToken?: (n: number) => void
    conversation?: ChatMessage[]
  } = {},
) {
  const facts: Fact[] = []
  const released: TrajectoryId[] = []
  const out = new PassThrough()
  let shown = ''
  out.setEncoding('utf8').on('data', text => {
    shown += text
  })
  const parts: ExchangeParts = {
    journal: {
      append: async messages => {
        facts.push(...(messages as Fact[]))
        return messages.map((_, offset) => ({ topic: 'trajectories', partition: 0, offset }))
      },
    },
    engine: scripted(turns, { released, ...(how.onToken ? { onToken: how.onToken } : {}) }),
    renderer: {
      decode,
      toolResponses: async responses => {
        const text = responses.map(r => `<tool_response>${r}</tool_response>`).join('')
        return { text, tokens: tokensOf(text) }
      },
    },
    tools: tools.tools,
    fx: systemEffects,
    view: chatView(how.json === true, out as unknown as NodeJS.WriteStream),
    conversation: how.conversation ?? [],
  }
  const group = groupId('chat.0000')
  const request: RolloutRequested = {
    ...{
      type: 'rollout.requested',
      at: 0,
      trajectory: trajectoryId(group, 0),
      group,
      member: 0,
      groupSize: 1,
      purpose: 'chat',
    },
    ...{
      step: 0,
      order: 0,
      task: { id: taskId('chat/0'), messages: [], truth: '', reward: '' },
      tokens: tokensOf('hi'),
      seed: 1,
    },
    tools: tools.schemas.map(({ name }) => name),
    limits: {
      contextTokens: 100_000,
      responseTokens: how.maxTokens ?? 100_000,
      turns: 9,
      callsPerTurn: 8,
      toolTimeoutMs: 8000,
      toolResponseChars: 4000,
    },
    sampling: { temperature: 1, topP: 1, topK: 0, minP: 0, stopTokens: [] },
    ...{ minVersion: policyVersion(0), deadlineMs: 1000 },
  }
  const done = await exchange(request, epoch(0), parts, how.signal ?? new AbortController().signal)
  await new Promise(resolve => setImmediate(resolve))
  return {
    ...done,
    facts,
    released,
    shown,
    of: <T extends Fact['type']>(type: T) => ofType(facts, type),
  }
}

test('Python, a notebook, a function and an MCP server answer in one trajectory, calls of a turn at once', async () => {
  const entry = require.resolve('@modelcontextprotocol/server-everything/dist/index.js')
  const mcp = { everything: { command: process.execPath, args: [entry, 'stdio'], tools: ['echo'] } }
  const config = parseConfig(recipeSchema, { name: 't', model: { from: 'directory', path: 'm' }, tools: { mcp } }, 't')
  const tools = await openRunTools({ config, recipe }, sandbox)
  try {
    const { of, rollout, shown } = await chatted(
      [
        `Trying.${call(pythonTool.name, { code: 'print(6 * 7)', input: '' })}${call('upper', { text: 'abc' })}${call('echo', { message: 'over there' })}`,
        call(notebookTool.name, { code: 'x = 20' }),
        `${call(notebookTool.name, { code: 'x + 1' })}${call('nothing', {})}${call('upper', { text: 1 })}`,
        'Done: 21.<|im_end|>',
      ],
      tools,
    )
    const completed = of('tool.completed').sort((a, b) => a.turn - b.turn || a.call - b.call)
    expect(completed.map(({ tool, status }) => [tool, status])).toEqual([
      ...[
        [pythonTool.name, 'ok'],
        ['upper', 'ok'],
        ['echo', 'ok'],
      ],
      [notebookTool.name, 'ok'],
      ...[
        [notebookTool.name, 'ok'],
        ['nothing', 'unknown-tool'],
        ['upper', 'error'],
      ],
    ])
    expect(completed.map(({ stdout }) => stdout)).toEqual([
      '42\n',
      'ABC',
      expect.stringContaining('over there'),
      '',
      '21\n',
      '',
      '',
    ])
    expect(of('tool.asked')).toHaveLength(6)
    expect(rollout.ending).toEqual({ outcome: 'answered', reason: 'stop' })
    expect(of('rollout.finished')).toMatchObject([{ turns: 4, toolCalls: 7, toolErrors: 2 }])
    expect(shown).toContain('Trying.\n')
    expect(shown).toContain('│ print(6 * 7)')
    expect(shown).toContain('Done: 21.')
    expect(shown).not.toMatch(/tool_call|im_end/)
  } finally {
    await tools.close()
  }
})

describe('with Python alone', () => {
  let tools: RunTools
  beforeAll(async () => {
    const config = parseConfig(recipeSchema, { name: 't', model: { from: 'directory', path: 'm' } }, 't')
    tools = await openRunTools({ config, recipe: { tools: [pythonTool] } }, sandbox)
  })

  test('one budget: what a tool answers is taken out of it, and it ends the answer', async () => {
    const long = call(pythonTool.name, { code: "print('x' * 300)", input: '' })
    const { of, rollout } = await chatted([long, 'y'.repeat(500)], tools, { maxTokens: long.length + 400 })
    const answered = of('context.appended')[0]!.tokens.length
    expect(of('turn.asked').map(({ maxTokens }) => maxTokens)).toEqual([long.length + 400, 400 - answered])
    expect(rollout.ending).toEqual({ outcome: 'truncated', reason: 'tokens' })
  })

  test('what a model or a tool writes cannot reach the terminal as anything but text', async () => {
    const hostile = '\u001b[2J\u001b]0;owned\u0007\r\u009b31m\u202e'
    const code = `print(${JSON.stringify(hostile)})`
    const { shown } = await chatted([`${hostile}${call(pythonTool.name, { code, input: '' })}`, hostile], tools)
    expect(shown.replaceAll('\n', '')).not.toMatch(/[\p{Cc}\u202e]/u)
    expect(shown).toContain('\\u001b[2J')
  })

  test('with --json a line for each thing, of which the texts are the whole', async () => {
    const turns = [`Ünïcode 日本語 🎉${call(pythonTool.name, { code: 'print(1)', input: '' })}`, 'fin']
    const { shown } = await chatted(turns, tools, { json: true })
    const lines = shown
      .trim()
      .split('\n')
      .map(line => JSON.parse(line) as { type: string; text?: string })
    const texts = lines
      .filter(({ type }) => type === 'text')
      .map(({ text }) => text)
      .join('')
    expect(texts).toBe(turns.join(''))
    expect(lines.map(({ type }) => type).filter(type => type !== 'text')).toEqual(['turn', 'call', 'result', 'turn'])
  })

  test('text is shown within 0.2 s of the engine, a result within 0.1 s of its end', async () => {
    const { firstTokenLagsMs, toolLagsMs } = await chatted(
      [`a${call(pythonTool.name, { code: '1', input: '' })}`, 'b'],
      tools,
    )
    expect(firstTokenLagsMs).toHaveLength(2)
    expect(Math.max(...firstTokenLagsMs)).toBeLessThan(200)
    expect(Math.max(...toolLagsMs)).toBeLessThan(100)
  })

  test('an answer that is stopped keeps what it had, and ends', async () => {
    const stop = new AbortController()
    const onToken = (n: number) => n > 30 && stop.abort()
    const conversation: ChatMessage[] = []
    const { of, rollout } = await chatted(['z'.repeat(3000)], tools, { signal: stop.signal, onToken, conversation })
    expect(of('turn.interrupted')).toMatchObject([{ reason: 'aborted' }])
    expect(of('turn.interrupted')[0]!.tokens.length).toBeGreaterThan(30)
    expect(rollout.ending).toEqual({ outcome: 'truncated', reason: 'stopped' })
    expect(conversation).toEqual([{ role: 'assistant', content: await decode(of('turn.interrupted')[0]!.tokens) }])
  })

  test('an answer whose engine is lost leaves what there was in the conversation, and so does a turn before it', async () => {
    const conversation: ChatMessage[] = []
    const code = call(pythonTool.name, { code: 'print(6 * 7)', input: '' })
    const onToken = (n: number) => {
      if (n > 300) throw lost
    }
    const lost = new Error('the engine is gone')
    await expect(chatted([code, 'z'.repeat(3000)], tools, { onToken, conversation })).rejects.toThrow(lost)
    expect(conversation).toEqual([
      { role: 'assistant', content: code },
      { role: 'tool', content: expect.stringContaining('42') },
      { role: 'assistant', content: expect.stringMatching(/^z{306}$/) },
    ])
  })
})

describe('a tool that does not come to its end', () => {
  const tools = (run: Tool): RunTools => ({
    schemas: ['odd', 'quick'].map(name => ({ name, description: '', parameters: { type: 'object' } })),
    tools: new Map<string, Tool>([
      ['odd', run],
      [
        'quick',
        async () => ({ ...{ status: 'ok', exitCode: 0, signal: null, stdout: 'q', stderr: '' }, wallMs: 1, cpuMs: 0 }),
      ],
    ]),
    close: async () => {},
  })
  const both = `${call('quick', {})}${call('odd', {})}`

  test('a chat that is stopped during a call ends as stopped, with its last facts, and the engine lets go of it', async () => {
    const stop = new AbortController()
    const waits: Tool = (_args, _limits, signal) =>
      new Promise((_, reject) => {
        signal.addEventListener('abort', () => reject(signal.reason))
        setTimeout(() => stop.abort(), 20)
      })
    const { of, facts, released, rollout } = await chatted([both], tools(waits), { signal: stop.signal })
    expect(rollout.ending).toEqual({ outcome: 'truncated', reason: 'stopped' })
    expect(of('tool.completed').map(({ tool }) => tool)).toEqual(['quick'])
    expect(facts.slice(-2)).toMatchObject([
      { type: 'rollout.finished', outcome: 'truncated', reason: 'stopped' },
      { type: 'group.closed' },
    ])
    expect(released).toHaveLength(1)
  })

  test('what calls made at once returned is told in the order of the calls, whichever ended first', async () => {
    const late: Tool = async () => {
      await new Promise(resolve => setTimeout(resolve, 100))
      return { ...{ status: 'ok', exitCode: 0, signal: null, stdout: 'slow', stderr: '' }, wallMs: 1, cpuMs: 0 }
    }
    const conversation: ChatMessage[] = []
    const turn = `${call('odd', {})}${call('quick', {})}`
    const { of } = await chatted([turn, 'done'], tools(late), { conversation })
    expect(of('tool.completed').map(({ tool }) => tool)).toEqual(['quick', 'odd'])
    expect(conversation.map(({ role, content }) => [role, content.includes('slow')])).toEqual([
      ['assistant', false],
      ['tool', true],
      ['tool', false],
      ['assistant', false],
    ])
  })

  test('one that breaks is an error of that call, which the model is told, and the chat goes on', async () => {
    const breaks: Tool = async () => {
      throw new Error('the lane is gone')
    }
    const { of, released, rollout } = await chatted([both, 'sorry'], tools(breaks))
    expect(of('tool.completed')).toEqual(
      expect.arrayContaining([
        expect.objectContaining({ tool: 'odd', status: 'error', text: expect.stringContaining('the lane is gone') }),
      ]),
    )
    expect(rollout.ending?.outcome).toBe('answered')
    expect(released).toHaveLength(1)
  })
})

/** The bytes of that vocabulary. */
const table: TokenBytes = {
  bytes: Uint8Array.from({ length: 256 }, (_, i) => i),
  ends: Int32Array.from({ length: 256 }, (_, i) => i + 1),
}

test.each<[string, TokenBytes | undefined]>([
  ['a renderer decodes', undefined],
  ['the bytes of each token give', table],
])('tokens become text, which %s, however they come, and nothing is shown that changes later', async (_who, bytes) => {
  const text = 'a é 日本語 👩‍👩‍👧‍👦 \u{10ffff} z'
  for (const size of [1, 2, 3, 7, 100]) {
    let given = ''
    const give = (piece: string) => {
      given += piece
      expect(text.startsWith(given)).toBe(true)
    }
    const pieces = tokenText(decode, give, bytes)
    const tokens = tokensOf(text)
    for (let at = 0; at < tokens.length; at += size) {
      pieces.add(tokens.slice(at, at + size))
      if (at % 2 === 0) await new Promise(resolve => setImmediate(resolve))
    }
    await pieces.end()
    expect(given).toBe(text)
  }
})

test('bytes that are no characters, and numbers that no token has, become what a renderer makes of them', async () => {
  const odd = [0xef, 0xbb, 0xbf, 0x61, 0xe6, 0x97, 0x62, 0xff, 0xf0, 0x9f, 0x91, 0xed, 0xa0, 0x80, 0xe2, 0x82]
  let given = ''
  const pieces = tokenText(
    decode,
    piece => {
      given += piece
    },
    table,
  )
  for (const byte of odd) pieces.add(Int32Array.of(byte, 256, 9999, -1))
  await pieces.end()
  expect(given).toBe(Buffer.from(odd).toString('utf8'))
})

test('calls and special tokens are never shown, however the text is cut', () => {
  const text = `Let me <b> see: ${call('p', { code: 'if a < b: pass' })} and <|im_end|> 3 < 4 <tool`
  for (let size = 1; size < text.length; size++) {
    let shown = ''
    let calls = 0
    const view = shownText(
      piece => {
        shown += piece
      },
      () => calls++,
    )
    for (let at = 0; at < text.length; at += size) view.add(text.slice(at, at + size))
    view.end()
    expect([size, shown, calls]).toEqual([size, 'Let me <b> see:  and  3 < 4 <tool', 1])
  }
})

test('a message may have many lines', () => {
  const lines = userLines()
  const typed = ['one', 'two \\', 'three', '"""', 'four', '', 'five"""', '"""six"""', '"""seven', '"""', 'eight']
  const messages = typed.map(line => lines.add(line)).filter(message => message !== undefined)
  expect(messages).toEqual(['one', 'two \nthree', 'four\n\nfive', 'six', 'seven', 'eight'])
  lines.add('begun \\')
  expect(lines.prompt).toBe('… ')
  expect([lines.clear(), lines.clear()]).toEqual([true, false])
  expect([lines.prompt, lines.add('anew')]).toEqual(['> ', 'anew'])
})

test('Ctrl-C forgets a message that was begun, of many lines or in one; where nothing was it ends the chat', async () => {
  const input = new PassThrough()
  const asked: string[] = []
  let shown = ''
  const output = new PassThrough().setEncoding('utf8').on('data', text => {
    shown += text
  })
  const answer = async (text: string) => {
    asked.push(text)
    return { rollout: {}, firstTokenLagsMs: [], toolLagsMs: [] } as unknown as Exchanged
  }
  const done = talking(answer, input, output)
  const type = async (text: string) => {
    shown = ''
    input.write(text)
    await until(() => shown !== '')
  }
  await type('one \\\r')
  await type('\u0003')
  expect(shown).toContain('> ')
  await type('half a li')
  await type('\u0003')
  await type('whole\r')
  await until(() => asked.length > 0)
  expect(asked).toEqual(['whole'])
  input.write('\u0003')
  expect(await done).toBe(0)
})

test('what options say of the sampling wins over --set, which wins over the defaults; all of it is recorded', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'troupe-chat-'))
  writeFileSync(join(directory, 'config.json'), '{"max_position_embeddings":8192}')
  const sampled = async (how: object) => {
    const config = await chatConfig({ template: 'own', model: directory, set: [], ...how })
    return [config.evaluation.temperature, config.rollout.sampling.temperature, config.seed, config.limits.turns]
  }
  try {
    const set = ['rollout.sampling.temperature=0.3', 'seed=5', 'limits.turns=2']
    expect(await sampled({})).toEqual([0.7, 0.7, 1, 16])
    expect(await sampled({ set })).toEqual([0.3, 0.3, 5, 2])
    expect(await sampled({ set, temperature: 0, turns: 3, seed: 6 })).toEqual([0, 1, 6, 3]) // no rollout's may be 0
    expect(await sampled({ set: ['rollout.sampling.temperature=0'] })).toEqual([0, 1, 1, 16])
  } finally {
    rmSync(directory, { recursive: true, force: true })
  }
})

test('a chat asks for no longer contexts than the server has', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'troupe-chat-'))
  writeFileSync(join(directory, 'config.json'), '{"max_position_embeddings":8192}')
  const server = createServer((_, response) => {
    response.end(JSON.stringify({ data: [{ id: 'm', root: directory, max_model_len: 1024 }] }))
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  try {
    const engine = `vllm:http://127.0.0.1:${(server.address() as AddressInfo).port}`
    const how = { template: 'own', maxTokens: 300, turns: 4, temperature: 1, callsPerTurn: 1, set: [] }
    expect((await chatConfig({ ...how, engine })).limits.contextTokens).toBe(1024)
    expect((await chatConfig({ ...how, model: directory })).limits.contextTokens).toBe(4396)
    const set = ['limits.contextTokens=8193', 'engine.kvTokens=10000']
    await expect(chatConfig({ ...how, model: directory, set })).rejects.toThrow(/8193 is longer than the model's 8192/)
  } finally {
    server.closeAllConnections()
    await new Promise(resolve => server.close(resolve))
    rmSync(directory, { recursive: true, force: true })
  }
})
