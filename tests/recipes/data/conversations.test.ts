/** Conversations for the cold start come out of each set's published form as our chat, and a recipe mixes them. */
import { execFileSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import fc from 'fast-check'
import { parseToolCalls } from '../../../kernels'
import { conversationSets, withTools } from '../../../recipes/data/conversations/formats'
import { pythonCalls } from '../../../recipes/data/conversations/pythonCalls'
import { loadRecipe } from '../../../recipes/load/loadRecipe'

const folder = mkdtempSync(join(tmpdir(), 'troupe-conversations-'))
afterAll(() => rmSync(folder, { recursive: true }))

const read = (set: string, row: object) => conversationSets.get(set)!.read(row as never)
const rolesOf = (set: string, row: object) => {
  const result = read(set, row)
  return 'messages' in result ? result.messages.map(({ role }) => role) : result
}
const messagesOf = (set: string, row: object) => {
  const result = read(set, row)
  if (!('messages' in result)) throw new Error(JSON.stringify(result))
  return result.messages
}
const callsIn = (text: string) => parseToolCalls(text).calls

const weather = {
  name: 'Get Weather',
  description: 'Weather [of a city]',
  parameters: { type: 'dict', properties: { city: { type: 'string' } }, required: ['city'] },
}
const toolace = {
  system: `You are an expert in composing functions. Here is a list of functions in JSON format that you can invoke:\n${JSON.stringify([weather])}. \nShould you decide to return the function call(s). Put it in the format of [func1(params_name=params_value)]`,
  conversations: [
    { from: 'user', value: 'Weather in Bonn and Ulm?' },
    { from: 'assistant', value: '[Get Weather(city="Bonn"), Get Weather(city="Ulm", days=[1, 2], at={\'h\': True})]' },
    { from: 'tool', value: '[{"name": "Get Weather", "results": {"sun": 1}}]' },
    { from: 'assistant', value: 'Sunny in both.' },
  ],
}
const apigen = {
  system: 'Policy: be kind.',
  tools: JSON.stringify([weather]),
  conversations: [
    { from: 'human', value: 'Bonn?' },
    { from: 'gpt', value: 'One moment.' },
    { from: 'function_call', value: '{"name": "Get Weather", "arguments": {"city": "Bonn"}}' },
    { from: 'observation', value: '{"sun": 1}' },
    { from: 'gpt', value: 'Sunny.' },
    { from: 'human', value: 'Thanks.' },
  ],
}
const glaive = {
  system: `SYSTEM: You are a helpful assistant with access to the following functions. Use them if required -\n${JSON.stringify(weather, null, 4)}\n${JSON.stringify({ ...weather, name: 'other' })}`,
  chat: `USER: Bonn?\n\n\nASSISTANT: <functioncall> {"name": "Get Weather", "arguments": '{"city": "Bonn", "note": "it\\'s"}'} <|endoftext|>\n\n\nFUNCTION RESPONSE: {"sun": 1}\n\n\nASSISTANT: Sunny. <|endoftext|>\n\n\nUSER: And Ulm?\n\n\nASSISTANT: Which Ulm? <|endoftext|>`,
}

test('ToolACE: functions move into the tools, calls become JSON, a dict an object', () => {
  const [system, user, call, tool, answer] = messagesOf('toolace', toolace)
  expect(system!.content).toContain('<tools>\n{"type":"function","function":{"name":"Get Weather"')
  expect(system!.content).toContain('"parameters":{"type":"object"')
  expect(callsIn(call!.content)).toMatchObject([
    { name: 'Get Weather', arguments: { city: 'Bonn' } },
    { name: 'Get Weather', arguments: { city: 'Ulm', days: [1, 2], at: { h: true } } },
  ])
  expect([user!.role, tool!.role, answer!.content]).toEqual(['user', 'tool', 'Sunny in both.'])
})

test('APIGen-MT: a word before a call stays with it, and what follows the last answer is cut', () => {
  const messages = messagesOf('apigen-mt', apigen)
  expect(messages.map(({ role }) => role)).toEqual(['system', 'user', 'assistant', 'tool', 'assistant'])
  expect(messages[0]!.content).toMatch(/^Policy: be kind\.\n\n# Tools/)
  expect(messages[2]!.content).toMatch(/^One moment\.\n<tool_call>/)
})

test('Glaive: one text becomes several turns, arguments in single quotes are read', () => {
  const messages = messagesOf('glaive', glaive)
  expect(messages.map(({ role }) => role)).toEqual([
    'system',
    'user',
    'assistant',
    'tool',
    'assistant',
    'user',
    'assistant',
  ])
  expect(callsIn(messages[2]!.content)).toMatchObject([{ arguments: { city: 'Bonn', note: "it's" } }])
  expect(messages[0]!.content.match(/"type":"function"/g)).toHaveLength(2)
  expect(messages[4]!.content).toBe('Sunny.')
  expect(read('glaive', { system: 'SYSTEM: You are helpful, with no access to functions.', chat: 'USER: a' })).toEqual({
    other: 'no functions',
  })
})

test('Magicoder: a solution in Python is one call of our tool, in another language it is left out', () => {
  const row = { lang: 'python', problem: 'Add.', solution: 'So:\n```python\nprint(1 + 1)\n```\nDone.' }
  const [system, , call] = messagesOf('magicoder', row)
  expect(system!.content).toContain('execute_python_code_with_standard_io')
  expect(callsIn(call!.content)).toMatchObject([{ arguments: { code: 'print(1 + 1)', input: '' } }])
  expect(read('magicoder', { ...row, lang: 'rust' })).toEqual({ other: 'another language' })
  expect(read('magicoder', { ...row, solution: 'none' })).toEqual({ other: 'no Python code' })
})

test('Tulu 3 and Nemotron: chats as they are, reasoning left out', () => {
  const asked = { role: 'user', content: 'Hi' }
  expect(rolesOf('tulu3-if', { messages: [asked, { role: 'assistant', content: 'Hello' }] })).toEqual([
    'user',
    'assistant',
  ])
  const chat = { input: [asked], output: '<think>hm</think>Hello', reasoning: 'off', category: 'chat' }
  expect(messagesOf('nemotron-chat', chat).at(-1)!.content).toBe('Hello')
  expect(read('nemotron-chat', { ...chat, reasoning: 'on' })).toEqual({ other: 'reasoning' })
  expect(read('nemotron-chat', { ...chat, category: 'math' })).toEqual({ other: 'another category' })
  expect(read('nemotron-chat', { ...chat, output: '<think>never ends' })).toEqual({ other: 'reasoning' })
})

test('no row makes a reader throw, and every conversation begins with a question and ends with the assistant', () =>
  fc.assert(
    fc.property(
      fc.constantFrom(...conversationSets.keys()),
      fc.dictionary(
        fc.constantFrom(
          'system',
          'conversations',
          'chat',
          'tools',
          'messages',
          'input',
          'output',
          'problem',
          'solution',
        ),
        fc.oneof(
          fc.jsonValue(),
          fc.constantFrom(toolace.system, toolace.conversations, glaive.chat, apigen.conversations, apigen.tools),
        ),
      ),
      (set, row) => {
        const result = read(set, row)
        if (!('messages' in result)) return
        const roles = result.messages.map(({ role }) => role)
        expect(roles.at(-1)).toBe('assistant')
        expect(roles.filter((role, k) => role === 'system' && k > 0)).toEqual([])
        expect(roles.some((role, k) => role === 'assistant' && roles[k - 1] === 'assistant')).toBe(false)
      },
    ),
    { numRuns: 500 },
  ))

test('what is no list of calls is text: nothing is guessed', () => {
  for (const text of [
    '[1, 2]',
    '[f(1)]',
    '[f(a=)]',
    '[f(a=1)',
    'f(a=1)',
    '[]',
    '[f(a=open)]',
    '[f(a="x)]',
    `[f(a=${'['.repeat(99)})]`,
  ])
    expect(pythonCalls(text)).toBeUndefined()
  expect(pythonCalls('[ f( ) , g(a = "b\\"c", t=(1, -2.5e3,), n=None) ]')).toEqual([
    { name: 'f', arguments: {} },
    { name: 'g', arguments: { a: 'b"c', t: [1, -2500], n: null } },
  ])
})

test('tools are described in the words of the chat template', () => {
  const template = readFileSync(join(__dirname, '../../../recipes/templates/hermes.jinja'), 'utf8')
  const { content } = withTools('', [weather])
  for (const words of content.split(/\n<tools>[\s\S]*<\/tools>\n\n/))
    expect(template.replaceAll('\\n', '\n')).toContain(words)
})

test('troupe data writes them, and a recipe mixes files by its seed, so many of each', async () => {
  const write = (name: string, rows: readonly object[]) => {
    writeFileSync(join(folder, name), JSON.stringify(rows))
    return join(folder, name)
  }
  const bin = join(__dirname, '../../../cli/bin.js')
  const data = (...args: string[]) =>
    JSON.parse(execFileSync(process.execPath, [bin, 'data', ...args, '--json'], { encoding: 'utf8', cwd: folder }))
  const chats = Array.from({ length: 6 }, (_, k) => ({
    messages: [
      { role: 'user', content: `q${k % 5}` },
      { role: 'assistant', content: `a${k % 5}` },
    ],
  }))
  const one = data('tulu3-if', '--from', write('tulu.json', [...chats, { messages: 1 }]), '--out', 'tulu.jsonl')
  expect(one).toMatchObject({
    rows: 7,
    kept: 5,
    broken: { 'no answer': 1 },
    dropped: { 'repeats the conversation of an earlier row': 1 },
  })
  const two = data('toolace', '--from', write('ace.json', [toolace]), '--out', 'ace.jsonl')
  expect(two).toMatchObject({ kept: 1 })
  const yaml = join(folder, 'mix.yaml')
  writeFileSync(
    yaml,
    'model: {from: directory, path: /m}\ndata: {file: x.jsonl, mixture: [{file: ' +
      `tulu.jsonl, count: 3}, {file: ace.jsonl}]}\ncoldStart: {demonstrations: 10}\n`,
  )
  const { recipe, config } = loadRecipe(yaml)
  const mixed = await recipe.demonstrations!(config.value)
  expect(mixed).toHaveLength(4)
  expect(mixed.filter(([first]) => first!.role === 'system')).toHaveLength(1)
  expect(await recipe.demonstrations!(config.value)).toEqual(mixed)
})
