/** The judge as a plain HTTP client meets it: what Code Judge's API says, and what is answered where it says nothing. */
import { once } from 'node:events'
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { Agent, request } from 'node:http'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { type Judge, type JudgeOptions, openJudge, openSandbox, type Sandbox } from '../../sandbox'
import { until } from '../support/until'

interface Result {
  readonly sub_id: string
  readonly success: boolean
  readonly run_success: boolean
  readonly cost: number
  readonly stdout: string
  readonly stderr: string
  readonly reason: string
  readonly stdout_bytes?: number
  readonly stderr_bytes?: number
  readonly detail?: readonly {
    readonly type: string
    readonly loc: readonly (string | number)[]
    readonly msg: string
  }[]
}

const FIELDS = ['sub_id', 'success', 'run_success', 'cost', 'stdout', 'stderr', 'reason']
const python = <R extends object>(solution: string, rest: R = {} as R) => ({ type: 'python', solution, ...rest })
const cpp = (solution: string, rest: object = {}) => ({ type: 'cpp', solution, ...rest })

let sandbox: Sandbox
let judge: Judge
const others: Judge[] = []

beforeAll(async () => {
  sandbox = await openSandbox()
  judge = await openJudge(sandbox, { port: 0, timeoutMs: 2000 })
})
afterEach(async () => {
  for (const other of others.splice(0)) await other.close()
})
afterAll(async () => {
  await judge.close()
  await sandbox.close()
})

async function another(options: JudgeOptions): Promise<Judge> {
  const opened = await openJudge(sandbox, { port: 0, ...options })
  others.push(opened)
  return opened
}

async function post(path: string, body: unknown, to: Judge = judge, init: RequestInit = {}) {
  const raw = typeof body === 'string' || body instanceof Uint8Array
  const headers = { 'content-type': 'application/json', ...init.headers }
  const sent = raw ? (body as string | Uint8Array) : JSON.stringify(body)
  const response = await fetch(`${to.url}${path}`, { method: 'POST', body: sent, ...init, headers })
  return { status: response.status, headers: response.headers, body: await response.json() }
}

async function run(submission: object, to?: Judge): Promise<Result> {
  const { status, body } = await post('/run', submission, to)
  expect(status).toBe(200)
  return body as Result
}

async function status(of: Judge = judge): Promise<Record<string, number>> {
  return (await fetch(`${of.url}/status`)).json() as Promise<Record<string, number>>
}

