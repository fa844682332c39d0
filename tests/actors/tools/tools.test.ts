/** Tools of a run: Python, a notebook, functions of a recipe, MCP servers; by schemas, under deadlines, at once. */
import { randomUUID } from 'node:crypto'
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js'
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js'
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js'
import { z } from 'zod'
import { openRunTools, type RunTools, toolSchemas } from '../../../actors/tools/runTools'
import { type Tool, type ToolOutcome, toolPort } from '../../../actors/tools/toolPort'
import type { McpServerConfig } from '../../../config'
import { type Recipe, recipeSchema } from '../../../config'
import type { ExecuteTool } from '../../../messages/commands'
import { epoch, executorId, groupId, runId, trajectoryId } from '../../../messages/ids'
import { systemEffects } from '../../../runtime/effects'
import { parseConfig } from '../../../runtime/settings/resolveConfig'
import { openSandbox, type Sandbox } from '../../../sandbox'
import { notebookTool } from '../../../sandbox/tools/notebookTool'
import { pythonTool } from '../../../sandbox/tools/pythonTool'
import { isAlive } from '../../support/cli'
import { until } from '../../support/until'

jest.setTimeout(120_000)

let sandbox: Sandbox
const opened: RunTools[] = []
beforeAll(async () => {
  sandbox = await openSandbox({ lanes: 4 })
})
afterAll(() => sandbox.close())
afterEach(async () => {
  for (const tools of opened.splice(0)) await tools.close()
})

const config = (tools: object) =>
  parseConfig(recipeSchema, { name: 't', model: { from: 'directory', path: 'm' }, tools }, 'recipe t')
const brings: Pick<Recipe, 'tools' | 'toolFunctions'> = { tools: [pythonTool] }

async function open(tools: object, recipe = brings): Promise<RunTools> {
  const all = await openRunTools({ config: config(tools), recipe }, sandbox)
  opened.push(all)
  return all
}

const never = new AbortController().signal
const group = groupId('g')
const limits = (member = 0, timeoutMs = 8000) => ({ timeoutMs, trajectory: trajectoryId(group, member) })
const call = (
  tools: RunTools,
  name: string,
  args: object = {},
  how: Parameters<Tool>[1] = limits(),
): Promise<ToolOutcome> => tools.tools.get(name)!(args as Record<string, unknown>, how, never)

const server = (more: object = {}): McpServerConfig =>
  ({ command: process.execPath, args: [join(__dirname, '../../support/mcpServer.cjs')], ...more }) as McpServerConfig

/** A server of the SDK's on loopback, with a session a client. */
async function mcpOverHttp(at: number) {
  const sessions = new Map<string, StreamableHTTPServerTransport>()
  const begin = async () => {
    const transport: StreamableHTTPServerTransport = new StreamableHTTPServerTransport({
      sessionIdGenerator: randomUUID,
      onsessioninitialized: id => void sessions.set(id, transport),
    })
    const mcp = new McpServer({ name: 'test', version: '1' })
    const text = (value: unknown) => ({ content: [{ type: 'text' as const, text: String(value) }] })
    mcp.registerTool('twice', { inputSchema: { n: z.number() } }, async ({ n }) => text(2 * n))
    mcp.registerTool('fail', {}, async () => {
      throw new Error('no such thing')
    })
    await mcp.connect(transport as Transport)
    return transport
  }
  const server = createServer(async (request, response) => {
    const id = request.headers['mcp-session-id'] as string | undefined
    const transport = id === undefined ? await begin() : sessions.get(id)
    if (transport !== undefined) return await transport.handleRequest(request, response)
    response.writeHead(404, { 'content-type': 'application/json' })
    response.end('{"jsonrpc":"2.0","error":{"code":-32001,"message":"Session not found"},"id":null}')
  })
  await new Promise<void>(resolve => server.listen(at, '127.0.0.1', resolve))
  return {
    port: (server.address() as AddressInfo).port,
    sessions: () => sessions.size,
    forget: () => sessions.clear(),
    stop: () =>
      new Promise<void>(resolve => {
        server.close(() => resolve())
        server.closeAllConnections()
      }),
  }
}

