/** Agents and clients of others, unchanged, run to their end through the gateway, and no sampled token is lost or doubled. */
import { execFile } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { callRows } from '../../kernels'
import { openTestGateway, type TestGateway } from '../support/gateway/openTestGateway'

const folder = join(__dirname, '../support/gateway/harnesses')
const { harnesses } = require(join(folder, 'setup.js')) as { harnesses: () => { venv: string; isDone(): boolean } }

jest.setTimeout(240_000)

let gateway: TestGateway
/** Directory in which a coding agent works. */
let workspace = ''
beforeAll(async () => {
  if (!harnesses().isDone()) throw new Error(`first run: node ${join(folder, 'setup.js')}`)
})
beforeEach(async () => {
  gateway = await openTestGateway(script)
})
afterEach(() => gateway.close())

const use = (name: string, args: object) =>
  `I call it.\n<tool_call>\n${JSON.stringify({ name, arguments: args })}\n</tool_call>`

/** A model that uses each harness's own tools once, and then ends as that harness wants it. */
function script(context: string): string {
  const isAnsweredBy = (text: RegExp) => text.test(context.slice(context.indexOf('<|im_start|>user')))
  if (context.includes('"name":"write_file"'))
    return isAnsweredBy(/Successfully created/)
      ? 'It is written.'
      : use('write_file', { file_path: join(workspace, 'answer.txt'), content: '42' })
  if (context.includes('"name":"bash"')) {
    const done = 'echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && echo one file'
    return use('bash', { command: isAnsweredBy(/a\.txt\n/) ? done : 'echo a.txt' })
  }
  if (/user\ngo on<\|im_end\|>\n<\|im_start\|>assistant\n$/.test(context)) return 'I went on.'
  if (!context.includes('"name":"add"')) return 'hello to you'
  if (!isAnsweredBy(/\b42\b/)) return use('add', { a: 12, b: 30 })
  return context.includes('"name":"final_answer"') ? use('final_answer', { answer: 'It is 42.' }) : 'It is 42.'
}

async function outputOf(program: string, file: string): Promise<Record<string, unknown>> {
  const env = { ...process.env, HOME: process.env.HOME ?? '/tmp', NO_PROXY: '127.0.0.1', no_proxy: '127.0.0.1' }
  const { stdout } = await promisify(execFile)(program, [file, gateway.gateway.url], { env, timeout: 200_000 })
  return JSON.parse(stdout.trim().split('\n').at(-1)!) as Record<string, unknown>
}

/** Training rows of each session, as numbers of calls. @throws unless each sampled token is in exactly one row */
function rowsOf({ gateway: { sessions }, engine }: TestGateway): number[][][] {
  const rows = sessions.list().map(session => callRows(session.calls.tree, ['main', 'subagent', 'compaction', 'aux']))
  const trained = rows.flat().flatMap(row => [...row.engineLogprobs].filter((_, i) => row.mask[i] === 1))
  expect(trained.sort()).toEqual(engine.sampled.flatMap(one => [...one.logprobs]).sort())
  return rows.map(list => list.map(row => [...row.calls]))
}

test('the SDKs of npm keep their history so that each next call continues the tokens of the one before', async () => {
  const { venv } = harnesses()
  const said = await outputOf(process.execPath, join(venv, 'node/clients.mjs'))
  const spoken = ['hello to you', 'I went on.']
  const counted = ['It is 42.', 'I went on.']
  expect(said).toEqual({
    ...{ chat: spoken, responses: spoken, messages: spoken },
    ...{ 'ai-chat': counted, 'ai-responses': counted, 'ai-messages': counted },
  })
  expect(rowsOf(gateway)).toEqual([...Array(3).fill([[0, 1]]), ...Array(3).fill([[0, 1, 2]])])
})

test('mini-swe-agent, smolagents, pydantic-ai and litellm call their tools and end as with any other server', async () => {
  const { venv } = harnesses()
  const said = await outputOf(join(venv, 'bin/python'), join(folder, 'agents.py'))
  expect(said).toEqual({
    'mini-swe-agent': expect.objectContaining({
      exit_status: 'Submitted',
      submission: expect.stringMatching(/one file/),
    }),
    smolagents: 'It is 42.',
    ...{ 'pydantic-ai-chat': ['It is 42.', 'I went on.'], 'pydantic-ai-messages': ['It is 42.', 'I went on.'] },
    ...{ 'litellm-chat': ['hello to you', 'I went on.'], 'litellm-messages': ['hello to you', 'I went on.'] },
  })
  // smolagents writes the model's tool call anew, as text, so its second call continues nothing that was sampled.
  const [mini, smol, ...others] = rowsOf(gateway)
  expect([mini, smol]).toEqual([[[0, 1]], [[0], [1]]])
  expect(gateway.gateway.sessions.list()[1]!.calls.tree.nodes.get(1)!.started.branch).toBe('answer-edited')
  expect(others).toEqual([[[0, 1, 2]], [[0, 1, 2]], [[0, 1]], [[0, 1]]])
})

test('the coding agent qwen-code writes a file with its own tool and ends; its prompt and turns are one row', async () => {
  workspace = mkdtempSync(join(tmpdir(), 'troupe-qwen-'))
  try {
    const env = {
      ...{ PATH: process.env.PATH, HOME: workspace, NO_PROXY: '127.0.0.1' },
      ...{ OPENAI_BASE_URL: `${gateway.gateway.url}/v1`, OPENAI_API_KEY: 'qwen', OPENAI_MODEL: 'any' },
    }
    const qwen = join(harnesses().venv, 'node/node_modules/.bin/qwen')
    const args = [qwen, '--auth-type', 'openai', '--approval-mode', 'yolo', '-p', 'Write 42 to answer.txt']
    const running = promisify(execFile)(process.execPath, args, { cwd: workspace, env, timeout: 200_000 })
    running.child.stdin?.end()
    expect((await running).stdout).toContain('It is written.')
    expect(readFileSync(join(workspace, 'answer.txt'), 'utf8')).toBe('42')
    expect(rowsOf(gateway)).toEqual([[[0, 1]]])
  } finally {
    rmSync(workspace, { recursive: true, force: true })
  }
})
