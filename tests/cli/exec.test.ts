/** `troupe exec --jsonl`, driven as a command: lines in, lines out. */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { resolve } from 'node:path'

const root = resolve(__dirname, '../..')
const program = `
require('./cli/register.js')
const { Command } = require('commander')
const program = new Command().exitOverride()
require('./cli/exec/index.ts').registerExec(program)
program.parseAsync(process.argv.slice(1), { from: 'user' }).catch(error => { process.exitCode = error.exitCode ? 2 : 1 })`

interface Answer extends Record<string, unknown> {
  readonly id: unknown
  readonly status: string
}

test('every line is answered once, as it finishes, with the fields of the contract', async () => {
  const { code, answers } = await exec([
    { id: 'slow', code: 'import time; time.sleep(1.5); print("slow")' },
    { id: 1, code: 'print(input())', stdin: 'é😀' },
    { id: 'bad', code: 'import sys; print("x", file=sys.stderr); sys.exit(4)' },
    { id: 'late', code: 'while True: pass', timeoutMs: 300 },
    { id: 'dead', code: 'import os; os.abort()' },
  ])
  expect(code).toBe(0)
  expect(answers).toHaveLength(5)
  expect(answers.findIndex(answer => answer.id === 'slow')).toBeGreaterThan(
    answers.findIndex(answer => answer.id === 1),
  )
  const fields = 'id status exitCode signal stdout stderr stdoutBytes stderrBytes wallMs cpuMs maxRssBytes'.split(' ')
  for (const answer of answers) expect(Object.keys(answer)).toEqual(fields)
  expect(byId(answers, 1)).toMatchObject({ status: 'ok', exitCode: 0, signal: null, stdout: 'é😀\n', stdoutBytes: 7 })
  expect(byId(answers, 'bad')).toMatchObject({ status: 'error', exitCode: 4, stderr: 'x\n' })
  expect(byId(answers, 'late')).toMatchObject({ status: 'timeout', exitCode: null, signal: 'SIGKILL' })
  // As PID 1 of its namespace it cannot be ended by its own SIGABRT, so abort() goes on to a faulting instruction.
  expect(byId(answers, 'dead')).toMatchObject({ status: 'killed', exitCode: null, signal: 'SIGSEGV' })
})

test('--require-level is kept: an unknown level is wrong usage, a level below it is not taken', async () => {
  expect((await exec([{ id: 1, code: 'print(1)' }], ['--require-level', 'complete'])).code).toBe(2)
  // Without user namespaces and root, as in a container with Docker's own profile, `full` is not reached.
  const { code, answers } = await exec([{ id: 1, code: 'print(1)' }], ['--require-level', 'none'])
  expect([code, answers.length]).toEqual([0, 1])
})

test('a line that cannot run is rejected with the reason, and the others run', async () => {
  const { code, answers } = await exec([
    'no json',
    '[1]',
    '',
    '{"id":"half',
    { code: 'print(1)' },
    { id: 'a' },
    { id: 'b', code: 5 },
    { id: 'c', code: '1', stdln: 'x' },
    { id: 'd', code: '1', encoding: 'latin1' },
    { id: 'e', code: '1', timeoutMs: -1 },
    { id: 'f', code: `#${'é'.repeat(4 * 1024 * 1024)}` },
    { id: 'g', code: '1', __proto__x: 1 },
    { id: 'h', code: '1', memoryMb: '512' },
    { id: 'i', code: 'print("fine")', stdin: null },
  ])
  expect(code).toBe(0)
  expect(answers).toHaveLength(13)
  expect(byId(answers, 'i')).toMatchObject({ status: 'ok', stdout: 'fine\n' })
  const reasons = answers.filter(answer => answer.status === 'rejected').map(({ id, reason }) => `${id}: ${reason}`)
  expect(reasons.sort()).toEqual([
    'a: code is missing',
    'b: code must be a string',
    'c: unknown field "stdln"; did you mean \'stdin\'?',
    'd: encoding must be "utf8" or "base64"',
    'e: timeoutMs must be a whole number from 1 to 3600000, not -1',
    'f: code of 8388609 bytes is over the limit of 8388608',
    expect.stringMatching(/^g: unknown field "__proto__x"; known fields: id, code/),
    'h: memoryMb must be a number',
    'null: a line must be a JSON object',
    'null: id is missing',
    expect.stringContaining('null: not JSON: '),
    expect.stringContaining('null: not JSON: '),
  ])
})