describe('names', () => {
  test('a recipe has the tools that it brings; names choose among them and the built-in ones', async () => {
    expect((await open({})).schemas).toEqual([pythonTool])
    const both = await open({ names: [notebookTool.name, pythonTool.name] })
    expect([...both.tools.keys()]).toEqual([notebookTool.name, pythonTool.name])
    expect(await call(both, pythonTool.name, { code: 'print(1)', input: '' })).toMatchObject({
      status: 'ok',
      stdout: '1\n',
    })
    await expect(open({ names: ['python_notbook'] })).rejects.toThrow(
      "unknown tool 'python_notbook'; did you mean 'python_notebook'?",
    )
    const nameless = { tools: [{ name: 'search', description: '', parameters: { type: 'object', properties: {} } }] }
    await expect(open({}, nameless)).rejects.toThrow("the recipe's tool 'search' has no function")
    const negated = { type: 'object', properties: { query: { not: { type: 'number' } } } }
    const unchecked = {
      tools: [{ name: 'find', description: '', parameters: negated }],
      toolFunctions: { find: () => '' },
    }
    await expect(open({}, unchecked)).rejects.toMatchObject({
      code: 'config.bad_tool_schema',
      message: expect.stringMatching(/the tool 'find'.*not/),
    })
  })

  test('two tools of one name are refused', async () => {
    const twice = { a: server({ tools: ['pid'] }), b: server({ tools: ['pid'] }) }
    await expect(open({ mcp: twice })).rejects.toMatchObject({
      code: 'config.tool_twice',
      message: expect.stringContaining('(MCP: a, b)'),
    })
  })
})

describe('a notebook', () => {
  test('a cell sees the names of the cells before it, those of its own trajectory alone', async () => {
    const tools = await open({ names: [notebookTool.name] })
    const cell = (code: string, cells: string[], member = 0) =>
      call(tools, notebookTool.name, { code }, { ...limits(member), cells })
    expect(await cell('x = 40', [])).toMatchObject({ status: 'ok' })
    expect(await cell('x + 2', ['x = 40'])).toMatchObject({ status: 'ok', stdout: '42\n' })
    expect(await cell('x', [], 1)).toMatchObject({ status: 'error', stderr: expect.stringContaining('NameError') })
    expect(await cell('1/0', ['x = 40', 'x + 2'])).toMatchObject({
      status: 'error',
      stderr: expect.stringContaining('ZeroDivisionError'),
    })
    expect(await call(tools, notebookTool.name, { code: 1 })).toMatchObject({
      status: 'rejected',
      reason: 'code must be a string',
    })
  })

  test('is refused at the start of a run where the sandbox has no sessions, with the reason', async () => {
    const uncompiled = await openSandbox({ lanes: 1, noShim: true })
    const options = { config: config({ names: [notebookTool.name] }), recipe: brings }
    await expect(openRunTools(options, uncompiled)).rejects.toMatchObject({
      code: 'sandbox.level_unmet',
      message: expect.stringContaining('C compiler'),
    })
    await uncompiled.close()
  })

  test('an executor that does not know the session runs the recorded cells first', async () => {
    const tools = await open({ names: [notebookTool.name] })
    const how = { ...limits(7), cells: ['import math\nx = math.pi', 'y = 2 * x'] }
    expect(await call(tools, notebookTool.name, { code: 'round(y, 2)' }, how)).toMatchObject({
      status: 'ok',
      stdout: '6.28\n',
    })
  })
})

describe("a recipe's own functions", () => {
  const schema = (name: string, properties: object, required: string[] = []) => ({
    ...{ name, description: 'd' },
    parameters: { type: 'object', properties, required },
  })
  const recipe: typeof brings = {
    tools: [
      schema('add', { a: { type: 'number' }, b: { type: 'number' } }, ['a', 'b']),
      schema('hang', {}),
      schema('throw', {}),
      schema('who', {}),
    ],
    toolFunctions: {
      add: ({ a, b }) => ({ sum: (a as number) + (b as number) }),
      hang: () => new Promise(() => {}),
      throw: () => {
        throw new TypeError('not today')
      },
      who: (_args, { trajectory }) => trajectory,
    },
  }

  test("arguments are checked by the schema, results are text, faults and lateness are the call's own", async () => {
    const tools = await open({}, recipe)
    expect(await call(tools, 'add', { a: 1, b: 2 })).toMatchObject({ status: 'ok', stdout: '{"sum":3}' })
    expect(await call(tools, 'add', { a: 1, b: '2' })).toMatchObject({
      status: 'rejected',
      reason: expect.stringContaining('b: '),
    })
    expect(await call(tools, 'add', {})).toMatchObject({
      status: 'rejected',
      reason: expect.stringMatching(/a: .*; b: /),
    })
    expect(await call(tools, 'throw')).toMatchObject({ status: 'error', stderr: 'TypeError: not today' })
    expect(await call(tools, 'hang', {}, limits(0, 200))).toMatchObject({ status: 'timeout', timeoutMs: 200 })
    expect(await call(tools, 'who', {}, limits(3))).toMatchObject({ stdout: 'g/3' })
  })
})

