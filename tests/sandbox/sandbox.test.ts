/**
 * What the sandbox of level `none` promises, met by code that tries to break it. Everything hostile here is bounded in
 * time and in number: a few processes, a few seconds.
 */
import { spawn } from 'node:child_process'
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import workerThreads from 'node:worker_threads'
import { openSandbox, type RunRequest, runBatch, runPythonTool, type Sandbox } from '../../sandbox'

// A daemon with two forks and a session of its own; it says its pid and then holds the output open.
const daemon = `
import os, sys, time
def daemon():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.write(1, b'%d\\n' % os.getpid())
            time.sleep(60)
        os._exit(0)
daemon()
time.sleep(0.3)
`

let sandbox: Sandbox
beforeAll(async () => {
  process.env.TROUPE_TEST_SECRET = 'must-not-leak'
  sandbox = await openSandbox({ level: 'none', lanes: 4 })
})
afterAll(() => sandbox.close())
afterEach(() => expect(ours()).toEqual([]))

describe('how a call ends', () => {
  test('what was printed, the exit code and the costs come back', async () => {
    const result = await run('import sys\nprint("out")\nprint("err", file=sys.stderr)\nsum(range(10**6))')
    expect(result).toMatchObject({
      id: 'call',
      status: 'ok',
      exitCode: 0,
      signal: null,
      stdout: 'out\n',
      stderr: 'err\n',
    })
    expect(result.cpuMs).toBeGreaterThan(0)
    expect(result.cpuMs).toBeLessThan(4000)
    expect(result.wallMs).toBeGreaterThan(0)
    expect(result.maxRssBytes).toBeGreaterThan(1_000_000)
  })

  test('an uncaught error is an exit with 1 and a traceback that shows the code and nothing of ours', async () => {
    const result = await run('def f():\n    return 1 / 0\n\nf()')
    expect(result).toMatchObject({ status: 'error', exitCode: 1, stdout: '' })
    expect(result.stderr).toMatch(
      /File "main.py", line 4, in <module>\n {4}f\(\)[\s\S]*line 2, in f\n {4}return 1 \/ 0[\s\S]*ZeroDivisionError/,
    )
    expect(result.stderr).not.toContain('launcher')
    expect((await run('x = (')).stderr).toMatch(/^ {2}File "main.py", line 1\n[\s\S]*SyntaxError/)
  })

  test.each([
    ['exit(3)', { status: 'error', exitCode: 3 }],
    ['raise SystemExit', { status: 'ok', exitCode: 0 }],
    ['import sys; sys.exit("no")', { status: 'error', exitCode: 1, stderr: 'no\n' }],
    ['import os; os._exit(7)', { status: 'error', exitCode: 7 }],
    ['import atexit; atexit.register(print, "bye")', { status: 'ok', stdout: 'bye\n' }],
    ['import os; os.abort()', { status: 'killed', exitCode: null, signal: 'SIGABRT' }],
    ['import os; os.kill(os.getpid(), 9)', { status: 'killed', exitCode: null, signal: 'SIGKILL' }],
    ['import os; os.kill(os.getpid(), 15)', { status: 'killed', signal: 'SIGTERM' }],
    ['', { status: 'ok', stdout: '' }],
  ])('%p ends as it would under the bare interpreter', async (code, expected) => {
    expect(await run(code)).toMatchObject(expected)
  })

  test.each([
    ['spins', 'while True: pass'],
    ['spins through every exception', 'while True:\n  try:\n    while True: pass\n  except BaseException: pass'],
    ['sleeps', 'import time; time.sleep(60)'],
    [
      'ignores signals',
      'import signal\nfor n in (1, 2, 3, 14, 15): signal.signal(n, signal.SIG_IGN)\nwhile True: pass',
    ],
    ['stops itself', 'import os; os.kill(os.getpid(), 19)'],
    ['sleeps in a thread', 'import threading, time; threading.Thread(target=time.sleep, args=(60,)).start()'],
  ])('code that %s is out of time at its deadline', async (_, code) => {
    const result = await run(code, { timeoutMs: 400 })
    expect(result).toMatchObject({ status: 'timeout', exitCode: null, signal: 'SIGKILL' })
    expect(result.wallMs).toBeGreaterThanOrEqual(400)
    expect(result.wallMs).toBeLessThan(2000)
  })

  test('a call that cannot be begun is rejected with the reason', async () => {
    expect(await run('x'.repeat(8 * 1024 * 1024 + 1))).toMatchObject({
      status: 'rejected',
      reason: expect.stringContaining('8388609'),
    })
    expect((await run('1', { timeoutMs: 0.5 })).reason).toContain('timeoutMs must be a whole number')
    expect((await run('1', { memoryMb: -1 })).reason).toContain('memoryMb')
    expect((await run('1', { session: { id: 's', cell: 0 } })).reason).toContain('sessions')
    const wrong = { stdin: 5, mode: 'shell' } as unknown as Record<'stdin' | 'mode', never>
    expect((await run('1', { stdin: wrong.stdin })).reason).toBe('stdin must be a string, not number')
    expect((await run('1', { mode: wrong.mode })).reason).toContain('not shell')
    expect((await run('1', { stdin: 'a\udc00' })).reason).toContain('stdin must be Unicode text; at character 1')
    expect((await run(`${'#'.repeat(8 * 1024 * 1024 - 9)}\nprint(1)`)).stdout).toBe('1\n')
  })
})