describe('what Code Judge answers', () => {
  test('ping says pong, status says what waits and how many work', async () => {
    expect(await (await fetch(`${judge.url}/ping`)).json()).toBe('pong')
    expect(await status()).toMatchObject({ queue: 0, num_workers: sandbox.lanes, level: sandbox.level })
  })

  test('/run gives the program its input and answers with exactly the fields of the API', async () => {
    const result = await run({ sub_id: 'mine', ...python('print(input())'), input: '9' })
    expect(Object.keys(result)).toEqual(FIELDS)
    expect(result).toMatchObject({
      sub_id: 'mine',
      success: true,
      run_success: true,
      stdout: '9\n',
      stderr: '',
      reason: '',
    })
    expect(result.cost).toBeGreaterThan(0)
    expect(result.cost).toBeLessThan(2)
    const { sub_id } = await run(
      python('print(1)', { sub_id: null, input: null, expected_output: null, options: { a: 'b' } }),
    )
    expect(sub_id).toMatch(/^[0-9a-f-]{36}$/)
  })

  test('success is exit code 0 and, where output is expected, output that is the same but for white space around it', async () => {
    const same = async (expected: string, code = 'print(" a  b ")') => {
      const { success, run_success } = await run(python(code, { expected_output: expected }))
      return [success, run_success]
    }
    expect(await same('a  b')).toEqual([true, true])
    expect(await same('\n\u2003a  b\x1f\r\n')).toEqual([true, true])
    expect(await same('a b')).toEqual([false, true])
    expect(await same('')).toEqual([false, true])
    expect(await same('a  b', 'print("a  b"); exit(3)')).toEqual([false, false])
    expect(await run(python('1 / 0'))).toMatchObject({ success: false, run_success: false, reason: '' })
  })

  test('/judge answers without the streams', async () => {
    const { body } = await post('/judge', python('print(1)', { expected_output: '1' }))
    expect(Object.keys(body as object)).toEqual(FIELDS.filter(name => !name.startsWith('std')))
    expect(body).toMatchObject({ success: true, run_success: true, reason: '' })
  })

  test.each(['/run/batch', '/run/long-batch', '/judge/batch', '/judge/long-batch'])(
    '%s answers every item in order',
    async path => {
      const submissions = Array.from({ length: 20 }, (_, i) =>
        python(`print(${i})`, { sub_id: `s${i}`, expected_output: `${i}` }),
      )
      const { status, body } = await post(path, { type: 'batch', sub_id: 'all', submissions })
      const { sub_id, results } = body as { sub_id: string; results: Result[] }
      expect([status, sub_id]).toEqual([200, 'all'])
      expect(results.map(result => result.sub_id)).toEqual(submissions.map(({ sub_id }) => sub_id))
      expect(results.every(result => result.success && result.reason === '')).toBe(true)
      if (path.startsWith('/run'))
        expect(results.map(({ stdout }) => stdout)).toEqual(submissions.map((_, i) => `${i}\n`))
      else expect(results.every(result => !('stdout' in result))).toBe(true)
    },
  )

  test('a batch needs no type and no sub_id', async () => {
    const { body } = await post('/run/batch', { submissions: [python('print(1)')] })
    expect((body as { sub_id: string }).sub_id).toMatch(/^[0-9a-f-]{36}$/)
  })

  test('C++ is compiled and run, with input and expected output', async () => {
    const code = '#include <iostream>\nint main() { long n; std::cin >> n; std::cout << n * n; std::cerr << "done"; }'
    const result = await run(cpp(code, { input: '12', expected_output: '144' }))
    expect(result).toMatchObject({ success: true, run_success: true, stdout: '144', stderr: 'done', reason: '' })
    expect(result.cost).toBeLessThan(1) // without the compilation
    expect(await run(cpp('int main() { return 7; }'))).toMatchObject({ run_success: false, reason: '' })
  })

  test('C++ that does not compile, crashes, or takes too much memory says so', async () => {
    const wrong = await run(cpp('int main() { return nothing; }'))
    expect(wrong).toMatchObject({ success: false, run_success: false, reason: '', cost: 0 })
    expect(wrong.stderr).toContain('error: ‘nothing’ was not declared')
    const crash = await run(cpp('int main() { volatile int* p = 0; *p = 1; }'))
    expect(crash).toMatchObject({ run_success: false, stderr: 'Killed by SIGSEGV\n' })
    const large = await run(cpp('#include <vector>\nint main() { std::vector<char> v(400 << 20); return v[5]; }'))
    expect(large.run_success).toBe(false)
    expect(large.stderr).toContain('bad_alloc')
  })

  test('C++ cannot end its launcher’s clock, nor pass for another outcome by what it prints', async () => {
    const spin =
      '#include <cstdio>\n#include <unistd.h>\nint main() { alarm(0); fprintf(stderr, "compiled 5\\n"); fflush(stderr); for (;;); }'
    const result = await run(cpp(spin))
    expect(result).toMatchObject({ reason: 'worker_timeout', run_success: false, stderr: 'compiled 5\n' })
    expect(result.cost).toBeGreaterThanOrEqual(2)
    expect(result.cost).toBeLessThan(2.5)
    for (const code of [2, 3, 4]) {
      expect(await run(cpp(`int main() { return ${code}; }`))).toMatchObject({ run_success: false, reason: '' })
    }
  })
})