test('a line that is no Unicode text is rejected with the byte that is none, and the others run', async () => {
  const child = start([])
  const out = collect(child)
  child.stderr!.resume()
  child.stdin!.write(Buffer.from('{"id":"a","code":"print(\'\xe9\')"}\n', 'latin1'))
  child.stdin!.write('{"id":"b","code":"print(1)","stdin":"\\ud800"}\n{"id":"\\udfff","code":"1"}\n')
  child.stdin!.end('{"id":"c","code":"print(\'é\')"}')
  expect(await ended(child)).toBe(0)
  const answers = answersOf(await out)
  expect(answers).toHaveLength(4)
  expect(byId(answers, 'a')).toMatchObject({ status: 'rejected', reason: expect.stringContaining('the byte 0xe9') })
  expect(byId(answers, 'b').reason).toBe(
    'stdin must be Unicode text; at character 0 it has half of a surrogate pair, U+D800',
  )
  expect(byId(answers, null).reason).toContain('id must be Unicode text')
  expect(byId(answers, 'c')).toMatchObject({ status: 'ok', stdout: 'é\n' })
})

test('a reader that reads nothing stops the reading of lines, and memory stays bounded', async () => {
  const child = start(['--max-output', '4000000'])
  child.stdout!.pause()
  child.stderr!.resume()
  child.stdin!.on('error', () => undefined)
  const line = `${JSON.stringify({ id: 1, code: `print("x" * 4_000_000) #${'y'.repeat(300_000)}` })}\n`
  let written = 0
  const feed = () => {
    while (written < 4000 && child.stdin!.write(line)) written++
  }
  child.stdin!.on('drain', feed)
  feed()
  const rss = () => Number(/VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${child.pid}/status`, 'utf8'))?.[1]) / 1024
  await new Promise(resolve => setTimeout(resolve, 5000))
  expect(written).toBeLessThan(2000)
  expect(rss()).toBeLessThan(1200)
  child.kill('SIGKILL')
  await ended(child)
})

test('bytes that are no text are replaced, or exact in base64; streams are cut at --max-output', async () => {
  const bytes = 'import sys; sys.stdout.buffer.write(b"\\xff\\x00" + b"z" * 30)'
  const { answers } = await exec(
    [
      { id: 't', code: bytes },
      { id: 'b', code: bytes, encoding: 'base64' },
    ],
    ['--max-output', '4'],
  )
  expect(byId(answers, 't')).toMatchObject({ stdout: '\ufffd\0zz', stdoutBytes: 32 })
  expect(byId(answers, 'b')).toMatchObject({
    stdout: Buffer.from([255, 0, 122, 122]).toString('base64'),
    stdoutBytes: 32,
  })
})

test('--timeout-ms is for lines that do not say', async () => {
  const sleep = 'import time; time.sleep(1.2)'
  const { answers } = await exec(
    [
      { id: 'short', code: sleep },
      { id: 'long', code: sleep, timeoutMs: 20_000 },
    ],
    ['--timeout-ms', '300', '--lanes', '2'],
  )
  expect(byId(answers, 'short').status).toBe('timeout')
  expect(byId(answers, 'long').status).toBe('ok')
})

test('input is read no faster than it is worked off, and a second signal ends what runs', async () => {
  const child = start(['--lanes', '1'])
  const line = `${JSON.stringify({ id: 1, code: `import time; time.sleep(30) #${'x'.repeat(100_000)}`, timeoutMs: 30_000 })}\n`
  await once(child.stderr!, 'data') // it says its level when it is open
  let blocked = false
  for (let i = 0; i < 50 && !blocked; i++) {
    if (!child.stdin!.write(line)) {
      blocked = await Promise.race([
        once(child.stdin!, 'drain').then(() => false),
        new Promise<boolean>(resolve => setTimeout(resolve, 2500, true)),
      ])
    }
  }
  expect(blocked).toBe(true)
  child.stdin!.on('error', () => undefined)
  const end = ended(child)
  child.kill('SIGTERM')
  await new Promise(resolve => setTimeout(resolve, 1000)) // two at once would be one
  child.kill('SIGTERM')
  expect(await end).toBe(143)
})

test('an interrupt answers what runs, then ends with 130', async () => {
  const child = start([])
  child.stdin!.write(`${JSON.stringify({ id: 'r', code: 'print(1, flush=True)\nimport time; time.sleep(2)' })}\n`)
  const out = collect(child)
  await once(child.stderr!, 'data') // it says its level when it is open
  await new Promise(resolve => setTimeout(resolve, 500))
  child.kill('SIGINT')
  expect(await ended(child)).toBe(130)
  expect(answersOf(await out)).toMatchObject([{ id: 'r', status: 'ok' }])
})

test('a reader that goes away ends it quietly', async () => {
  const child = start([])
  const stderr = text(child.stderr!)
  child.stdin!.on('error', () => undefined)
  const feed = setInterval(() => child.stdin!.write(`${JSON.stringify({ id: 1, code: 'print(1)' })}\n`), 5)
  await once(child.stdout!, 'data')
  child.stdout!.destroy()
  expect(await ended(child)).toBe(0)
  clearInterval(feed)
  expect(await stderr).toMatch(/^sandbox: level \w+, \d+ lanes\n$/)
})

test('cells of a session that come in one write run one after the other', async () => {
  const codes = ['x = 1', 'x += 1', 'x']
  const { answers } = await exec(codes.map((code, cell) => ({ id: cell, code, session: { id: 's', cell } })))
  expect(codes.map((_, cell) => byId(answers, cell))).toMatchObject(
    [{}, {}, { stdout: '2\n' }].map(more => ({ status: 'ok', ...more })),
  )
})

test('a wrong option is a wrong usage', async () => {
  expect((await exec([], ['--lanes', '0'])).code).toBe(2)
})

function start(options: readonly string[]): ChildProcess {
  return spawn(process.execPath, ['-e', program, '--', 'exec', '--jsonl', ...options], { cwd: root })
}

async function exec(lines: readonly (string | object)[], options: readonly string[] = []) {
  const child = start(options)
  const out = collect(child)
  child.stderr!.resume()
  // The last line has no end of line: it counts all the same.
  child.stdin!.end(lines.map(line => (typeof line === 'string' ? line : JSON.stringify(line))).join('\n'))
  const code = await ended(child)
  return { code, answers: answersOf(await out) }
}

const ended = async (child: ChildProcess): Promise<unknown> => (await once(child, 'exit'))[0]
const collect = (child: ChildProcess) => text(child.stdout!)

async function text(stream: NodeJS.ReadableStream): Promise<string> {
  let all = ''
  stream.setEncoding('utf8')
  stream.on('data', chunk => {
    all += chunk
  })
  await Promise.race([once(stream, 'end'), once(stream, 'close')])
  return all
}

const answersOf = (out: string): Answer[] =>
  out
    .split('\n')
    .filter(Boolean)
    .map(line => JSON.parse(line) as Answer)

function byId(answers: readonly Answer[], id: unknown): Answer {
  const found = answers.filter(answer => answer.id === id)
  expect(found).toHaveLength(1)
  return found[0]!
}
