/**
 * Tasks of several steps, and MCP servers of a task, in the environment of a rollout: what `submit` does between two
 * steps.
 */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { environmentTool } from '../../../actors/tools/environmentTool'
import { environmentGrader } from '../../../actors/verification/environmentGrader'
import { environmentSettings } from '../../../config'
import { RolloutEnvironments } from '../../../environments'
import type { PastCall, TaskEnvironment } from '../../../messages/facts'
import type { TrajectoryId } from '../../../messages/ids'
import { terminalTasks } from '../../../recipes/terminal/tasks'
import { systemEffects } from '../../../runtime/effects'
import { requested } from '../../support/facts'

jest.setTimeout(60_000)
const isRoot = process.platform === 'linux' && process.geteuid?.() === 0
const inEnvironment = isRoot ? describe : describe.skip

const root = mkdtempSync(join(tmpdir(), 'troupe-steps-'))
const timeoutMs = 20_000
let environments: RolloutEnvironments
beforeAll(() => {
  environments = new RolloutEnvironments({
    ...{ run: 'steps', epoch: 0, fx: systemEffects, directory: join(root, 'store'), live: 4, idleMs: 60_000 },
    snapshotMb: 256,
  })
})
afterAll(async () => {
  await environments.close()
  rmSync(root, { recursive: true, force: true })
})

/** An MCP server that counts its calls in a file, in the SDK's line protocol; like some, it writes `error: null`. */
const counter = `import json, os, sys
for line in sys.stdin:
    ask = json.loads(line)
    if 'id' not in ask:
        continue
    if ask['method'] == 'initialize':
        result = {'protocolVersion': ask['params']['protocolVersion'], 'capabilities': {}, 'serverInfo': {'name': 'counter', 'version': '1'}}
    elif ask['method'] == 'tools/list':
        result = {'tools': [{'name': 'add', 'description': 'Adds to the count.', 'inputSchema': {'type': 'object'}}]}
    elif ask['params']['name'] != 'add':
        print(json.dumps({'jsonrpc': '2.0', 'id': ask['id'], 'error': {'code': -32602, 'message': 'no such tool'}}), flush=True)
        continue
    else:
        count = (int(open('/app/count').read()) if os.path.exists('/app/count') else 0) + ask['params']['arguments']['by']
        open('/app/count', 'w').write(str(count))
        result = {'content': [{'type': 'text', 'text': 'it\\'s ' + str(count)}]}
    print(json.dumps({'jsonrpc': '2.0', 'id': ask['id'], 'result': result, 'error': None}), flush=True)
`
const judge = (test: string) => `#!/bin/sh\nif ${test}; then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n`
const server =
  '[[environment.mcp_servers]]\nname = "counter"\ntransport = "stdio"\ncommand = "python3"\nargs = ["/opt/counter.py"]\n'

async function taskOf(change: Readonly<Record<string, string>> = {}, toml = '') {
  const files = {
    'task.toml': `multi_step_reward_strategy = "mean"\n${toml}[[steps]]\nname = "write"\n[[steps]]\nname = "append"\n`,
    'environment/Dockerfile': 'FROM ubuntu:24.04\nCOPY counter.py /opt/counter.py\nWORKDIR /app\n',
    'environment/counter.py': counter,
    'steps/write/instruction.md': 'Write one to /app/a.\n',
    'steps/write/tests/test.sh': judge('[ "$(cat /app/a)" = one ]'),
    'steps/append/instruction.md': 'Append two to /app/a.\n',
    'steps/append/workdir/given.txt': 'for step 2\n',
    'steps/append/tests/test.sh': judge('[ "$(cat /app/a | tr "\\n" " ")" = "one two " ] && [ -e /app/given.txt ]'),
    ...change,
  }
  const directory = mkdtempSync(join(root, 'task-'))
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(dirname(join(directory, name)), { recursive: true })
    writeFileSync(join(directory, name), text)
  }
  return (await terminalTasks(directory, '', { ...environmentSettings(undefined), driver: 'local' }))[0]!
}