test('every attempt of a call carries one idempotency key, another call another, to functions and to MCP servers alike', async () => {
  const parameters = { type: 'object', properties: {}, required: [] }
  const tools = await open(
    { mcp: { s: server({ tools: ['key'] }) } },
    {
      tools: [{ name: 'own', description: 'd', parameters }],
      toolFunctions: { own: (_args, { idempotencyKey }) => idempotencyKey },
    },
  )
  const port = toolPort(tools.tools, executorId('x'), systemEffects, runId('r'))
  const told = async (tool: string, change: Partial<ExecuteTool> = {}): Promise<string> => {
    const ask = {
      type: 'tool.execute',
      trajectory: trajectoryId(group, 2),
      turn: 1,
      call: 0,
      attempt: 0,
      epoch: epoch(0),
    } as const
    const reply = await port({ ...ask, tool, arguments: {}, timeoutMs: 20_000, responseChars: 500, ...change }, never)
    return (reply!.facts[0] as { stdout: string }).stdout
  }
  for (const tool of tools.schemas.map(({ name }) => name)) {
    expect(await told(tool)).toBe('r/g/2#1#0')
    expect(await told(tool, { attempt: 1, epoch: epoch(7) })).toBe('r/g/2#1#0')
    expect(await told(tool, { call: 1 })).toBe('r/g/2#1#1')
    expect(await told(tool, { turn: 2 })).toBe('r/g/2#2#0')
  }
})

describe('what the model reads of a call', () => {
  const ask = async (tool: string, args: Readonly<Record<string, unknown>>, timeoutMs = 10_000) => {
    const { tools } = await open({ names: [pythonTool.name, notebookTool.name] })
    const place = { trajectory: trajectoryId(group, 5), turn: 0, call: 0, attempt: 0, epoch: epoch(0) }
    const port = toolPort(tools, executorId('x'), systemEffects)
    const reply = await port(
      { type: 'tool.execute', ...place, tool, arguments: args, timeoutMs, responseChars: 2000 },
      never,
    )
    return reply!.facts[0]!
  }
  const both = [
    [pythonTool.name, { input: '' }],
    [notebookTool.name, {}],
  ] as const

  test.each(both)('%s: output, no output, an error and a timeout', async (tool, rest) => {
    const texts = ['print(6 * 7)', 'x = 5', '1 / 0', 'import sys; print("half"); sys.exit(3)'].map(
      async code => (await ask(tool, { code, ...rest })) as { text: string },
    )
    expect((await Promise.all(texts)).map(({ text }) => text)).toEqual([
      'Tool call success\nstdout: 42',
      'Tool call success',
      'Tool call failure\nreason: exit code 1\nstderr: ZeroDivisionError at line 1: division by zero\n  1 / 0',
      'Tool call failure\nreason: exit code 3\nstdout: half',
    ])
    const late = { code: 'print("first", flush=True)\nwhile True: pass', ...rest }
    expect(await ask(tool, late, 500)).toMatchObject({
      status: 'timeout',
      text: 'Tool call failure\nreason: timeout, not done within 0.5s\nstdout: first',
    })
  })

  test.each(both)('%s: code that segfaults is said to be killed by that signal', async (tool, rest) => {
    const code =
      'import ctypes, sys\nprint("before", flush=True)\nprint("so far", file=sys.stderr, flush=True)\nctypes.string_at(0)'
    expect(await ask(tool, { code, ...rest })).toMatchObject({
      status: 'error',
      text: 'Tool call failure\nreason: killed by SIGSEGV\nstdout: before\nstderr: so far',
      stdout: 'before\n',
      stderr: 'so far\n',
      exitCode: null,
      signal: 'SIGSEGV',
    })
  })

  test.each(both)('%s: code that the sandbox refuses is given its reason', async (tool, rest) => {
    const fact = await ask(tool, { code: 'x = "\ud800"', ...rest })
    expect(fact).toMatchObject({ status: 'error', stdout: '', stderr: '', exitCode: null })
    expect((fact as { text: string }).text).toMatch(/^Tool call failure\nreason: code must be Unicode text; .*$/)
    expect(fact).not.toHaveProperty('signal')
  })
})

