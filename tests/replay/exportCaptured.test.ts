/** A session of the gateway under `replay export`: its training rows with every token and message, or a refusal. */
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { ExportedRow } from '../../replay/exchange/exportedRows'
import { recordGateway } from '../support/gateway/recordedGateway'
import type { Sampled } from '../support/gateway/scriptedEngine'
import { troupeHere } from '../support/troupeHere'

jest.setTimeout(60_000)

const directory = mkdtempSync(join(tmpdir(), 'troupe-export-'))
afterAll(() => rmSync(directory, { recursive: true, force: true }))
const file = (name: string) => join(directory, name)
const bus = `lmdb:${file('bus')}`
const replay = (...args: readonly string[]) =>
  troupeHere(['replay', ...args, ...(args.includes('--bus') ? [] : ['--bus', bus, '--run', 'r'])])
const rowsOf = (text: string) =>
  text
    .trim()
    .split('\n')
    .map(line => JSON.parse(line) as ExportedRow)

const session = 'agent.0000/0'
/** A session that was opened, and never called. */
const unused = 'agent.0001/0'
const written = ['<tool_call>{"name":"add","arguments":{"a":12,"b":30}}</tool_call>', 'It is 42.', 'No.', 'A title']
let sampled: readonly Sampled[]

beforeAll(async () => {
  sampled = await recordGateway(bus, written, async ({ post, say }) => {
    const first = [
      { role: 'system', content: 'Be brief.' },
      { role: 'user', content: 'What is 12 + 30?' },
    ]
    const asked = await say('me', first)
    const result = { role: 'tool', tool_call_id: asked.tool_calls[0]!.id, content: 'the sum is 42' }
    await say('me', [...first, asked, result])
    await say('me', [{ role: 'user', content: 'Is it 41?' }])
    await say('me', [{ role: 'user', content: 'Name this chat.' }], 'aux')
    await post('/troupe/v1/sessions/agent.0000%2F0/reward', { value: 0.5 })
    await post('/troupe/v1/sessions/agent.0000%2F0/end', { outcome: 'done' })
    await post('/troupe/v1/sessions', {})
  })
})

test('a captured session is exported as its training rows: each token as it was sampled, each message, the reward', async () => {
  const rows = rowsOf((await replay('export', session)).stdout)
  expect(rows).toMatchObject([
    { format: 'troupe-captured-row', trajectory: session, row: 0, rows: 2, calls: [0, 1], leaf: 1 },
    { format: 'troupe-captured-row', trajectory: session, row: 1, rows: 2, calls: [2], leaf: 2 },
  ])
  for (const [row, answers] of [
    [rows[0]!, sampled.slice(0, 2)],
    [rows[1]!, sampled.slice(2, 3)],
  ] as const) {
    const last = answers.at(-1)!
    expect(row.tokens).toEqual([...last.context, ...last.tokens])
    for (const { length } of [row.mask, row.engineLogprobs, row.policyVersions]) expect(length).toBe(row.tokens.length)
    expect(row.promptTokens).toBe(answers[0]!.context.length)
    expect(row.mask.reduce((sum, bit) => sum + bit, 0)).toBe(answers.reduce((n, { tokens }) => n + tokens.length, 0))
    expect(row.turns).toHaveLength(answers.length)
    for (const [k, { start, end }] of row.turns.entries()) {
      expect(row.tokens.slice(start, end)).toEqual([...answers[k]!.tokens])
      expect(Float32Array.from(row.engineLogprobs.slice(start, end))).toEqual(answers[k]!.logprobs)
      expect(new Set(row.mask.slice(start, end))).toEqual(new Set([1]))
      expect(new Set(row.policyVersions.slice(start, end))).toEqual(new Set([0]))
    }
    expect(row).toMatchObject({ outcome: 'answered', reward: 0.5 })
    expect(JSON.stringify(row.tools)).toContain('"add"')
  }
  const id = rows[0]!.messages[2]!.tool_calls![0]!.id
  expect(rows[0]!.messages).toEqual([
    { role: 'system', content: 'Be brief.' },
    { role: 'user', content: 'What is 12 + 30?' },
    {
      role: 'assistant',
      content: '',
      tool_calls: [{ id, type: 'function', function: { name: 'add', arguments: '{"a":12,"b":30}' } }],
    },
    { role: 'tool', tool_call_id: id, content: 'the sum is 42' },
    { role: 'assistant', content: 'It is 42.' },
  ])
  expect(rows[0]!.toolCalls).toMatchObject([{ turn: 1, tool: 'add', text: 'the sum is 42' }])
  expect(rows[1]!.messages).toEqual([
    { role: 'user', content: 'Is it 41?' },
    { role: 'assistant', content: 'No.' },
  ])
  expect(rows[1]!.toolCalls).toEqual([])
})

test.each(['sft', 'atif', 'parquet', 'rows', 'html'])(
  '%s, which has no calls, refuses a captured session',
  async format => {
    const out = file(format)
    const { code, stderr } = await replay('export', session, '--format', format, '--out', out)
    expect(code).not.toBe(0)
    expect(stderr).toContain('replay.captured')
    expect(stderr).toContain('--format jsonl')
    expect(existsSync(out)).toBe(false)
  },
)

test("the page that a refusal names is the dashboard's, with the session's calls", async () => {
  const out = file('page.html')
  expect((await replay('export', session, '--format', 'html', '--out', out)).code).toBe(0)
  expect(readFileSync(out, 'utf8')).toContain('What is 12 + 30?')
})

test('a session without a row is named, and alone is an error that leaves the file as it was', async () => {
  const out = file('none.jsonl')
  writeFileSync(out, 'before')
  const alone = await replay('export', unused, '--out', out)
  expect(alone.code).toBe(2)
  expect(alone.stderr).toContain(`session ${unused} cannot be exported`)
  expect(readFileSync(out, 'utf8')).toBe('before')
  const all = await replay('export', '--all', '--out', out)
  expect(all).toMatchObject({ code: 0, stderr: expect.stringContaining(`left out session ${unused}`) })
  expect(all.stderr).toContain('2 rows in')
  expect(rowsOf(readFileSync(out, 'utf8'))).toHaveLength(2)
})

test('rows are not imported, a fixture of the session is: it exports the same rows', async () => {
  const [out, fixture] = [file('rows.jsonl'), file('fixture.jsonl.gz')]
  await replay('export', session, '--out', out)
  const other = `lmdb:${file('imported')}`
  const refused = await replay('import', out, '--bus', other)
  expect(refused.code).not.toBe(0)
  expect(refused.stderr).toContain('replay.captured')
  await replay('export', session, '--format', 'fixture', '--out', fixture)
  expect((await replay('import', fixture, '--as', 'copy', '--bus', other)).code).toBe(0)
  const again = rowsOf((await replay('export', session, '--bus', other, '--run', 'copy')).stdout)
  const withoutRun = ({ run: _, ...rest }: ExportedRow) => rest
  expect(again.map(withoutRun)).toEqual(rowsOf(readFileSync(out, 'utf8')).map(withoutRun))
})
