/**
 * What warm interpreters promise beyond single calls: their levels, their lanes, their deaths.
 */
import { execFileSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { Piscina } from 'piscina'
import { openSandbox, probeLevels, type RunRequest, runPythonTool, type Sandbox } from '../../sandbox'
import { until } from '../support/until'

const text = (bytes: Uint8Array) => Buffer.from(bytes).toString('utf8')

let sandbox: Sandbox & { readonly zygotePids?: readonly number[] }
beforeAll(async () => {
  sandbox = await openSandbox({ requireLevel: 'full' })
})
afterAll(() => sandbox.close())

const run = (code: string, more: Partial<RunRequest> = {}) =>
  sandbox.run({ id: 'call', code, timeoutMs: 20_000, ...more })

/** Zygotes and their children of this process: whoever has one of the zygotes as an ancestor. */
function descendants(): number[] {
  const parents = new Map<number, number>()
  for (const name of readdirSync('/proc').filter(name => /^\d+$/.test(name))) {
    try {
      const stat = readFileSync(`/proc/${name}/stat`, 'latin1')
      const [state, parent] = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
      if (state !== 'Z') parents.set(Number(name), Number(parent))
    } catch {}
  }
  const below = new Set([process.pid])
  for (let before = 0; before !== below.size; ) {
    before = below.size
    for (const [pid, parent] of parents) if (below.has(parent)) below.add(pid)
  }
  return [...below].filter(pid => {
    try {
      return readFileSync(`/proc/${pid}/cmdline`, 'latin1').includes('zygote.py')
    } catch {
      return false
    }
  })
}

test('every level is tried, and the highest is taken', async () => {
  const reports = await probeLevels()
  expect(reports.map(({ level, reached }) => [level, reached])).toEqual([
    ['full', true],
    ['degraded', true],
    ['none', true],
  ])
  expect(sandbox.level).toBe('full')
  const degraded = await openSandbox({ level: 'degraded', lanes: 2 })
  expect(degraded.level).toBe('degraded')
  expect(text((await degraded.run({ id: 'd', code: 'print(1)' })).stdout)).toBe('1\n')
  expect(await degraded.run({ id: 'p', code: '1', maxProcesses: 4 })).toMatchObject({ status: 'rejected' })
  await degraded.close()
  await expect(openSandbox({ level: 'degraded', requireLevel: 'full' })).rejects.toMatchObject({
    code: 'sandbox.level_unmet',
  })
})

test('500 calls at once are each answered with their own output', async () => {
  const results = await Promise.all(
    Array.from({ length: 500 }, (_, i) => run('print(input() * 2)', { id: `${i}`, stdin: `<${i}>` })),
  )
  expect(results.map(({ id, stdout }) => [id, text(stdout)])).toEqual(results.map((_, i) => [`${i}`, `<${i}><${i}>\n`]))
})

test('what is sent and printed may be megabytes', async () => {
  const stdin = 'é'.repeat(4_000_000)
  const result = await run('import sys\ns = sys.stdin.read()\nsys.stdout.write(s)', {
    stdin,
    maxOutputBytes: 9_000_000,
  })
  expect(result.status).toBe('ok')
  expect(text(result.stdout) === stdin).toBe(true)
})

test('120 calls that sleep half a second end in less than 3 s', async () => {
  const began = performance.now()
  const results = await Promise.all(Array.from({ length: 120 }, () => run('import time; time.sleep(0.5)')))
  expect(results.every(({ status }) => status === 'ok')).toBe(true)
  expect(performance.now() - began).toBeLessThan(3000)
})

test('code that computes to its deadline does not hold up the others', async () => {
  const spinning = Array.from({ length: 4 }, () => run('while True: pass', { timeoutMs: 3000 }))
  await sleep(300)
  const began = performance.now()
  for (let i = 0; i < 10; i++) expect((await run('print(1)')).status).toBe('ok')
  expect(performance.now() - began).toBeLessThan(2000)
  for (const result of await Promise.all(spinning)) {
    expect(result.status).toBe('timeout')
    expect(result.wallMs).toBeLessThan(3200)
  }
})

test('where one call in twenty spins, the others neither wait for these nor share their core', async () => {
  const one = await openSandbox({ requireLevel: 'full', zygotes: 1, lanes: 60 })
  try {
    const began = performance.now()
    const run = async (n: number) => {
      const code = n % 20 === 5 && n > 300 ? 'while True: pass' : 'print(1)'
      const { status } = await one.run({ id: String(n), code, timeoutMs: 8000 })
      return { status, ms: performance.now() - began }
    }
    const all = await Promise.all(Array.from({ length: 420 }, (_, n) => run(n)))
    const others = all.filter(({ status }) => status === 'ok')
    expect(others.length).toBe(414)
    // A call that waited for a spinning one, or shared its core, would end after the first of these does.
    const spinning = all.filter(({ status }) => status === 'timeout')
    expect(Math.max(...others.map(({ ms }) => ms))).toBeLessThan(Math.min(...spinning.map(({ ms }) => ms)))
  } finally {
    await one.close()
  }
}, 30_000)

test('a killed zygote loses no call: what it had begun is answered as killed, the rest runs on another', async () => {
  const spinning = [run('while True: pass'), run('while True: pass')]
  await sleep(200)
  const many = Promise.all(Array.from({ length: 100 }, (_, i) => run(`print(${i})`)))
  await sleep(30)
  for (const pid of sandbox.zygotePids ?? []) process.kill(pid, 'SIGKILL')
  for (const result of await Promise.all(spinning)) {
    expect(result).toMatchObject({ status: 'killed', signal: 'SIGKILL', reason: expect.stringContaining('SIGKILL') })
  }
  for (const [i, result] of (await many).entries()) {
    expect(result.status === 'killed' || text(result.stdout) === `${i}\n`).toBe(true)
  }
  expect((await many).filter(result => result.status === 'ok').length).toBeGreaterThan(90)
  expect(text((await run('print("alive")')).stdout)).toBe('alive\n')
})

test('a lost worker thread leaves no process behind: what had begun is answered as killed, the rest runs on', async () => {
  const threads = new Set<{ terminate(): Promise<unknown> }>()
  const started = jest.spyOn(Piscina.prototype, 'run').mockImplementation(function (this: Piscina, ...given) {
    started.mockRestore()
    for (const thread of this.threads) threads.add(thread)
    return this.run(...given)
  })
  const before = new Set(descendants())
  const single = await openSandbox({ requireLevel: 'full', lanes: 1, zygotes: 1 })
  const spinning = single.run({ id: 'a', code: 'while True: pass', timeoutMs: 60_000 })
  await until(async () => descendants().filter(pid => !before.has(pid)).length >= 2)
  const waiting = single.run({ id: 'b', code: 'print(7)', timeoutMs: 20_000 })
  const theirs = descendants().filter(pid => !before.has(pid))
  for (const thread of threads) await thread.terminate()
  expect(await spinning).toMatchObject({ status: 'killed', reason: expect.stringContaining('worker thread') })
  expect(text((await waiting).stdout)).toBe('7\n')
  await until(async () => !descendants().some(pid => theirs.includes(pid)))
  await single.close()
  await until(async () => descendants().every(pid => before.has(pid)))
})

test('gigabytes of output end well: their head and their true size are told, and they take no memory', async () => {
  const sharedMiB = () => Number(/^Shmem:\s+(\d+)/m.exec(readFileSync('/proc/meminfo', 'latin1'))?.[1]) / 1024
  const code = "import os\nprint('head', flush=True)\nfor _ in range(5000): os.write(2, b'x' * (1 << 20))"
  const before = sharedMiB()
  let most = 0
  const watching = setInterval(() => {
    most = Math.max(most, sharedMiB() - before)
  }, 20)
  const result = await run(code, { timeoutMs: 60_000 })
  clearInterval(watching)
  expect(result).toMatchObject({ status: 'ok', stdoutBytes: 5, stderrBytes: 5000 * 2 ** 20 })
  expect(text(result.stdout)).toBe('head\n')
  expect(result.stderr).toEqual(new Uint8Array(65_536).fill(120))
  expect(most).toBeLessThan(1024)
})

test('a zygote that is silent is replaced', async () => {
  const small = await openSandbox({ requireLevel: 'full', lanes: 1 })
  const [pid] = (small as typeof sandbox).zygotePids ?? []
  process.kill(pid!, 'SIGSTOP')
  expect(text((await small.run({ id: 's', code: 'print(2)' })).stdout)).toBe('2\n')
  await small.close()
})

test('an aborted call is ended, and its zygote serves on', async () => {
  const abort = new AbortController()
  const call = sandbox.run({ id: 'a', code: 'while True: pass', timeoutMs: 60_000 }, abort.signal)
  await sleep(100)
  abort.abort('enough')
  await expect(call).rejects.toMatchObject({ code: 'sandbox.aborted', cause: 'enough' })
  expect((await run('print(1)')).status).toBe('ok')
})

test('an aborted call that its zygote has and has not begun is refused before the calls that compute there have ended', async () => {
  for (const noShim of [false, true]) {
    const single = await openSandbox({ requireLevel: 'full', lanes: 8, zygotes: 1, noShim })
    let ended = 0
    const spin = () => single.run({ id: 's', code: 'while True: pass', timeoutMs: 2500 }).then(() => ended++)
    const spinning = Array.from({ length: 5 }, spin)
    await sleep(1000)
    const abort = new AbortController()
    const calls = [1, 2, 3].map(n =>
      single.run({ id: `${n}`, code: `print(${n})` }, n === 2 ? abort.signal : undefined),
    )
    await sleep(100)
    abort.abort()
    await expect(calls[1]).rejects.toMatchObject({ code: 'sandbox.aborted' })
    expect(ended).toBe(0)
    await Promise.all(spinning)
    expect([text((await calls[0]!).stdout), text((await calls[2]!).stdout)]).toEqual(['1\n', '3\n'])
    await single.close()
  }
}, 60_000)

test('processes are refused unless asked for, and then die with their call', async () => {
  expect(text((await run('import os\nos.fork()')).stderr)).toContain('Operation not permitted')
  const code = `import subprocess
subprocess.Popen(['sleep', '1000'])
print(subprocess.run(['sh', '-c', 'echo $((6*7))'], capture_output=True, text=True).stdout)`
  expect(text((await run(code, { maxProcesses: 8 })).stdout)).toBe('42\n\n')
  const bomb = 'import os, time\nwhile True:\n  try: os.fork()\n  except OSError: time.sleep(0.01)'
  expect((await run(bomb, { maxProcesses: 16, timeoutMs: 700 })).status).toBe('timeout')
  expect(sleepers()).toEqual([])
})

test('a C++ program is compiled and run in one call', async () => {
  const code = `import subprocess
open('a.cpp', 'w').write('#include <iostream>\\nint main() { int n; std::cin >> n; std::cout << n * n; }')
subprocess.run(['g++', '-O1', 'a.cpp', '-o', 'a'], check=True)
print(subprocess.run(['./a'], input='12', capture_output=True, text=True).stdout)`
  const result = await run(code, { maxProcesses: 16, memoryMb: 1024 })
  expect([text(result.stdout), text(result.stderr)]).toEqual(['144\n', ''])
})

test('the tool echoes the last expression and reports errors by line', async () => {
  expect(await runPythonTool(sandbox, { code: 'print("a")\n1 + 1', input: '' })).toMatchObject({ stdout: 'a\n2\n' })
  expect(await runPythonTool(sandbox, { code: 'x = 1\n\nx / 0', input: '' })).toMatchObject({
    status: 'error',
    stderr: 'ZeroDivisionError at line 3: division by zero\n  x / 0\n',
  })
})

test('nothing is left when it closes, and it takes no more calls', async () => {
  const small = await openSandbox({ requireLevel: 'full', lanes: 2 })
  const others = new Set(descendants())
  const calls = [1, 2, 3].map(() => small.run({ id: 'x', code: 'import time; time.sleep(60)', timeoutMs: 60_000 }))
  const outcomes = Promise.allSettled(calls)
  await sleep(200)
  await small.close()
  for (const outcome of await outcomes) expect(outcome).toMatchObject({ reason: { code: 'sandbox.closed' } })
  expect(descendants().filter(pid => !others.has(pid))).toEqual([])
  await expect(small.run({ id: 'y', code: '1' })).rejects.toMatchObject({ code: 'sandbox.closed' })
})

const sleepers = () =>
  readdirSync('/proc').filter(name => {
    try {
      return readFileSync(`/proc/${name}/cmdline`, 'latin1') === 'sleep\x001000\0'
    } catch {
      return false
    }
  })

test("packages that are installed under /tmp can be imported, before and after a call begins, and /tmp is the call's", async () => {
  const directory = mkdtempSync('/tmp/troupe-packages-')
  execFileSync('python3', ['-m', 'venv', '--without-pip', directory], { timeout: 60_000 })
  const lib = join(directory, 'lib')
  const packages = join(lib, readdirSync(lib)[0]!, 'site-packages')
  mkdirSync(join(packages, 'early'))
  writeFileSync(join(packages, 'early/__init__.py'), 'import os\nhere = os.path.dirname(__file__)\n')
  writeFileSync(join(packages, 'early/part.py'), 'value = 41\n')
  writeFileSync(join(packages, 'later.py'), 'value = 1\n')
  const own = await openSandbox({
    requireLevel: 'full',
    lanes: 1,
    python: join(directory, 'bin/python'),
    preload: ['early'],
  })
  try {
    const code = `
import early, early.part, later, os, sys
open('/tmp/own', 'w').write('x')
print(early.part.value + later.value, os.listdir('/tmp'), os.path.isdir(early.here), any('troupe-packages' in p for p in sys.path))
`
    const result = await own.run({ id: 'call', code, timeoutMs: 20_000 })
    expect(text(result.stderr)).toBe('')
    expect(text(result.stdout)).toBe("42 ['own'] True False\n")
  } finally {
    await own.close()
    rmSync(directory, { recursive: true, force: true })
  }
}, 120_000)