describe('MCP', () => {
  test('a server from npm offers its tools with their schemas, and answers calls that are made at once', async () => {
    const entry = require.resolve('@modelcontextprotocol/server-everything/dist/index.js')
    const everything = { command: process.execPath, args: [entry, 'stdio'] }
    const schemas = await toolSchemas({ config: config({ mcp: { everything } }), recipe: { tools: [pythonTool] } })
    expect(schemas[0]).toEqual(pythonTool)
    expect(schemas.find(({ name }) => name === 'echo')).toMatchObject({
      parameters: { type: 'object', properties: { message: { type: 'string' } }, required: ['message'] },
    })
    const tools = await open({ mcp: { everything: { ...everything, tools: ['echo', 'get-sum'] } } })
    expect(tools.schemas.map(({ name }) => name)).toEqual([pythonTool.name, 'echo', 'get-sum'])
    const echoes = Array.from({ length: 20 }, (_, n) => call(tools, 'echo', { message: `m${n}` }))
    const [sum, ...outcomes] = await Promise.all([call(tools, 'get-sum', { a: 2, b: 40 }), ...echoes])
    expect(sum).toMatchObject({ status: 'ok', stdout: expect.stringContaining('42') })
    expect(outcomes.map(({ stdout }) => stdout)).toEqual(echoes.map((_, n) => expect.stringContaining(`m${n}`)))
    expect(await call(tools, 'echo', { massage: 1 })).toMatchObject({ status: 'error' })
  })

  test('a server that dies is an error of its calls, which says so, and is started again for the next', async () => {
    const tools = await open({ mcp: { s: server() } })
    const first = Number((await call(tools, 'pid')).stdout)
    expect(await call(tools, 'twice', { n: 21 })).toMatchObject({ status: 'ok', stdout: '42' })
    expect(await call(tools, 'fail')).toMatchObject({
      status: 'error',
      stderr: expect.stringContaining('no such thing'),
    })
    expect(await call(tools, 'picture')).toMatchObject({
      status: 'ok',
      stdout: '[image image/png, 4 characters of base64]',
    })
    const both = await Promise.all([call(tools, 'slow', { ms: 5000 }), call(tools, 'die')])
    for (const outcome of both) {
      expect(outcome).toMatchObject({
        status: 'error',
        reason: expect.stringContaining("the server 's' ended; the end of its stderr: out of luck"),
      })
    }
    const second = Number((await call(tools, 'pid')).stdout)
    expect(second).not.toBe(first)
    process.kill(second, 'SIGKILL')
    await until(() => !isAlive(second))
    await until(async () => (await call(tools, 'pid')).status === 'ok')
  })

  test('a server by URL that went away, or forgot our session, costs the calls meanwhile; the next one connects anew', async () => {
    let http = await mcpOverHttp(0)
    const said: string[] = []
    const log = { warn: (_: object, text: string) => said.push(text) }
    const mcp = { s: { url: `http://127.0.0.1:${http.port}/mcp` } }
    const tools = await openRunTools({ config: config({ mcp }), recipe: brings, log } as never, sandbox)
    opened.push(tools)
    try {
      expect(await call(tools, 'twice', { n: 21 })).toMatchObject({ status: 'ok', stdout: '42' })
      // What the server itself says of a call is no reason to leave it.
      expect(await call(tools, 'twice', { m: 1 })).toMatchObject({ status: 'error' })
      expect(await call(tools, 'fail')).toMatchObject({ status: 'error', reason: 'the tool failed' })
      expect([http.sessions(), said]).toEqual([1, []])

      http.forget()
      expect(await call(tools, 'twice', { n: 1 })).toMatchObject({
        status: 'error',
        reason: expect.stringMatching(/^the server 's' ended \(.*Session not found.*\); it is started again$/s),
      })
      expect(said).toEqual(['an MCP server ended; it is started again for the next call'])
      expect(await call(tools, 'twice', { n: 2 })).toMatchObject({ status: 'ok', stdout: '4' })

      await http.stop()
      const gone = [await call(tools, 'twice', { n: 3 }), await call(tools, 'twice', { n: 3 })]
      expect(gone).toMatchObject([
        { status: 'error', reason: expect.stringContaining('it is started again') },
        { status: 'error', reason: expect.stringContaining("the server 's' cannot be started") },
      ])
      http = await mcpOverHttp(http.port)
      expect(await call(tools, 'twice', { n: 4 })).toMatchObject({ status: 'ok', stdout: '8' })
    } finally {
      await tools.close()
      await http.stop()
    }
  })

  test('one that is late costs that call its deadline; it goes on where it lives, and is ended where it stands still', async () => {
    const tools = await open({ mcp: { s: server() } })
    const pid = (await call(tools, 'pid')).stdout
    expect(await call(tools, 'slow', { ms: 60_000 }, limits(0, 300))).toMatchObject({ status: 'timeout' })
    expect((await call(tools, 'pid')).stdout).toBe(pid)
    expect(await call(tools, 'hang', {}, limits(0, 300))).toMatchObject({ status: 'timeout' })
    await until(() => !isAlive(Number(pid)), 15_000)
    await until(async () => (await call(tools, 'pid')).status === 'ok', 15_000)
    expect((await call(tools, 'pid')).stdout).not.toBe(pid)
  })

  test('one that is being started again costs a call no more than its deadline, and ends with its signal', async () => {
    const directory = mkdtempSync(join(tmpdir(), 'troupe-mcp-'))
    const deaf = join(directory, 'deaf')
    try {
      const tools = await open({ mcp: { s: server({ env: { DEAF_WHILE: deaf }, startTimeoutMs: 5000 }) } })
      writeFileSync(deaf, '')
      expect(await call(tools, 'die')).toMatchObject({ status: 'error' })
      expect(await call(tools, 'pid', {}, limits(0, 300))).toMatchObject({ status: 'timeout', timeoutMs: 300 })
      const stop = new AbortController()
      setTimeout(() => stop.abort(new Error('enough')), 100)
      await expect(tools.tools.get('pid')!({}, limits(), stop.signal)).rejects.toThrow('enough')
      rmSync(deaf)
      await until(async () => (await call(tools, 'pid')).status === 'ok', 30_000)
    } finally {
      rmSync(directory, { recursive: true })
    }
  })

  test('one that is killed as it starts, or before it has said which tools it offers, is started again', async () => {
    const directory = mkdtempSync(join(tmpdir(), 'troupe-mcp-'))
    const { command, args } = server() as { command: string; args: string[] }
    const onceKilled = (name: string) => `mkdir ${join(directory, name)} 2>/dev/null && kill -9 $$`
    try {
      const early = { command: 'sh', args: ['-c', `${onceKilled('early')}; exec "$@"`, 'sh', command, ...args] }
      const listing = server({ env: { KILLED_WHILE_LISTING: join(directory, 'listing') } })
      for (const s of [early, listing] as McpServerConfig[]) {
        const tools = await open({ mcp: { s } })
        expect(await call(tools, 'twice', { n: 21 })).toMatchObject({ status: 'ok', stdout: '42' })
      }
      expect(readdirSync(directory).sort()).toEqual(['early', 'listing'])
      const always = { command: 'sh', args: ['-c', `echo >> ${join(directory, 'starts')}; kill -9 $$`] }
      await expect(open({ mcp: { s: always as McpServerConfig } })).rejects.toMatchObject({ code: 'config.mcp_failed' })
      expect(readFileSync(join(directory, 'starts'), 'utf8')).toBe('\n\n\n')
    } finally {
      rmSync(directory, { recursive: true })
    }
  })

  test('one that cannot be started, never answers, or lacks a tool ends the run at its start; nothing of it stays', async () => {
    await expect(open({ mcp: { s: { command: '/no/such/program' } } })).rejects.toMatchObject({
      code: 'config.mcp_failed',
    })
    await expect(open({ mcp: { s: server({ env: { MODE: 'deaf' }, startTimeoutMs: 500 }) } })).rejects.toThrow(
      "the MCP server 's' cannot be used",
    )
    await expect(open({ mcp: { s: server({ tools: ['thrice'] }) } })).rejects.toThrow(
      'the server offers no tool thrice; its tools: pid, key, twice',
    )
    await expect(
      open({ mcp: { s: { command: process.execPath, args: ['-e', 'console.error("bad day"); process.exit(1)'] } } }),
    ).rejects.toThrow('bad day')
  })
})
