/**
 * Trajectories in Harbor's ATIF become conversations of a cold start: rows that this test writes, and files through
 * `troupe data`.
 */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { main } from '../../../cli/main'
import { parseToolCalls } from '../../../kernels/toolCalls/toolCalls'
import { conversationSets } from '../../../recipes/data/conversations/formats'

const folder = mkdtempSync(join(tmpdir(), 'troupe-atif-'))
afterAll(() => rmSync(folder, { recursive: true }))
const call = '<tool_call>\n{"name": "bash", "arguments": {"command": "ls"}}\n</tool_call>'
const trajectory = (message: unknown) => ({
  schema_version: 'ATIF-v1.6',
  session_id: 's',
  agent: { name: 'terminus-2', version: '2' },
  steps: [
    {
      step_id: 1,
      source: 'user',
      message: [
        { type: 'text', text: 'List it.' },
        { type: 'image', source: {} },
      ],
    },
    {
      step_id: 2,
      source: 'agent',
      message,
      reasoning_content: 'hidden',
      tool_calls: [{ tool_call_id: 'c', function_name: 'bash', arguments: { command: 'ls' } }],
      observation: { results: [{ source_call_id: 'c', content: 'a.txt' }] },
    },
    { step_id: 3, source: 'agent', message: 'One file.' },
  ],
})

test('calls and results become messages, and a call that the text holds already is there once', () => {
  const read = (message: unknown) => conversationSets.get('atif')!.read(trajectory(message))
  const expected = (content: unknown) => ({
    messages: [
      { role: 'user', content: 'List it.' },
      { role: 'assistant', content },
      { role: 'tool', content: 'a.txt' },
      { role: 'assistant', content: 'One file.' },
    ],
  })
  expect(read('I look.')).toEqual(
    expected(expect.stringMatching(/^I look\.\n<tool_call>[\s\S]*"ls"[\s\S]*<\/tool_call>$/)),
  )
  expect(read(call)).toEqual(expected(call))
})

test('of the calls of a step, those that its text does not hold are written behind it', () => {
  const [user, asks] = trajectory(call).steps
  const [ls] = asks!.tool_calls!
  const pwd = { tool_call_id: 'd', function_name: 'bash', arguments: { command: 'pwd' } }
  const document = { ...trajectory(''), steps: [user, { ...asks, tool_calls: [ls, pwd, ls] }] }
  const read = conversationSets.get('atif')!.read(document)
  if (!('messages' in read)) throw new Error('not read as messages')
  const commands = parseToolCalls(read.messages[1]!.content).calls.map(
    one => one.kind === 'call' && one.arguments.command,
  )
  expect(commands).toEqual(['ls', 'pwd', 'ls'])
})

test('a document of another form is counted as broken', () => {
  const { read } = conversationSets.get('atif')!
  expect(read({ steps: [] })).toEqual({ broken: 'no ATIF document' })
  expect(read({ ...trajectory(''), steps: [{ source: 'robot' }] })).toHaveProperty('broken')
})

test('`data atif` reads a trajectory.json of many lines', async () => {
  writeFileSync(join(folder, 'trajectory.json'), JSON.stringify(trajectory('I look.'), null, 2))
  const out = join(folder, 'out.jsonl')
  const write = jest.spyOn(process.stdout, 'write').mockReturnValue(true)
  const code = await main(['data', 'atif', '--from', folder, '--out', out])
  write.mockRestore()
  expect(code).toBe(0)
  expect(JSON.parse(readFileSync(out, 'utf8'))).toMatchObject({ source: 'atif', messages: { length: 4 } })
})