/** A rollout that is driven by hand: each call finds the calls before it, as the coordinator sends them. */
function rolloutOf(task: TaskEnvironment, name: string, past: readonly PastCall[] = [], againMs = timeoutMs) {
  const calls = [...past]
  return {
    calls,
    async call(tool: string, args: Readonly<Record<string, unknown>> = {}) {
      const at = { task, calls: [...calls], timeoutMs: againMs }
      const run = environmentTool(tool, async () => environments)
      const limits = { timeoutMs, trajectory: name as TrajectoryId, environment: at }
      const outcome = await run(args, limits, new AbortController().signal)
      const { files, step } = outcome
      calls.push({ tool, arguments: args, snapshot: files?.snapshot ?? null, ...(step === undefined ? {} : { step }) })
      return outcome
    },
    grade: () =>
      environmentGrader(async () => environments, {})(
        { response: '', truth: '', task: requested('g', 0).task, environment: { task, calls, timeoutMs } },
        new AbortController().signal,
      ),
  }
}

inEnvironment('a task of two steps', () => {
  test('`submit` judges the first step, brings the second instruction and its files, and the reward is the mean', async () => {
    const { environment: task, messages } = await taskOf()
    expect(messages.at(-1)?.content).toBe('Write one to /app/a.')
    expect(task.steps?.count).toBe(2)
    const rollout = rolloutOf(task, 'g/0')
    await rollout.call('bash', { command: 'sleep 1000 & echo one > a' })
    const between = await rollout.call('submit')
    expect(between).toMatchObject({ status: 'ok', step: { name: 'write', rewards: { reward: 1 }, over: false } })
    expect(between.stdout).toBe('Step 1 of 2 is over. Step 2:\nAppend two to /app/a.\n')
    const seen = await rollout.call('bash', {
      command: 'cat a given.txt; ls -A /tests /logs/verifier; pgrep -f "[s]leep 1000" || echo none:$?',
    })
    expect(seen.stdout).toBe('one\nfor step 2\n/logs/verifier:\nnone:1\n')
    expect(await rollout.grade()).toMatchObject({
      reward: 0.5,
      why: expect.stringContaining('step write: 1; step append: 0'),
    })
    await rollout.call('bash', { command: 'echo two >> a' })
    expect(await rollout.call('submit')).toEqual(expect.not.objectContaining({ step: expect.anything() }))
    expect(await rollout.grade()).toMatchObject({ reward: 1 })
    // Another process goes on from the recorded calls, without the snapshots of this one.
    const calls = rollout.calls.slice(0, 2).map(call => ({ ...call, snapshot: call.snapshot && 'f'.repeat(64) }))
    const again = rolloutOf(task, 'g/1', calls)
    expect((await again.call('bash', { command: 'cat a given.txt' })).stdout).toBe('one\nfor step 2\n')
  })

  test('a step that is ended again after a loss of snapshots has the time of its verifier, not that of a tool', async () => {
    const slow = { 'steps/write/tests/test.sh': judge('sleep 2 && [ "$(cat /app/a)" = one ]') }
    const task = (await taskOf(slow)).environment
    const rollout = rolloutOf(task, 'g/5')
    await rollout.call('bash', { command: 'echo one > a' })
    await rollout.call('submit')
    const calls = rollout.calls.map(call => ({ ...call, snapshot: call.snapshot && 'f'.repeat(64) }))
    const again = rolloutOf(task, 'g/6', calls, 1000)
    expect((await again.call('bash', { command: 'cat a given.txt' })).stdout).toBe('one\nfor step 2\n')
  })

  test('a rollout that ends in the first step is judged in both, as one that did nothing in the second', async () => {
    const rollout = rolloutOf((await taskOf()).environment, 'g/2')
    await rollout.call('bash', { command: 'echo one > a' })
    expect(await rollout.grade()).toMatchObject({ reward: 0.5 })
  })

  test('a first step below its min_reward, or without a reward, is the last', async () => {
    const steps = '[[steps]]\nname = "write"\nmin_reward = 1.0\n[[steps]]\nname = "append"\n'
    const gated = rolloutOf((await taskOf({ 'task.toml': steps })).environment, 'g/3')
    expect(await gated.call('submit')).toMatchObject({ stdout: '', step: { rewards: { reward: 0 }, over: true } })
    expect(await gated.grade()).toMatchObject({ reward: 0 })
    const silent = { 'steps/write/tests/test.sh': '#!/bin/sh\ntrue\n' }
    const broken = rolloutOf((await taskOf(silent)).environment, 'g/4')
    expect(await broken.call('submit')).toMatchObject({
      status: 'ok',
      step: { over: true, fault: { how: 'task.no_reward' } },
    })
    expect(await broken.grade()).toMatchObject({ reward: null, how: 'task.no_reward' })
  })
})

