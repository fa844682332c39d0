/** `troupe mcp`, asked by the official MCP client over stdio: an agent finds a run, its steps, a trajectory, and where two part. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js'
import { runId } from '../../../messages/ids'
import { quickstartHistory, saveHistory } from '../../support/histories'

jest.setTimeout(60_000)

const folder = mkdtempSync(join(tmpdir(), 'troupe-mcp-'))
const client = new Client({ name: 'test', version: '1' })

beforeAll(async () => {
  await saveHistory(folder, { ...quickstartHistory(), run: runId('history') })
  const bin = join(__dirname, '../../../cli/bin.js')
  const args = [bin, 'mcp', '--bus', `lmdb:${folder}`]
  await client.connect(new StdioClientTransport({ command: process.execPath, args, stderr: 'ignore' }))
})
afterAll(async () => {
  await client.close()
  rmSync(folder, { recursive: true })
})

async function ask(name: string, given: Record<string, unknown>) {
  const { content, isError = false } = await client.callTool({ name, arguments: given })
  const [first] = content as { readonly text: string }[]
  return { text: first!.text, isError }
}

test('the server says which tools it has, and which of them only read', async () => {
  const { tools } = await client.listTools()
  expect(tools.map(({ name, annotations }) => [name, annotations?.readOnlyHint])).toEqual([
    ['list_runs', true],
    ['steps', true],
    ['list_trajectories', true],
    ['show', true],
    ['why', true],
    ['diff', true],
    ['fork', false],
  ])
})

test('runs, steps, trajectories, one of them, why it ended and where two part', async () => {
  const [runs, steps, list] = await Promise.all([
    ask('list_runs', {}),
    ask('steps', { run: 'history' }),
    ask('list_trajectories', { run: 'history', tool_errors: true, reward: '>0', limit: 2 }),
  ])
  expect(JSON.parse(runs.text)).toMatchObject({ run: 'history', state: 'done', recipe: 'quickstart', step: 3 })
  expect(steps.text.split('\n').filter(line => /^ +[123] /.test(line))).toHaveLength(3)
  expect(list.text.split('\n').filter(line => line.startsWith('s0001.'))).toHaveLength(2)
  const run = 'history'
  const [shown, why, diff] = await Promise.all([
    ask('show', { run, trajectory: 's0001.0000/0', turns: '0' }),
    ask('why', { run, id: 's0001.0000/0' }),
    ask('diff', { run, a: 's0001.0000/3', b: 's0001.0000/1' }),
  ])
  expect(shown.text).toMatch(/A crate holds 57 bolts[\s\S]*SyntaxError/)
  expect(why.text).toMatch(/scored 1/)
  expect(diff).toEqual({ text: expect.stringContaining('the first 52 tokens are the same'), isError: false })
})

test('a fork needs the leave of whoever started the server; a wrong run and a value that looks like an option are errors', async () => {
  const fork = await ask('fork', { run: 'history', trajectory: 's0001.0000/0', from_turn: 0 })
  expect(fork).toEqual({ text: expect.stringContaining('without --allow-fork'), isError: true })
  expect(await ask('steps', { run: 'none' })).toEqual({ text: expect.stringContaining('run.not_found'), isError: true })
  const odd = await ask('show', { run: 'history', trajectory: '--bus=lmdb:/tmp' })
  expect(odd).toEqual({ text: expect.stringMatching(/--bus=lmdb/), isError: true })
})