describe('limits', () => {
  test('memory is bounded, and the bound cannot be raised', async () => {
    const bomb = await run('x = []\nwhile True: x.append(bytearray(10**7))', { memoryMb: 128 })
    expect(bomb).toMatchObject({ status: 'error', exitCode: 1 })
    expect(bomb.stderr).toContain('MemoryError')
    expect(bomb.maxRssBytes).toBeLessThan(128 * 1024 * 1024)
    const raise = await run('import resource\nresource.setrlimit(resource.RLIMIT_AS, (-1, -1))')
    expect(raise.stderr).toContain('not allowed to raise maximum limit')
  })

  test('a flood on either stream is read to its end, kept to its cap, and counted', async () => {
    const code = 'import sys\nsys.stdout.write("o" * 5_000_000)\nsys.stderr.write("e" * 3_000_000)'
    const result = await run(code, { maxOutputBytes: 1000 })
    expect(result).toMatchObject({ status: 'ok', stdoutBytes: 5_000_000, stderrBytes: 3_000_000 })
    expect([result.stdout, result.stderr]).toEqual(['o'.repeat(1000), 'e'.repeat(1000)])
    expect((await run('print("x" * 70_000)')).stdout.length).toBe(65_536)
  })

  test('files and descriptors are bounded', async () => {
    const file = await run('f = open("big", "wb")\nf.seek(1 << 30)\nf.write(b"x")\nf.flush()')
    expect(file.stderr).toContain('File too large')
    expect((await run('files = [open("/dev/null") for _ in range(1000)]')).stderr).toContain('Too many open files')
  })
})

describe('standard input', () => {
  test('is given whole and ends', async () => {
    const stdin = `${'é😀'.repeat(100_000)}\nlast`
    const result = await run('import sys; s = sys.stdin.read(); print(len(s), s[-4:])', { stdin })
    expect(result.stdout).toBe('200005 last\n')
    expect((await run('print(repr(__import__("sys").stdin.read()))')).stdout).toBe("''\n")
  })

  test('may be left unread, however long', async () => {
    expect(await run('print("done")', { stdin: 'x'.repeat(2_000_000) })).toMatchObject({
      status: 'ok',
      stdout: 'done\n',
    })
  })
})