describe('the reasons', () => {
  test('worker_timeout: the limit is kept to by a clock that the code cannot stop, and earlier output is kept', async () => {
    const code = 'import signal, time\nprint("begun", flush=True)\nsignal.alarm(0)\ntime.sleep(60)'
    const result = await run(python(code))
    expect(result).toMatchObject({ success: false, run_success: false, reason: 'worker_timeout', stdout: 'begun\n' })
    expect(result.cost).toBeGreaterThanOrEqual(2)
    expect(result.cost).toBeLessThan(2.5)
  })

  test('queue_timeout: what has not begun in time is answered then, and what runs is answered as it ends', async () => {
    const short = await another({ timeoutMs: 5000, queueWaitMs: 700 })
    const submissions = Array.from({ length: 8 * sandbox.lanes }, () =>
      python('import time; time.sleep(0.9); print(1)'),
    )
    const { body } = await post('/run/batch', { submissions }, short)
    const { results } = body as { results: Result[] }
    const late = results.filter(result => result.reason === 'queue_timeout')
    expect(late.length).toBeGreaterThan(0)
    expect(results.filter(result => result.success).length).toBe(results.length - late.length)
    for (const { cost, run_success, stdout, stderr } of late) {
      expect({ run_success, stdout }).toEqual({ run_success: false, stdout: '' })
      expect(cost).toBeGreaterThan(0.69) // timers count whole milliseconds
      expect(cost).toBeLessThan(1.5)
      expect(stderr).toContain('/long-batch')
    }
    expect((await status(short)).queue_timeouts).toBe(late.length)
    // The same load waits as long as it must where it may.
    const long = await post('/run/long-batch', { submissions: submissions.slice(0, 4 * sandbox.lanes) }, short)
    expect((long.body as { results: Result[] }).results.every(result => result.success)).toBe(true)
  })

  test('internal_error: a type that is in the schema and has no executor', async () => {
    const result = await run({ type: 'math', solution: '1' })
    expect(result).toMatchObject({ success: false, reason: 'internal_error' })
    expect(result.stderr).toContain("type 'math'")
  })

  test('invalid_input: a bad item of a batch is answered alone, the others run', async () => {
    const { status, body } = await post('/run/batch', {
      submissions: [
        python('print(1)'),
        { sub_id: 'bad', type: 'python' },
        { type: 'ruby', solution: 'puts 1' },
        17,
        null,
        python('print("\ud800")'),
        python('print(1)', { input: 5 }),
        python('print(1)', { options: { deep: {} } }),
        python(`#${'x'.repeat(8 * 1024 * 1024)}`),
        python('print(2)'),
      ],
    })
    expect(status).toBe(200)
    const { results } = body as { results: Result[] }
    expect(results.map(({ stdout }) => stdout)).toEqual(['1\n', '', '', '', '', '', '', '', '', '2\n'])
    const bad = results.slice(1, -1)
    expect(bad.every(({ reason, success }) => reason === 'invalid_input' && !success)).toBe(true)
    expect(bad[0]!.sub_id).toBe('bad')
    expect(bad.map(({ stderr }) => stderr)).toEqual([
      'submissions.1.solution: Field required\n',
      "submissions.2.type: Input should be 'python', 'cpp' or 'math'\n",
      'submissions.3: Input should be a valid dictionary or object to extract fields from\n',
      'submissions.4: Input should be a valid dictionary or object to extract fields from\n',
      'submissions.5.solution: Input should be Unicode text; at character 7 it has half of a surrogate pair, U+D800\n',
      'submissions.6.input: Input should be a valid string\n',
      'submissions.7.options.deep: Input should be a valid string\n',
      'submissions.8.solution: Code should have at most 8388608 bytes, not 8388609\n',
    ])
    expect(bad[0]!.detail).toEqual([
      {
        type: 'missing',
        loc: ['body', 'submissions', 1, 'solution'],
        msg: 'Field required',
        input: { sub_id: 'bad', type: 'python' },
      },
    ])
    const judged = await post('/judge/batch', { submissions: [{ type: 'python' }, python('print(1)')] })
    const [first, second] = (judged.body as { results: Result[] }).results
    expect(first).toMatchObject({ success: false, reason: 'invalid_input', detail: [{ type: 'missing' }] })
    expect(second).toMatchObject({ success: true })
  })
})

