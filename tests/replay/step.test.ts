/** `replay run --step --break`: a person, a pipe or nobody says how a replay goes on. */
import { spawn } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Message } from '../../messages/topics'
import { conditionOf } from '../../replay/rerun/breakpoint'
import { changed, quickstartHistory, saveHistory } from '../support/histories'

jest.setTimeout(60_000)

const directory = mkdtempSync(join(tmpdir(), 'troupe-step-'))
afterAll(() => rmSync(directory, { recursive: true, force: true }))
const history = quickstartHistory()
const bin = join(__dirname, '../../cli/bin.js')
beforeAll(() => saveHistory(directory, history))

interface Said {
  readonly code: number | null
  readonly stdout: string
  readonly stderr: string
}

function started(command: string, args: readonly string[], input: string): Promise<Said> {
  const child = spawn(command, args, { stdio: ['pipe', 'pipe', 'pipe'] })
  let [stdout, stderr] = ['', '']
  child.stdout.on('data', chunk => {
    stdout += chunk
  })
  child.stderr.on('data', chunk => {
    stderr += chunk
  })
  child.stdin.on('error', () => {})
  child.stdin.end(input)
  return new Promise(resolve => child.once('close', code => resolve({ code, stdout, stderr })))
}
const argsOf = (args: readonly string[], at = directory) => ['replay', 'run', ...args, '--bus', `lmdb:${at}`]
const piped = (input: string, ...args: readonly string[]) => started(process.execPath, [bin, ...argsOf(args)], input)
const places = (text: string) => text.match(/^(?:break )?\w+:\d+:\d+/gm) ?? []

/** On a terminal of its own: each line is typed when a prompt stands there. */
const onTerminal = `
import os, pty, sys
lines = sys.argv[1].split(',')
pid, terminal = pty.fork()
if pid == 0:
    os.execv(sys.argv[2], sys.argv[2:])
seen = b''
answered = 0
while True:
    try:
        part = os.read(terminal, 65536)
    except OSError:
        break
    if not part:
        break
    seen += part
    while answered < len(lines) and seen.count(b'(q)uit > ') > answered:
        os.write(terminal, (lines[answered] + '\\n').encode() if lines[answered] != '^C' else b'\\x03')
        answered += 1
sys.stdout.buffer.write(seen)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
`