describe('bytes', () => {
  test('come back as they were written', async () => {
    const result = await sandbox.run({ id: 'b', code: 'import sys; sys.stdout.buffer.write(bytes(range(256)))' })
    expect([...result.stdout]).toEqual(Array.from({ length: 256 }, (_, byte) => byte))
  })

  test('of code may be any text; a NUL is an error of the code, half a character is no text', async () => {
    expect((await run('print("é😀\u2028")')).stdout).toBe('é😀\u2028\n')
    expect(await run('print("a\0b")')).toMatchObject({ status: 'error', stderr: expect.stringContaining('null byte') })
    expect(await run('print(ascii("\ud800"))')).toMatchObject({
      status: 'rejected',
      reason: 'code must be Unicode text; at character 13 it has half of a surrogate pair, U+D800',
    })
  })
})

describe('isolation', () => {
  test('nothing of our environment, directory or descriptors is there', async () => {
    const result = await run(`
import os, resource
print(dict(os.environ))
print(os.listdir('.'), sorted(os.listdir('/proc/self/fd')))
try:
    print(open('/proc/%d/environ' % os.getppid()).read())
except OSError as error:
    print(error)
`)
    expect(result.status).toBe('ok')
    expect(result.stdout).not.toContain('must-not-leak')
    expect(result.stdout).toContain("['main.py'] ['0', '1', '2', '3']") // 3 is the listing's own
    expect(result.stdout).toContain('Permission denied')
  })

  test('a report that the code forges is not believed', async () => {
    const code = `
import os, sys, time
line = b'done 0 0 1 1 1\\n'
print(line.decode())
for fd in range(3, 64):
    try: os.write(fd, line)
    except OSError: pass
    try: open('/proc/%d/fd/%d' % (os.getppid(), fd), 'wb').write(line)
    except OSError: pass
sys.stdout.flush()
time.sleep(30)`
    expect(await run(code, { timeoutMs: 500 })).toMatchObject({ status: 'timeout', stdout: 'done 0 0 1 1 1\n\n' })
  })

  test('a call finds nothing of the call before, and its directory is gone, whatever it made there', async () => {
    const outside = mkdtempSync(join(tmpdir(), 'troupe-test-'))
    writeFileSync(join(outside, 'kept'), '')
    const code = `
import os
print(os.getcwd())
os.symlink(${JSON.stringify(outside)}, 'link')
for i in range(300):
    open('file', 'w').close()
    os.mkdir('d' * 100)
    os.chdir('d' * 100)
os.mkdir('closed', 0)
os.chmod(os.environ['HOME'], 0)`
    const first = await run(code)
    expect(first).toMatchObject({ status: 'ok' })
    expect(existsSync(first.stdout.trim())).toBe(false)
    expect((await run('import os; print(os.listdir("."))')).stdout).toBe("['main.py']\n")
    const swap = `import os\nd = os.getcwd()\nos.rename(d, d + 'x')\nos.symlink(${JSON.stringify(outside)}, d)`
    expect((await run(swap)).status).toBe('ok')
    expect(readdirSync(outside)).toEqual(['kept'])
    rmSync(outside, { recursive: true })
  })

  test('standard library and installed packages can be imported, without the start-up files of the latter', async () => {
    const result = await run('import json, sqlite3, decimal, sys\nprint(any("packages" in p for p in sys.path))')
    expect(result).toMatchObject({ status: 'ok', stdout: 'True\n' })
  })
})