describe('bad input', () => {
  test.each<[string, string, unknown, object]>([
    [
      'broken JSON',
      '/run',
      '{"type": "python", "solution": }',
      { type: 'json_invalid', ctx: { error: expect.stringContaining("Unexpected token '}'") } },
    ],
    ['half of a body', '/run', '{"type": "python"', { type: 'json_invalid' }],
    ['an empty body', '/run', '', { type: 'json_invalid', loc: ['body', 0] }],
    ['a list', '/run', [], { type: 'model_attributes_type', loc: ['body'] }],
    ['no solution', '/run', { type: 'python' }, { type: 'missing', loc: ['body', 'solution'] }],
    ['no type', '/judge', { solution: '' }, { type: 'missing', loc: ['body', 'type'] }],
    [
      'an unknown type',
      '/run',
      { type: 'java', solution: '' },
      { type: 'literal_error', loc: ['body', 'type'], input: 'java' },
    ],
    ['a solution that is no text', '/run', { type: 'python', solution: 1 }, { type: 'string_type', input: 1 }],
    ['half a surrogate pair', '/run', python('\udfff'), { type: 'string_unicode', loc: ['body', 'solution'] }],
    [
      'code over 8 MB',
      '/run',
      python('é'.repeat(4 * 1024 * 1024 + 1)),
      { type: 'string_too_long', loc: ['body', 'solution'] },
    ],
    ['a batch that is none', '/run/batch', { solution: '1' }, { type: 'missing', loc: ['body', 'submissions'] }],
    ['an empty batch', '/run/long-batch', { submissions: [] }, { type: 'too_short', loc: ['body', 'submissions'] }],
    [
      'a batch of another type',
      '/judge/batch',
      { type: 'b', submissions: [1] },
      { type: 'literal_error', loc: ['body', 'type'] },
    ],
    ['submissions that are no list', '/judge/long-batch', { submissions: {} }, { type: 'list_type' }],
  ])('%s is a 422 that says what is wrong and where', async (_title, path, body, fault) => {
    const answer = await post(path, body)
    expect(answer.status).toBe(422)
    const { detail } = answer.body as { detail: { msg: string }[] }
    expect(detail).toEqual([expect.objectContaining(fault)])
    expect(detail[0]!.msg.length).toBeGreaterThan(5)
    expect(JSON.stringify(detail).length).toBeLessThan(2000)
  })

  test('bytes that are no UTF-8 spoil the item that holds them, and no other', async () => {
    const body = Buffer.from(
      '{"submissions":[{"type":"python","solution":"print(\'\xe9\')"},{"type":"python","solution":"print(2)"}]}',
      'latin1',
    )
    const { results } = (await post('/run/batch', body)).body as { results: Result[] }
    expect(results[0]).toMatchObject({ reason: 'invalid_input', success: false })
    expect(results[0]!.stderr).toContain('0xe9')
    expect(results[1]).toMatchObject({ stdout: '2\n', success: true })
    expect((await post('/run', Buffer.from([0x7b, 0xff, 0x7d]))).status).toBe(422)
  })

  test('what is nested too deeply to be printed is refused like any other', async () => {
    const { status } = await post('/run', '['.repeat(200_000) + ']'.repeat(200_000))
    expect(status).toBe(422)
  })

  test('odd code runs as Python runs it: empty, from __future__, NUL, forged marks, other ends of line', async () => {
    expect(await run(python(''))).toMatchObject({ success: true, stdout: '', stderr: '' })
    expect(await run(python('from __future__ import annotations\nprint(1)'))).toMatchObject({
      success: true,
      stdout: '1\n',
    })
    expect(await run(python('print(1)\0'))).toMatchObject({ success: false, reason: '' })
    expect(await run(python('print(repr(input()))', { input: 'a\0b' }))).toMatchObject({ stdout: "'a\\x00b'\n" })
    const forged = await run(python('import os\nprint("@@E\\n@@D99", flush=True)\nos._exit(0)'))
    expect(forged).toMatchObject({ success: true, stdout: '@@E\n@@D99\n' })
    expect(forged.cost).toBeLessThan(2)
  })

  test('output that is no text, or half a pair, is no fault of the server', async () => {
    const bytes = await run(python('import os; os.write(1, b"\\xff\\x00\\xfe"); os.write(2, b"\\xe2\\x82")'))
    expect(bytes).toMatchObject({ success: true, reason: '', stdout: '\ufffd\0\ufffd', stderr: '\ufffd' })
    const pair = await run(python('print("\\ud800")'))
    expect(pair.reason).toBe('')
    // A warm interpreter escapes it, a fresh one refuses to print it.
    expect(pair.success ? pair.stdout : pair.stderr).toMatch(/^\\ud800\n$|UnicodeEncodeError/)
  })

  test('output is cut at 1000 characters, stdout at its end and stderr at its start, and its true size is told', async () => {
    const result = await run(python('import sys\nprint("é😀" * 3_000_000)\nsys.stderr.write("x" * 5000 + "the end")'))
    expect(result.stdout).toBe('é😀'.repeat(500))
    expect(result.stdout_bytes).toBe(18_000_001)
    expect(result.stderr).toBe(`${'x'.repeat(993)}the end`)
    expect(result.stderr_bytes).toBe(5007)
    expect(Object.keys(await run(python(`print('é' * 999)`)))).toEqual(FIELDS)
  })

  test('a long traceback keeps the error and the lines are those of the code', async () => {
    const code = `${'\n'.repeat(40)}def f(n):\n  return f(n - 1) if n else 1 / 0\ndef g(n):\n  return f(n - 1) if n % 2 else g(n - 1)\n`
    const calls = Array.from({ length: 60 }, (_, i) => `def h${i}(): return h${i + 1}()`).join('\n')
    const { stderr } = await run(python(`${code}${calls}\ndef h60(): raise ValueError('the reason')\nh0()`))
    expect(stderr.length).toBe(1000)
    expect(stderr.endsWith('ValueError: the reason\n')).toBe(true)
    expect((await run(python('\n\n1 / 0'))).stderr).toContain('line 3')
  })

  test('expected output is compared as a whole, not as far as it is shown', async () => {
    const long = (end: string) =>
      python(`print("a" * 200_000 + "${end}")`, { expected_output: `${'a'.repeat(200_000)}b` })
    expect(await run(long('b'))).toMatchObject({ success: true })
    expect(await run(long('c'))).toMatchObject({ success: false, run_success: true })
    const spaces = python('print(" " * 900_000 + "x")', { expected_output: 'x' })
    expect(await run(spaces)).toMatchObject({ success: true })
    const longest = python('print("a" * 17_000_000)', { expected_output: 'a'.repeat(17_000_000) })
    expect(await run(longest)).toMatchObject({ success: true, reason: '' })
  })

  test('what is said of a body is bounded, however much of it is wrong', async () => {
    const keys = Array.from({ length: 100_000 }, (_, n) => [`k${n}${'k'.repeat(n < 2 ? 100_000 : 0)}`, n])
    const wrong = { type: 'python', options: Object.fromEntries(keys) }
    for (const [path, body] of [
      ['/run', wrong],
      ['/run/batch', { submissions: [wrong, { ...wrong, solution: '1' }] }],
    ] as const) {
      const answer = JSON.stringify((await post(path, body)).body)
      expect(answer).toContain('"missing"')
      expect(answer).toContain('"string_type"')
      expect(answer.length).toBeLessThan(20_000)
    }
  })

  test('a path or method that there is not is told so', async () => {
    expect((await post('/nothing', {})).status).toBe(404)
    expect((await post('/constructor', {})).status).toBe(404)
    const wrong = await fetch(`${judge.url}/run`)
    expect([wrong.status, wrong.headers.get('allow')]).toEqual([405, 'POST'])
    expect((await post('/ping', {})).status).toBe(405)
    expect((await fetch(`${judge.url}/status?verbose=1`)).status).toBe(200)
  })
})