test('steps go through the facts of one trajectory in their order, with what is decided upon each', async () => {
  const { code, stdout } = await piped('n\n\nn\nc\n', 's0001.0000/0', '--step')
  expect(code).toBe(0)
  const lines = stdout.split('\n')
  expect(places(stdout)).toHaveLength(4)
  expect(lines[0]).toContain('rollout.requested s0001.0000/0')
  expect(lines[1]).toMatch(/decides turn\.asked {8}s0001\.0000\/0#0/)
  expect(stdout).toContain("as today's code decides")
  expect(stdout).toContain('no decision differs')
})

test('a break stops where it holds, and the prompt prints fields, state and a changed break', async () => {
  const commands = ['p status', 's', 'p tokens.length', 'b type == "reward.assigned"', 'c', 'p reward', 'p rewrd', 'q']
  const { stdout, stderr } = await piped(
    `${commands.join('\n')}\n`,
    's0001.0000/0',
    '--break',
    'type == "tool.completed" && status == "error"',
  )
  const [first, status, state, length, second, reward] = stdout.split('\n').filter(line => !line.includes('decides'))
  expect(first).toMatch(/^break trajectories:0:241 +tool\.completed/)
  expect(status).toBe('  "error"')
  expect(JSON.parse(state!)).toMatchObject({ phase: 'append', turn: 0, toolCalls: 1, toolErrors: 1 })
  expect(length).toBe('  undefined')
  expect(second).toMatch(/^break trajectories:0:560 +reward\.assigned/)
  expect(reward).toBe('  1')
  expect(stderr).toContain("did you mean 'reward'?")
  expect(stderr).toContain('the replay was stopped here: later facts were not replayed')
})

test('at the end of a pipe every break is printed and nothing waits', async () => {
  const failed = history.records.filter(r => r.message.type === 'tool.completed' && r.message.status !== 'ok')
  const { code, stdout } = await piped('', '--all', '--break', 'type == "tool.completed" && status != "ok"')
  expect(places(stdout)).toHaveLength(failed.length)
  expect(code).toBe(0)
  const steps = await piped('', '--all', '--break', 'type == "step.completed" && metrics.loss < 0')
  expect(places(steps.stdout)).toEqual(['break learner:0:4', 'break learner:0:8', 'break learner:0:11'])
  const json = await piped('', '--all', '--json', '--break', 'reward < 0.5')
  const lines = json.stdout
    .trim()
    .split('\n')
    .map(line => JSON.parse(line) as Record<string, unknown>)
  const wrong = history.records.filter(r => r.message.type === 'reward.assigned' && r.message.reward < 0.5)
  expect(lines.filter(line => line.type === 'stop')).toHaveLength(wrong.length)
  expect(lines.at(-1)).toMatchObject({ run: history.run, divergences: [] })
  expect((await piped('', '--all', '--break', 'reward > 7')).stderr).toContain("'reward > 7' held for no fact")
})

test('a break on what differs stops at the decision that today’s code would not take', async () => {
  const at = join(directory, 'tampered')
  let told = false
  const other = (m: Message): Message => {
    if (m.type !== 'rollout.finished' || told) return m
    told = true
    return { ...m, answerTags: 7 }
  }
  await saveHistory(at, changed(history, other))
  const { code, stdout } = await started(process.execPath, [bin, ...argsOf(['--all', '--break', 'differs'], at)], '')
  expect(places(stdout)[0]).toMatch(/^break trajectories:0:\d+/)
  expect(stdout).toContain('"answerTags":7')
  expect(code).toBe(1)
})

test('on a terminal it prompts, takes what is typed, and ends with q, Ctrl-C or the end of input', async () => {
  const typed = (lines: string, ...args: readonly string[]) =>
    started('python3', ['-c', onTerminal, lines, process.execPath, bin, ...argsOf(args)], '')
  const quit = await typed('n,p turn,q', 's0001.0000/0', '--step')
  expect(quit.stdout).toContain('(n)ext (c)ontinue (b)reak (p)rint (s)tate (q)uit > ')
  expect(quit.stdout).toContain('turn.asked')
  expect(quit.stdout).toContain('stopped')
  expect(quit.code).toBe(0)
  const interrupted = await typed('n,^C', 's0001.0000/0', '--step')
  expect(interrupted.stdout).toContain('stopped')
  const through = await typed('c,c,c,c,c,c,c,c,c', 's0001.0000/0', '--break', 'type == "turn.completed"')
  expect(through.stdout).toContain('no decision differs')
})

test('an expression that cannot be read, or names what no fact has, is refused before anything is read', async () => {
  const { code, stderr } = await piped('', '--all', '--break', 'typ == "x"')
  expect(code).toBe(2)
  expect(stderr).toContain("no fact has a field 'typ'; did you mean 'type'?")
  for (const text of ['', 'reward <', 'reward = 1', 'a.b', '[1', 'reward < 1 &&', 'constructor', '__proto__']) {
    expect(() => conditionOf(text)).toThrow(expect.objectContaining({ code: 'replay.bad_expression' }))
  }
})

test('an expression reads fields and calls nothing', () => {
  const [message] = history.records.flatMap(r => (r.message.type === 'tool.completed' ? [r.message] : []))
  const stop = {
    entry: { message: message!, topic: 'trajectories', partition: 0, offset: 7, timestamp: 1 } as const,
    decides: ['turn.asked'],
    differs: false,
  }
  const holds = (text: string) => conditionOf(text).holds(stop)
  expect(holds('offset == 7 && type == "tool.completed" && "turn.asked" in decides')).toBe(true)
  expect(holds('reward < 0.5')).toBe(false)
  expect(holds('reward < 0.5 || turn >= 0')).toBe(true)
  expect(holds('!(turn >= 0)')).toBe(false)
  expect(holds('wallMs > 1000000')).toBe(false)
  expect(() => conditionOf('type.constructor("return 1")()')).toThrow(
    expect.objectContaining({ code: 'replay.bad_expression' }),
  )
})