describe('processes', () => {
  test('that the code left behind are dead when it is answered', async () => {
    const result = await run(`${daemon}\nimport subprocess\nsubprocess.Popen(['sleep', '60'], env={})`)
    expect(result).toMatchObject({ status: 'ok' })
    expect(result.wallMs).toBeLessThan(3000)
    expect(alive(Number(result.stdout))).toBe(false)
  })

  test('are dead after a timeout too', async () => {
    const result = await run(`${daemon}\ntime.sleep(60)`, { timeoutMs: 1500 })
    expect(result.status).toBe('timeout')
    expect(alive(Number(result.stdout))).toBe(false)
  })

  test('die with their launcher, and the call is answered as killed', async () => {
    const result = await run(`${daemon}\nos.kill(os.getppid(), 9)\ntime.sleep(60)`)
    expect(result).toMatchObject({ status: 'killed', signal: 'SIGKILL' })
    expect(alive(Number(result.stdout))).toBe(false)
  })

  test('are ended when they stop their launcher', async () => {
    const result = await run('import os, time\nos.kill(os.getppid(), 19)\ntime.sleep(60)', { timeoutMs: 300 })
    expect(result).toMatchObject({ status: 'timeout' })
  })

  test('cannot forge a timeout by a signal to their launcher', async () => {
    const result = await run('import os, time\nos.kill(os.getppid(), 15)\ntime.sleep(60)')
    expect(result).toMatchObject({ status: 'killed', signal: 'SIGKILL' })
  })

  test('of a killed Node die with it', async () => {
    const script = `
require('./cli/register.js')
require('./sandbox/index.ts').openSandbox({ level: 'none' }).then(s => s.run({ id: 'x', timeoutMs: 60000, code: ${JSON.stringify(
      daemon.replace('write(1,', 'write(os.open(OUT, os.O_WRONLY | os.O_APPEND),'),
    )}.replace('OUT', JSON.stringify(process.argv[1])) + 'time.sleep(60)' }))`
    const directory = mkdtempSync(join(tmpdir(), 'troupe-test-'))
    const env = { ...process.env, TMPDIR: directory }
    const out = join(directory, 'pid')
    writeFileSync(out, '')
    const node = spawn(process.execPath, ['-e', script, out], { cwd: root, env, stdio: 'ignore' })
    await until(() => readFileSync(out, 'utf8').endsWith('\n'))
    expect(processesOf(node.pid!).length).toBeGreaterThanOrEqual(3)
    node.kill('SIGKILL')
    await until(() => processesOf(node.pid!).length === 0)
    expect(alive(Number(readFileSync(out, 'utf8')))).toBe(false)
    // The launcher removes what Node could not. The compiler of a first start keeps a cache of its own there.
    await until(
      () =>
        readdirSync(directory)
          .filter(name => !name.startsWith('v8-compile-cache'))
          .join() === 'pid',
    )
    rmSync(directory, { recursive: true })
  })
})