describe('bounds', () => {
  test('a body over the limit is a 413, announced or not, and the connection goes on', async () => {
    const small = await another({ maxBodyBytes: 10_000 })
    const body = JSON.stringify(python(`#${'x'.repeat(50_000)}`))
    const answer = await post('/run', body, small)
    expect(answer.status).toBe(413)
    expect((answer.body as { detail: string }).detail).toContain('10000 bytes')
    const stream = new ReadableStream({
      start(controller) {
        controller.enqueue(new TextEncoder().encode(body))
        controller.close()
      },
    })
    const chunked = await fetch(`${small.url}/run`, { method: 'POST', body: stream, duplex: 'half' } as RequestInit)
    expect(chunked.status).toBe(413)
    expect((await run(python('print(1)'), small)).success).toBe(true)
    expect((await status(small)).held_bytes).toBe(0)
  })

  test('more than may wait is refused at once with Retry-After, and nothing of it runs', async () => {
    const tight = await another({ maxQueuedCalls: 30, maxClientCalls: 20 })
    const batch = (n: number) => ({ submissions: Array.from({ length: n }, () => python('print(1)')) })
    const full = await post('/run/long-batch', batch(31), tight)
    expect(full.status).toBe(503)
    expect(Number(full.headers.get('retry-after'))).toBeGreaterThanOrEqual(1)
    const greedy = await post('/run/long-batch', batch(21), tight)
    expect(greedy.status).toBe(429)
    expect(Number(greedy.headers.get('retry-after'))).toBeGreaterThanOrEqual(1)
    expect((greedy.body as { detail: string }).detail).toContain("this client's limit of 20 waiting calls")
    expect((await status(tight)).refused).toBe(52)
    expect((await post('/run/long-batch', batch(20), tight)).status).toBe(200)
  })

  test('bodies that would not fit in memory together are refused with 503', async () => {
    const tight = await another({ maxHeldBytes: 100_000 })
    const slow = post('/run', python(`import time; time.sleep(1)\n#${'x'.repeat(60_000)}`), tight)
    await until(async () => (await status(tight)).held_bytes! > 60_000)
    const refused = await post('/run', python(`#${'x'.repeat(60_000)}`), tight)
    expect(refused.status).toBe(503)
    expect(refused.headers.get('retry-after')).not.toBeNull()
    expect((await slow).status).toBe(200)
    expect((await post('/run', python(`#${'x'.repeat(60_000)}`), tight)).status).toBe(200)
  })

  test('clients take turns: one call is answered long before another client’s flood is', async () => {
    const flood = post('/run/long-batch', { submissions: Array.from({ length: 3000 }, () => python('print(1)')) })
    await until(async () => (await status()).queue! > 2000)
    expect((await run(python('print("quick")'))).stdout).toBe('quick\n')
    expect((await status()).queue).toBeGreaterThan(100)
    expect(((await flood).body as { results: Result[] }).results).toHaveLength(3000)
  })

  test('what a client that goes away had waiting is dropped and counted, and what it had running is ended', async () => {
    const own = await another({ timeoutMs: 20_000 })
    const gone = new AbortController()
    const submissions = Array.from({ length: 600 }, () => python('import time; time.sleep(15)'))
    const left = post('/run/long-batch', { submissions }, own, { signal: gone.signal }).catch(() => 'left')
    await until(async () => (await status(own)).queue! > 100)
    gone.abort()
    expect(await left).toBe('left')
    await until(async () => (await status(own)).dropped === 600)
    expect(await status(own)).toMatchObject({ queue: 0 })
    await until(async () => (await status(own)).running === 0)
    expect((await run(python('print(1)'), own)).success).toBe(true)
  })

  test('a client that leaves in the middle of its body holds nothing', async () => {
    const port = Number(new URL(judge.url).port)
    const socket = connect(port, '127.0.0.1')
    socket.write(`POST /run HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5000\r\n\r\n{"type"${' '.repeat(3000)}`)
    await until(async () => (await status()).held_bytes! >= 3000)
    socket.destroy()
    await until(async () => (await status()).held_bytes === 0)
  })

  test('bodies that are announced and do not come shut nobody out, and are given up', async () => {
    const tight = await another({ maxHeldBytes: 100_000, maxBodyBytes: 100_000, bodyWaitMs: 2000 })
    const begun = (sent: number) => {
      const socket = connect(Number(new URL(tight.url).port), '127.0.0.1')
      socket.write(`POST /run HTTP/1.1\r\nhost: localhost\r\ncontent-length: 95000\r\n\r\n${' '.repeat(sent)}`)
      return text(socket)
    }
    const body = python(`print(1) #${'x'.repeat(60_000)}`)
    const idle = Array.from({ length: 8 }, () => begun(1))
    await until(async () => (await status(tight)).held_bytes === 8)
    expect((await post('/run', body, tight)).status).toBe(200)
    idle.push(begun(60_000))
    await until(async () => (await status(tight)).held_bytes! > 60_000)
    expect((await post('/run', body, tight)).status).toBe(503)
    for (const answer of await Promise.all(idle)) {
      expect(answer).toMatch(/^HTTP\/1\.1 408 .*the body arrives too slowly: less than 64 KiB in 2000 ms/s)
    }
    expect((await status(tight)).held_bytes).toBe(0)
    expect((await post('/run', body, tight)).status).toBe(200)
  })

  test('pipelined requests are answered in order', async () => {
    const socket = connect(Number(new URL(judge.url).port), '127.0.0.1')
    const one = (code: string) => {
      const body = JSON.stringify(python(code))
      return `POST /run HTTP/1.1\r\nhost: localhost\r\ncontent-length: ${body.length}\r\n\r\n${body}`
    }
    socket.write(one('import time; time.sleep(0.5); print("first")') + one('print("second")'))
    let text = ''
    socket.on('data', chunk => {
      text += chunk
    })
    await until(() => text.includes('second'))
    expect(text.indexOf('first')).toBeLessThan(text.indexOf('second'))
    socket.destroy()
  })
})