test('`submit` in the last step starts no environment', async () => {
  const run = environmentTool('submit', async () => {
    throw new Error('an environment was started')
  })
  const end = { name: 'write', rewards: { reward: 1 }, over: false }
  const call = async (calls: readonly PastCall[]) => {
    const at = { task: (await taskOf()).environment, calls, timeoutMs }
    const limits = { timeoutMs, trajectory: 'g/9' as TrajectoryId, environment: at }
    return run({}, limits, new AbortController().signal)
  }
  await expect(call([])).rejects.toThrow(/was started/)
  const ended = { tool: 'submit', arguments: {}, snapshot: null, step: end }
  expect(await call([ended])).toMatchObject({ status: 'ok', exitCode: 0 })
})

inEnvironment('an MCP server of a task', () => {
  test('is named in the prompt, runs in the environment, and what it changes is in the snapshot', async () => {
    const { environment: task, messages } = await taskOf({}, server)
    expect(messages.at(-1)?.content).toContain('MCP servers of this task: counter.')
    const rollout = rolloutOf(task, 'm/0')
    expect(await rollout.call('mcp', { server: 'counter' })).toMatchObject({
      status: 'ok',
      stdout: expect.stringContaining('add: Adds to the count.'),
    })
    const add = { server: 'counter', tool: 'add', arguments: { by: 2 } }
    expect(await rollout.call('mcp', add)).toMatchObject({ status: 'ok', stdout: "it's 2", files: { changes: 1 } })
    expect(await rollout.call('mcp', add)).toMatchObject({ stdout: "it's 4" })
    const other = await rollout.call('mcp', { server: 'counter', tool: 'other' })
    expect(other).toMatchObject({ status: 'error', reason: 'no such tool' })
    const unknown = await rollout.call('mcp', { server: 'x' })
    expect(unknown).toMatchObject({ status: 'rejected', reason: 'server must be one of: counter' })
  })

  test('that ends fails its call with its last words, and one over HTTP is refused at the start', async () => {
    const broken = await taskOf({ 'environment/counter.py': 'raise SystemExit("no licence")\n' }, server)
    const ended = await rolloutOf(broken.environment, 'm/1').call('mcp', { server: 'counter' })
    expect(ended).toMatchObject({ status: 'error', reason: 'the MCP server counter ended without an answer' })
    expect(ended.stderr).toContain('no licence')
    const absent = '[[environment.mcp_servers]]\nname = "counter"\ntransport = "stdio"\ncommand = "no-such-program"\n'
    const missing = rolloutOf((await taskOf({}, absent)).environment, 'm/2')
    for (let n = 0; n < 5; n++)
      expect(await missing.call('mcp', { server: 'counter' })).toMatchObject({
        reason: 'the MCP server counter ended without an answer',
        stderr: expect.stringMatching(/no-such-program.*not found/),
      })
    const left = await missing.call('bash', { command: 'ls -d /tmp/tmp.* 2>/dev/null; true' })
    expect(left.stdout).toBe('')
    const http = '[[environment.mcp_servers]]\nname = "far"\ntransport = "http"\nurl = "http://far/mcp"\n'
    await expect(taskOf({}, http)).rejects.toThrow(
      /MCP server far \(streamable-http\): only servers with the transport stdio/,
    )
  })
})