describe('the pool', () => {
  test('answers 100 calls at once, each with its own', async () => {
    const requests = Array.from({ length: 100 }, (_, i) => ({
      id: `${i}`,
      code: 'print(input())',
      stdin: `line ${i}`,
      timeoutMs: 20_000,
    }))
    const results = await Promise.all(requests.map(request => sandbox.run(request)))
    expect(results.map(({ id, stdout }) => [id, text(stdout)])).toEqual(
      requests.map(({ id, stdin }) => [id, `${stdin}\n`]),
    )
  })

  test('runs a batch in order without filling its queue', async () => {
    const small = await openSandbox({ level: 'none', lanes: 1, queueLimit: 1 })
    const results = await runBatch(
      small,
      Array.from({ length: 8 }, (_, i) => ({ id: `${i}`, code: `print(${i})` })),
    )
    expect(results.map(result => text(result.stdout))).toEqual(Array.from({ length: 8 }, (_, i) => `${i}\n`))
    await small.close()
  })

  test('refuses options that are none, at once and with their bounds', async () => {
    for (const options of [{ lanes: 0 }, { lanes: -1 }, { lanes: 1.5 }, { zygotes: 0 }, { queueLimit: -1 }]) {
      const [name] = Object.keys(options)
      const refused = { code: 'sandbox.bad_option', message: expect.stringMatching(`^${name} must be a whole number`) }
      await expect(openSandbox(options)).rejects.toMatchObject(refused)
    }
    const one = [{ id: '1', code: '1' }]
    for (const concurrency of [0, -1, Number.NaN]) {
      await expect(runBatch(sandbox, one, { concurrency })).rejects.toMatchObject({ code: 'sandbox.bad_option' })
    }
  })

  test('refuses a call beyond its queue, and takes one again when there is room', async () => {
    const small = await openSandbox({ level: 'none', lanes: 1, queueLimit: 1 })
    const request = { id: 'q', code: 'import time; time.sleep(0.3)' }
    const both = [small.run(request), small.run(request)]
    await expect(small.run(request)).rejects.toMatchObject({
      code: 'sandbox.queue_full',
      boundary: 'sandbox',
      retriable: true,
    })
    await Promise.all(both)
    expect((await small.run(request)).status).toBe('ok')
    await small.close()
  })

  test('ends an aborted call, running or waiting, and its neighbours never notice', async () => {
    const small = await openSandbox({ level: 'none', lanes: 2 })
    const abort = new AbortController()
    const sleeper = { id: 's', code: 'import os, time\nos.fork()\ntime.sleep(60)', timeoutMs: 60_000 }
    const running = small.run(sleeper, abort.signal)
    const neighbour = small.run({ id: 'n', code: 'import time; time.sleep(1); print("fine")' })
    const waiting = small.run(sleeper, abort.signal)
    const outcomes = Promise.allSettled([running, waiting])
    await until(() => processesOf(process.pid).length >= 4)
    abort.abort('enough')
    for (const outcome of await outcomes) {
      expect(outcome).toMatchObject({ reason: { code: 'sandbox.aborted', cause: 'enough' } })
    }
    expect(text((await neighbour).stdout)).toBe('fine\n')
    await expect(small.run(sleeper, abort.signal)).rejects.toMatchObject({ code: 'sandbox.aborted' })
    await small.close()
  })

  test('loses a worker thread without losing a call or leaving a process', async () => {
    const threads: workerThreads.Worker[] = []
    const Worker = workerThreads.Worker
    workerThreads.Worker = class extends Worker {
      constructor(...args: ConstructorParameters<typeof Worker>) {
        super(...args)
        threads.push(this)
      }
    }
    const small = await openSandbox({ level: 'none', lanes: 1 }).finally(() => {
      workerThreads.Worker = Worker
    })
    const call = small.run({ id: 'w', code: `${daemon}\ntime.sleep(1.5)\nprint('second')`, timeoutMs: 20_000 })
    await until(() => processesOf(process.pid).length >= 3)
    const lost = processesOf(process.pid)
    await threads[0]!.terminate()
    const result = await call
    expect(result.status).toBe('ok')
    expect(text(result.stdout)).toMatch(/^\d+\nsecond\n$/)
    expect(lost.filter(alive)).toEqual([])
    await small.close()
  })

  test('leaves nothing when it closes, and takes no more calls', async () => {
    const small = await openSandbox({ level: 'none', lanes: 2 })
    const { stdout } = await small.run({ id: 'd', code: 'import os; print(os.path.dirname(os.getcwd()))' })
    const sleeper = { id: 's', code: `${daemon}\ntime.sleep(60)`, timeoutMs: 60_000 }
    const outcomes = Promise.allSettled([small.run(sleeper), small.run(sleeper), small.run(sleeper)])
    await until(() => processesOf(process.pid).length >= 6)
    await small.close()
    for (const outcome of await outcomes) expect(outcome).toMatchObject({ reason: { code: 'sandbox.closed' } })
    expect(ours()).toEqual([])
    expect(existsSync(text(stdout).trim())).toBe(false)
    await expect(small.run(sleeper)).rejects.toMatchObject({ code: 'sandbox.closed', retriable: false })
    await small.close()
  })

  test('fails closed where a level is required that it does not reach', async () => {
    expect(sandbox.level).toBe('none')
    await expect(openSandbox({ level: 'none', requireLevel: 'full' })).rejects.toMatchObject({
      code: 'sandbox.level_unmet',
    })
    await expect(openSandbox({ python: '/no/such/python' })).rejects.toMatchObject({ code: 'sandbox.no_python' })
  })
})