describe('who may come in', () => {
  let folder: string
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'troupe-judge-'))
  })
  afterEach(() => rmSync(folder, { recursive: true }))
  const file = (text: string) => {
    writeFileSync(join(folder, 'token'), text)
    chmodSync(join(folder, 'token'), 0o600)
    return join(folder, 'token')
  }

  test('with a token file, requests need its token; ping does not', async () => {
    const guarded = await another({ tokenFile: file('s3cret-token\n') })
    const answer = (authorization?: string) =>
      post('/run', python('print(1)'), guarded, authorization ? { headers: { authorization } } : {})
    for (const wrong of [undefined, 'Bearer nope', 'Bearer s3cret-token2', 'Basic s3cret-token', 'Bearer ']) {
      const { status, headers, body } = await answer(wrong)
      expect([status, headers.get('www-authenticate')]).toEqual([401, 'Bearer'])
      expect(JSON.stringify(body)).not.toContain('s3cret')
    }
    expect((await answer('Bearer s3cret-token')).status).toBe(200)
    expect((await answer('bearer s3cret-token')).status).toBe(200)
    expect((await fetch(`${guarded.url}/status`)).status).toBe(401)
    expect((await fetch(`${guarded.url}/ping`)).status).toBe(200)
  })

  test.each(['0.0.0.0', '::', '', '192.0.2.1', 'example.org'])(
    'a bind to "%s" without a token is refused at start',
    async host => {
      await expect(openJudge(sandbox, { port: 0, host })).rejects.toMatchObject({
        code: 'judge.unsafe_bind',
        hint: expect.stringContaining('--token-file'),
      })
    },
  )

  test('a bind to all addresses with a token works', async () => {
    const open = await another({ host: '0.0.0.0', tokenFile: file('abc') })
    const url = open.url.replace('0.0.0.0', '127.0.0.1')
    expect((await fetch(`${url}/status`, { headers: { authorization: 'Bearer abc' } })).status).toBe(200)
  })

  test.each(['', ' \n', 'two words', 'línea'])('a token file that holds %j is refused at start', async text => {
    await expect(openJudge(sandbox, { port: 0, tokenFile: file(text) })).rejects.toMatchObject({
      code: 'judge.bad_token',
    })
  })

  test('a token file that is not there, or a port that is taken, is told at start', async () => {
    const missing = openJudge(sandbox, { port: 0, tokenFile: join(folder, 'none') })
    await expect(missing).rejects.toMatchObject({ code: 'judge.bad_token' })
    const taken = openJudge(sandbox, { port: Number(new URL(judge.url).port) })
    await expect(taken).rejects.toMatchObject({ code: 'judge.cannot_listen', retriable: true })
  })

  test.each([{ port: 99_999 }, { memoryMb: 16 }, { timeoutMs: 0 }, { maxBodyBytes: 2 ** 40 }])(
    'options that cannot work, as %j, are told at start',
    async options => {
      await expect(openJudge(sandbox, { port: 0, ...options })).rejects.toMatchObject({
        code: 'judge.bad_option',
        message: expect.stringMatching(`^${Object.keys(options)[0]} must be a whole number from `),
      })
    },
  )

  test('a page in a browser may not use a judge without a token', async () => {
    const { status } = await post('/run', python('print(1)'), judge, { headers: { origin: 'https://example.org' } })
    expect(status).toBe(403)
  })
})

test('a call that the sandbox has and never begins is answered too: others hold all of its lanes', async () => {
  const stop = new AbortController()
  const code = 'import time; time.sleep(120)'
  const small = await openSandbox({ lanes: 2 })
  const held = [1, 2].map(n =>
    small.run({ id: `held-${n}`, code, timeoutMs: 120_000 }, stop.signal).catch(() => 'stopped'),
  )
  const quick = await openJudge(small, { port: 0, timeoutMs: 500, queueWaitMs: 200 })
  try {
    const { body } = await post('/run', python('print(1)'), quick)
    expect(body).toMatchObject({ reason: 'queue_timeout', run_success: false })
    expect((await status(quick)).queue_timeouts).toBe(1)
  } finally {
    stop.abort()
  }
  expect(await Promise.all(held)).toEqual(held.map(() => 'stopped'))
  await quick.close()
  await small.close()
})

test('closing answers what is open, refuses what comes, and then nothing listens', async () => {
  const closing = await another({})
  const socket = new Agent({ keepAlive: true })
  const get = () =>
    new Promise<number>((resolve, reject) => {
      const asked = request(`${closing.url}/status`, { agent: socket }, response => {
        response.resume()
        response.once('end', () => resolve(response.statusCode ?? 0))
      })
      asked.once('error', reject)
      asked.end()
    })
  expect(await get()).toBe(200)
  const open = post('/run', python('import time; time.sleep(1); print("done")'), closing)
  await until(async () => (await status(closing)).running === 1)
  const closed = closing.close(20_000)
  expect(((await open).body as Result).stdout).toBe('done\n')
  await closed
  await expect(get()).rejects.toMatchObject({ code: 'ECONNREFUSED' })
  socket.destroy()
})

test('closing at once answers what is open with internal_error', async () => {
  const closing = await another({})
  const submissions = Array.from({ length: 40 }, () => python('import time; time.sleep(9)'))
  const open = post('/run/long-batch', { submissions }, closing)
  await until(async () => (await status(closing)).running! > 0)
  await closing.close()
  const { results } = (await open).body as { results: Result[] }
  expect(results).toHaveLength(40)
  expect(results.every(({ reason, stderr }) => reason === 'internal_error' && stderr.includes('shut down'))).toBe(true)
})

test('a connection is kept for the next request', async () => {
  const socket = connect(Number(new URL(judge.url).port), '127.0.0.1')
  for (let i = 0; i < 2; i++) {
    socket.write('GET /ping HTTP/1.1\r\nhost: localhost\r\n\r\n')
    const [chunk] = (await once(socket, 'data')) as [Buffer]
    expect(chunk.toString()).toMatch(/^HTTP\/1\.1 200 .*"pong"$/s)
  }
  socket.destroy()
})