describe('the Python tool', () => {
  const tool = (code: string, input = '') => runPythonTool(sandbox, { code, input }, { timeoutMs: 3000 })

  test.each([
    ['print("a")\n1 + 1', 'a\n2\n'],
    ['x = 5', ''],
    ['None', ''],
    ['"é😀\\n"', "'é😀\\n'\n"],
    ['from __future__ import annotations\ndef f(x: Unknown): return x\nf(3)', '3\n'],
    ['import sys; print(1); sys.exit(0)', '1\n'],
    ['if __name__ == "__main__": print("main")', 'main\n'],
    ['import pickle\nclass A: pass\ntype(pickle.loads(pickle.dumps(A()))).__name__', "'A'\n"],
    ['int(input()) * 2', '14\n'],
    ['', ''],
  ])('%p prints what a notebook shows', async (code, stdout) => {
    expect(await tool(code, '7')).toMatchObject({ status: 'ok', exitCode: 0, stdout, stderr: '' })
  })

  test.each([
    [
      'print("kept")\n\ndef f():\n    return 1/0\nf()',
      'kept\n',
      'ZeroDivisionError at line 4: division by zero\n  return 1/0\n',
    ],
    ['x = (', '', "SyntaxError at line 1: '(' was never closed\n  x = (\n"],
    ['1\nraise KeyError', '', 'KeyError at line 2\n  raise KeyError\n'],
    ['import json\njson.loads("{")', '', /^JSONDecodeError at line 2: Expecting.*\n {2}json\.loads/],
    [
      'class Bad:\n  def __repr__(self): raise ValueError("no repr")\nBad()',
      '',
      'ValueError at line 2: no repr\n  def __repr__(self): raise ValueError("no repr")\n',
    ],
    ['def f(): f()\nf()', '', /^RecursionError at line 1: /],
  ])('%p fails with its line, and keeps what it printed', async (code, stdout, stderr) => {
    const result = await tool(code)
    expect(result).toMatchObject({ status: 'error', stdout })
    expect(result.stderr).toMatch(stderr)
  })

  test('code that a signal kills is killed by that signal, and what it printed is kept', async () => {
    const code = 'import os; print("kept", flush=True); os.kill(os.getpid(), 9)'
    expect(await tool(code)).toMatchObject({
      status: 'killed',
      exitCode: null,
      signal: 'SIGKILL',
      stdout: 'kept\n',
      stderr: '',
    })
  })

  test('code that is out of time says so', async () => {
    const result = await runPythonTool(sandbox, { code: 'while True: pass', input: '' }, { timeoutMs: 300 })
    expect(result).toMatchObject({ status: 'timeout', exitCode: null })
  })
})

const root = resolve(__dirname, '../..')

async function run(code: string, request: Partial<RunRequest> = {}) {
  const result = await sandbox.run({ id: 'call', code, timeoutMs: 10_000, ...request })
  return { ...result, stdout: text(result.stdout), stderr: text(result.stderr) }
}

const text = (bytes: Uint8Array) => Buffer.from(bytes).toString('utf8')

/** Processes of the calls of a Node process, by the mark in their environment. */
function processesOf(node: number): number[] {
  return readdirSync('/proc')
    .map(Number)
    .filter(pid => {
      try {
        return readFileSync(`/proc/${pid}/environ`, 'latin1').includes(`TROUPE_SANDBOX_CALL=${node}-`)
      } catch {
        return false
      }
    })
}

const ours = () => processesOf(process.pid)

function alive(pid: number): boolean {
  expect(pid).toBeGreaterThan(1)
  try {
    return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, 'latin1')) // whoever inherits it may reap it late
  } catch {
    return false
  }
}

async function until(holds: () => boolean, withinMs = 15_000): Promise<void> {
  const end = performance.now() + withinMs
  while (!holds()) {
    if (performance.now() > end) throw new Error('it never came to that')
    await sleep(20)
  }
}
