/**
 * What a session promises: a cell sees what the cells before it made, and nothing else, whatever happened meanwhile.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { openSandbox, openSession, type RunRequest, runNotebookCell, type Sandbox } from '../../sandbox'
import { processesOf } from '../support/sessionProcesses'
import { until } from '../support/until'

const text = (bytes: Uint8Array) => Buffer.from(bytes).toString('utf8')

let sandbox: Sandbox & { readonly zygotePids?: readonly number[] }
beforeAll(async () => {
  sandbox = await openSandbox({ requireLevel: 'full' })
})
afterAll(() => sandbox.close())

let sessions = 0
const fresh = () => `s${sessions++}`

async function cell(id: string, n: number, code: string, more: Partial<RunRequest> = {}) {
  const result = await sandbox.run({ id: 'cell', code, timeoutMs: 20_000, session: { id, cell: n }, ...more })
  return { ...result, stdout: text(result.stdout), stderr: text(result.stderr) }
}

test('a cell sees the names, imports and files of the cells before it', async () => {
  const id = fresh()
  expect(await cell(id, 0, 'import math\nx = 20\nopen("f", "w").write("file")')).toMatchObject({ stdout: '4\n' })
  expect(await cell(id, 1, 'def f(): return x + math.floor(2.5)\nf()')).toMatchObject({ stdout: '22\n' })
  expect(await cell(id, 2, 'x += 20\nprint(f(), open("f").read())')).toMatchObject({ stdout: '42 file\n' })
  expect(await cell(id, 3, 'input() + input()', { stdin: 'a\nb\n' })).toMatchObject({ stdout: "'ab'\n" })
  expect(await cell(id, 4, 'y = x\n1 / 0')).toMatchObject({
    status: 'error',
    stderr: 'ZeroDivisionError at line 2: division by zero\n  1 / 0\n',
  })
  expect(await cell(id, 5, 'y')).toMatchObject({ stdout: '40\n' })
})

test('a cell that is asked for again runs from the cell before it, and draws the same numbers', async () => {
  const id = fresh()
  await cell(id, 0, 'import random\nx = [1]')
  const first = await cell(id, 1, 'x.append(2)\nprint(x, random.random())')
  expect(first.stdout).toMatch(/^\[1, 2\] /)
  expect((await cell(id, 1, 'x.append(2)\nprint(x, random.random())')).stdout).toBe(first.stdout)
  expect((await cell(id, 2, 'print(x, random.random())')).stdout).not.toContain(first.stdout.slice(7))
  await cell(id, 1, 'x.append(3)')
  expect((await cell(id, 2, 'x')).stdout).toBe('[1, 3]\n')
})

test('files are those of the cells before it too, when a cell is asked for again', async () => {
  const id = fresh()
  await cell(id, 0, 'import os\nopen("a", "w").close()')
  expect((await cell(id, 1, 'open("b", "w").close()\nsorted(os.listdir())')).stdout).toBe("['a', 'b']\n")
  expect((await cell(id, 1, 'sorted(os.listdir())')).stdout).toBe("['a']\n")
})

test('a cell that is killed leaves the session as it was before it', async () => {
  const id = fresh()
  await cell(id, 0, 'x = 1')
  expect(await cell(id, 1, 'x = 2\nwhile True: pass', { timeoutMs: 300 })).toMatchObject({ status: 'timeout' })
  expect((await cell(id, 2, 'x')).stdout).toBe('1\n')
  expect(await cell(id, 3, 'x = 3\nimport os; os._exit(4)')).toMatchObject({ status: 'error', exitCode: 4 })
  expect((await cell(id, 4, 'x')).stdout).toBe('1\n')
  expect(await cell(id, 5, 'exit(3)')).toMatchObject({ status: 'error', exitCode: 3 })
  expect(await cell(id, 6, 'x = 6\nos = __import__("os"); os.kill(os.getpid(), 19)')).toMatchObject({
    status: 'killed',
  })
  expect((await cell(id, 7, 'x')).stdout).toBe('1\n')
})

test("a cell's memory is bounded by its own memoryMb, which it cannot change", async () => {
  const take = 'x = bytearray(700 << 20)\nprint(len(x) >> 20)\ndel x'
  for (const limits of [
    [1500, 64, 1500],
    [64, 1500, 64],
  ]) {
    const id = fresh()
    for (const [n, memoryMb] of limits.entries()) {
      const ended = memoryMb > 700 ? ['700\n', ''] : ['', 'MemoryError at line 1\n  x = bytearray(700 << 20)\n']
      const { stdout, stderr } = await cell(id, n, take, { memoryMb })
      expect([stdout, stderr]).toEqual(ended)
    }
  }
  const id = fresh()
  const raise = `
import ctypes, resource, os
libc = ctypes.CDLL(None, use_errno=True)
hard = resource.getrlimit(resource.RLIMIT_AS)[1]
both = (ctypes.c_ulong * 2)(2**63, hard)
ways = [lambda: resource.setrlimit(resource.RLIMIT_AS, (hard, hard)), lambda: resource.prlimit(0, resource.RLIMIT_AS, (hard, hard)),
  lambda: resource.prlimit(os.getpid(), resource.RLIMIT_AS, (hard, hard)), lambda: os.kill(1, libc.syscall(160, 9, both)),
  lambda: os.kill(1, libc.syscall(302, 0, 9, both, None)), lambda: os.kill(1, libc.syscall(302, ctypes.c_long(1 << 32), 9, both, None))]
raised = []
for n, way in enumerate(ways):
    try: way()
    except (OSError, ValueError): continue
    raised.append(n)
try: raised.append(len(bytearray(700 << 20)))
except MemoryError: pass
resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))
print(raised, resource.prlimit(0, resource.RLIMIT_AS)[0] == resource.getrlimit(resource.RLIMIT_AS)[0] < 2**31)`
  expect(await cell(id, 0, raise, { memoryMb: 64 })).toMatchObject({ stdout: '[] True\n', stderr: '' })
})

test('what a cell keeps of its streams, the next ones cannot fill', async () => {
  const id = fresh()
  const keep = 'import os\nkept = [os.dup(fd) for fd in (0, 1, 2)]\nprint("out")'
  expect(await cell(id, 0, keep, { stdin: 'in' })).toMatchObject({ stdout: 'out\n' })
  const fill = `
for fd in kept:
    for way in (lambda: os.write(fd, b'x' * (1 << 20)), lambda: os.pwrite(fd, b'x', 1 << 30), lambda: os.ftruncate(fd, 1 << 20)):
        try: print(way())
        except OSError: pass
print(max(os.fstat(fd).st_blocks for fd in kept[1:]))`
  expect(await cell(id, 1, fill)).toMatchObject({ stdout: '0\n', stderr: '' })
})

test('files that a cell leaves open are the same files in the next cells, whatever else is opened or closed', async () => {
  const id = fresh()
  await cell(id, 0, 'import os\nf = open("a", "w")')
  await cell(id, 1, 'g = open("b", "w")\nn = f.write("for a") + g.write("for b")\nf.flush(); g.flush()')
  expect((await cell(id, 2, 'print(open("a").read(), open("b").read(), f.fileno() != g.fileno())')).stdout).toBe(
    'for a for b True\n',
  )
  expect(
    await cell(id, 3, 'os.closerange(3, 64)\nfor fd in (3, 4, 5): os.dup2(1, fd) if fd != 4 else None'),
  ).toMatchObject({
    status: 'ok',
  })
  const taken = 'files = []\ntry:\n  while True: files.append(open(os.__file__))\nexcept OSError: pass\nlen(files) > 40'
  expect(await cell(id, 4, taken)).toMatchObject({ stdout: 'True\n' })
  expect(await cell(id, 5, '1')).toMatchObject({
    status: 'error',
    stderr: expect.stringContaining('no descriptor free'),
  })
})

test('a cell that is asked for again, or runs in a branch, reads an open file from where the cell before it had left it', async () => {
  const ways = {
    'a file': ['import os\nf = open(os.__file__, "rb", 0)', 'f.read(8)'],
    'shared memory': ['import mmap\nm = mmap.mmap(-1, 4096)\nm[0] = 1', 'm[0] += 1\nm[0]'],
  }
  for (const [first, next] of Object.values(ways)) {
    const session = openSession(sandbox)
    await session.run(first!)
    const branch = session.fork()
    const said = text((await session.run(next!)).stdout)
    expect(said).not.toBe('')
    expect([text((await branch.run(next!)).stdout), (await cell(session.id, 1, next!)).stdout]).toEqual([said, said])
    await session.run(`${next}\nwhile True: pass`, { timeoutMs: 300 })
    expect((await cell(session.id, 1, next!)).stdout).toBe(said)
    session.close()
    branch.close()
  }
})

test('timers, signals and threads of a cell end with it, and its session goes on', async () => {
  const id = fresh()
  const late =
    'import signal, os\ndef late(*_): raise TimeoutError("late")\nfor s in (14, 26, 27): signal.signal(s, late)'
  const timers = 'for which in (0, 1, 2): _ = signal.setitimer(which, 0.05)'
  await cell(id, 0, `x = 1\n${late}\n${timers}`)
  await sleep(200)
  expect((await cell(id, 1, 'x += 1\nx')).stdout).toBe('2\n')
  await cell(id, 2, `for s in (14, 26, 27): signal.signal(s, signal.SIG_DFL)\n${timers}`)
  await sleep(200)
  expect((await cell(id, 3, 'import time\ntime.sleep(0.05)\nx += 1\nx')).stdout).toBe('3\n')
  const masked = 'signal.pthread_sigmask(signal.SIG_BLOCK, []) == set()'
  expect((await cell(id, 4, masked)).stdout).toBe('True\n')
  const threads = `import threading
def spin():
  while True: pass
threading.Thread(target=spin, daemon=True).start()
t = threading.Thread(target=lambda: time.sleep(0.05) or print("done"))
t.start()
from concurrent.futures import ThreadPoolExecutor
pool = ThreadPoolExecutor(2)
assert pool.submit(abs, -1).result() == 1`
  expect(await cell(id, 5, threads)).toMatchObject({ status: 'ok', stdout: 'done\n' })
  const after = 't.join()\nprint("joined", threading.active_count())\nThreadPoolExecutor(1).submit(abs, -2).result()'
  expect(await cell(id, 6, after)).toMatchObject({ status: 'ok', stdout: 'joined 1\n2\n' })
  expect(await cell(id, 7, 'import logging\nlogging.warning("x")')).toMatchObject({
    status: 'ok',
    stderr: 'WARNING:root:x\n',
  })
  const interrupted = `signal.signal(14, late)
threading.Thread(target=lambda: time.sleep(0.6) or print("whole")).start()
_ = signal.setitimer(0, 0.3)`
  const { stdout, stderr } = await cell(id, 8, interrupted)
  expect([stdout, stderr.includes('TimeoutError: late'), stderr.includes('running.py')]).toEqual([
    'whole\n',
    true,
    false,
  ])
  const waits = 'e = threading.Event()\nthreading.Thread(target=e.wait).start()'
  expect(await cell(id, 9, waits, { timeoutMs: 400 })).toMatchObject({ status: 'timeout' })
  expect((await cell(id, 10, 'x')).stdout).toBe('3\n')
})

test('branches that run at once wait for one another, leave nothing and run no cell twice', async () => {
  const single = (await openSandbox({ requireLevel: 'full', zygotes: 1, lanes: 8 })) as Sandbox & {
    readonly sessionBytes: number
  }
  const marks = 'import time, random\nfirst = time.monotonic()\nx = 1'
  for (const more of ['', '\nopen("f", "a").write("x")']) {
    const trunk = openSession(single)
    await trunk.run(marks)
    const began = text((await trunk.run('first')).stdout)
    const branches = [trunk, ...Array.from({ length: 4 }, () => trunk.fork())]
    const results = await Promise.all(branches.map(one => one.run(`time.sleep(0.03)\nx += 1${more}\nx`)))
    expect(results.map(({ status, stdout }) => [status, text(stdout)])).toEqual(branches.map(() => ['ok', '2\n']))
    if (more === '') for (const one of branches) expect(text((await one.run('first')).stdout)).toBe(began)
    for (const one of branches) one.close()
  }
  expect(single.sessionBytes).toBe(0)
  await until(() => processesOf(single).length === 0)
  await single.close()
})

test('a cell that is aborted has done nothing to what the cell asked again sees', async () => {
  const id = fresh()
  await cell(id, 0, 'import os, time\nf = open(os.__file__)')
  for (const [does, sees, said] of [
    ['open("f", "w")', 'os.listdir()', '[]\n'],
    ['f.read()', 'f.tell()', '0\n'],
  ]) {
    const stop = AbortSignal.timeout(300)
    const code = `${does}\ntime.sleep(20)`
    const request: RunRequest = { id: 'aborted', code, timeoutMs: 20_000, session: { id, cell: 1 } }
    await expect(sandbox.run(request, stop)).rejects.toMatchObject({ code: 'sandbox.aborted' })
    expect((await cell(id, 1, sees!)).stdout).toBe(said)
  }
})

test('a branch that is aborted while it waits for another is answered at once, and its turn passes', async () => {
  const trunk = openSession(sandbox)
  await trunk.run('import time')
  const [first, second] = [trunk.fork(), trunk.fork()]
  const long = first.run('time.sleep(1.5)\nprint("done")')
  await sleep(100)
  const began = performance.now()
  await expect(second.run('1', {}, AbortSignal.timeout(100))).rejects.toMatchObject({ code: 'sandbox.aborted' })
  expect(performance.now() - began).toBeLessThan(1200)
  expect(text((await long).stdout)).toBe('done\n')
  expect(text((await second.run('2')).stdout)).toBe('2\n')
  for (const one of [trunk, first, second]) one.close()
})

test('cells that are aborted as they end leave no process', async () => {
  const single = (await openSandbox({ requireLevel: 'full', zygotes: 1, lanes: 2 })) as Sandbox & {
    readonly sessionBytes: number
  }
  for (let n = 0; n < 40; n++) {
    const session = openSession(single)
    const stop = new AbortController()
    const ran = session.run('1', {}, stop.signal).catch(() => undefined)
    await sleep(n / 8)
    stop.abort()
    await ran
    session.close()
  }
  await until(() => processesOf(single).length === 0)
  expect(single.sessionBytes).toBe(0)
  await single.close()
})

test('the memory of cells that were let go counts as long as a later one holds it', async () => {
  const single = (await openSandbox({ requireLevel: 'full', zygotes: 1, lanes: 4 })) as Sandbox & {
    readonly sessionBytes: number
  }
  const mib = () => single.sessionBytes / 2 ** 20
  const session = openSession(single)
  await session.run('x = bytearray(b"x") * (100 << 20)')
  for (let n = 0; n < 4; n++) await session.run('1')
  expect(mib()).toBeGreaterThan(99)
  expect(mib()).toBeLessThan(115)
  const branches = [session.fork(), session.fork()]
  for (let n = 0; n < 3; n++) for (const one of [session, ...branches]) await one.run('y = 1')
  session.close()
  branches[0]!.close()
  expect(mib()).toBeGreaterThan(99)
  expect(mib()).toBeLessThan(130)
  await branches[1]!.run('del x')
  for (let n = 0; n < 20; n++) await branches[1]!.run('z = bytearray(b"z") * (4 << 20)')
  expect(mib()).toBeLessThan(30)
  await branches[1]!.run('open("f", "wb").write(b"f" * (9 << 20))')
  expect(mib()).toBeGreaterThan(12)
  branches[1]!.close()
  expect(mib()).toBe(0)
  await single.close()
})

test('sessions fork and go their own ways', async () => {
  const session = openSession(sandbox)
  await session.run('x = [0]')
  const other = session.fork()
  await session.run('x.append(1)')
  await other.run('x.append(2)')
  const third = other.fork()
  expect([text((await session.run('x')).stdout), text((await other.run('x')).stdout)]).toEqual(['[0, 1]\n', '[0, 2]\n'])
  expect(text((await third.run('x')).stdout)).toBe('[0, 2]\n')
  for (const one of [session, other, third]) one.close()
  expect(sandbox.forkSession?.('nobody', 0, 'x')).toBe(false)
})

test('of 40 cells none runs an earlier one again: the first sleeps, and the last ten do not wait for that', async () => {
  const id = fresh()
  const sleepMs = 1000
  const times: number[] = []
  for (let n = 0; n < 40; n++) {
    const began = performance.now()
    expect(
      (await cell(id, n, n === 0 ? `import time; time.sleep(${sleepMs / 1000}); x = 0` : 'x += 1\nx')).status,
    ).toBe('ok')
    times.push(performance.now() - began)
  }
  // The fastest of ten: a busy machine may delay some of them, an earlier cell that runs again would delay all.
  expect(Math.min(...times.slice(30))).toBeLessThan(sleepMs)
})

test('a session whose zygote died is rebuilt from its cells', async () => {
  const id = fresh()
  await cell(id, 0, 'import random\nx = random.random()')
  const { stdout } = await cell(id, 1, 'x')
  for (const pid of sandbox.zygotePids ?? []) process.kill(pid, 'SIGKILL')
  await sleep(50)
  expect((await cell(id, 2, 'x')).stdout).toBe(stdout)
})

test('sessions that are evicted for their memory are rebuilt when they are needed', async () => {
  const small = await openSandbox({ requireLevel: 'full', lanes: 2, sessionMemoryMb: 16 })
  const run = (id: string, n: number, code: string) =>
    small.run({ id: 'c', code, session: { id, cell: n }, timeoutMs: 20_000 }).then(({ stdout }) => text(stdout))
  for (let i = 0; i < 8; i++) await run(`m${i}`, 0, `x = bytearray(b"${i}" * 6_000_000)`)
  const states = (small as unknown as { sessionBytes: number }).sessionBytes
  expect(states).toBeGreaterThan(5_000_000)
  expect(states).toBeLessThan(24_000_000)
  for (let i = 0; i < 8; i++) expect(await run(`m${i}`, 1, 'x[:3]')).toBe(`bytearray(b'${String(i).repeat(3)}')\n`)
  await small.close()
})

test('a sandbox that does not know a session rebuilds it from the history that comes with the cell, or says so', async () => {
  const id = fresh()
  expect(await cell(id, 2, 'x')).toMatchObject({
    status: 'rejected',
    reason: expect.stringContaining('session_unknown'),
  })
  const history = [{ code: 'x = int(input())', stdin: '5\n' }, { code: 'x *= 2' }]
  expect((await cell(id, 2, 'x', { session: { id, cell: 2, history } })).stdout).toBe('10\n')
  expect((await cell(id, 3, 'x + 1')).stdout).toBe('11\n')
  expect(await cell(fresh(), 0, '1', { maxProcesses: 2 })).toMatchObject({ status: 'rejected' })
})

test('cells of a history have the limits of the request that brings it', async () => {
  const history = [{ code: 'import time; time.sleep(4.2); x = bytearray(700 << 20)' }]
  const limits = { memoryMb: 1500, timeoutMs: 20_000 }
  const { stdout, reason } = await cell(fresh(), 1, 'len(x)', { ...limits, session: { id: fresh(), cell: 1, history } })
  expect([stdout, reason]).toEqual([`${700 << 20}\n`, undefined])
})

test('a session is lost, and says at which cell, when a cell that has to run again ends otherwise than it did', async () => {
  const soon = Date.now() / 1000 + 6
  const late = (how: string) => `import time\nx = 1\n${how}`
  const ids = [fresh(), fresh()]
  const ways = [`while time.time() > ${soon}: pass`, `assert time.time() < ${soon}`]
  const first = await Promise.all(ways.map((how, n) => cell(ids[n]!, 0, late(how), { timeoutMs: 2000 })))
  expect(first.map(({ status }) => status)).toEqual(['ok', 'ok'])
  await until(() => Date.now() / 1000 > soon)
  for (const pid of sandbox.zygotePids ?? []) process.kill(pid, 'SIGKILL')
  await sleep(50)
  for (const [n, status] of ['timeout', 'error'].entries()) {
    expect(await cell(ids[n]!, 1, 'x')).toMatchObject({
      status: 'rejected',
      reason: expect.stringMatching(
        `session_lost.*: cell 0 ended with 'ok' the first time, and with '${status}' when it was run again`,
      ),
    })
  }
  expect((await cell(ids[1]!, 0, 'x = 2')).status).toBe('ok')
  expect((await cell(ids[1]!, 1, 'x')).stdout).toBe('2\n')
})

test('a cell of a history that is killed leaves nothing, as one that is asked for, and the result says so', async () => {
  const history = [{ code: 'x = 1' }, { code: 'x = 2\nwhile True: pass' }, { code: 'y = x' }]
  const id = fresh()
  const session = { id, cell: 3, history }
  expect(await cell(id, 3, 'x, y', { timeoutMs: 500, session })).toMatchObject({
    status: 'ok',
    stdout: '(1, 1)\n',
    reason: "cell 1 of the history ended with 'timeout' and left no state",
  })
  expect(await cell(id, 4, 'x, y', { session: { id, cell: 4, history: [...history, { code: '' }] } })).toEqual(
    expect.not.objectContaining({ reason: expect.anything() }),
  )
})

test('cells that are asked for at once run one after the other', async () => {
  const id = fresh()
  const codes = ['x = 1', 'x += 1', 'import time; time.sleep(0.1); x *= 5', 'x']
  const results = await Promise.all(codes.map((code, n) => cell(id, n, code)))
  expect(results.map(({ status, stdout }) => status + stdout)).toEqual(['ok', 'ok', 'ok', 'ok10\n'])
  const session = openSession(sandbox)
  const [, , last] = await Promise.all(['x = 1', 'x += 1', 'x'].map(code => session.run(code)))
  expect(text(last!.stdout)).toBe('2\n')
  session.close()
})

test('a session goes on after a cell that was refused or rejected, and ended, it leaves nothing', async () => {
  const small = (await openSandbox({ requireLevel: 'full', lanes: 1, queueLimit: 1 })) as typeof sandbox & {
    readonly sessionBytes: number
  }
  const session = openSession(small)
  await session.run('x = 1')
  const others = [1, 2].map(n => small.run({ id: `${n}`, code: 'import time; time.sleep(0.5)' }))
  await expect(session.run('x = 2')).rejects.toMatchObject({ code: 'sandbox.queue_full', retriable: true })
  const flood = [0, 1, 2].map(n => small.run({ id: 'f', code: 'x', session: { id: 'f', cell: n } }))
  const [, , beyond] = await Promise.allSettled(flood) // those that wait for their turn are bounded too
  expect(beyond).toMatchObject({ reason: { code: 'sandbox.queue_full' } })
  await Promise.all(others)
  expect((await session.run(5 as unknown as string)).status).toBe('rejected')
  const running = session.run('import time; time.sleep(0.5); x += 1')
  const copy = session.fork()
  await running
  expect(text((await session.run('x')).stdout)).toBe('2\n')
  expect(text((await copy.run('x')).stdout)).toBe('1\n')
  const late = session.run('import time; time.sleep(0.3)')
  await sleep(100)
  session.close()
  copy.close()
  await late
  expect(small.sessionBytes).toBe(0)
  expect(() => session.fork()).toThrow(expect.objectContaining({ code: 'sandbox.session_unknown' }))
  await small.close()
})

test('a history that is none is rejected with the reason, and the sandbox answers as before', async () => {
  const single = await openSandbox({ requireLevel: 'full', lanes: 1 })
  const reasons: unknown[] = []
  for (const history of [[{ code: 5 }], [{ code: 'x', stdin: 5 }], [null], 'abc', [{ code: '\ud800' }]]) {
    const session = { id: 'h', cell: 1, history } as unknown as NonNullable<RunRequest['session']>
    const { status, reason } = await single.run({ id: 'h', code: '1', session })
    expect(status).toBe('rejected')
    reasons.push(reason)
  }
  expect(reasons).toEqual([
    'session.history[0]: code must be a string, not number',
    'session.history[0]: stdin must be a string, not number',
    'session.history[0] must be {code, stdin?}',
    'session.history must be a list of {code, stdin?}, not string',
    expect.stringContaining('session.history[0]: code must be Unicode text'),
  ])
  expect(text((await single.run({ id: 'a', code: 'print(1)' })).stdout)).toBe('1\n')
  const notebook = (code: string, before: string[]) => runNotebookCell(single, { code, session: 'n', before })
  expect(await notebook('x = "\ud800"', ['y = 1'])).toMatchObject({ status: 'rejected' })
  expect((await notebook('y', ['y = 1', 'x = "\ud800"'])).stdout).toBe('1\n')
  await single.close()
})

test('an idle session holds less than 8 MB', async () => {
  const bytes = () => (sandbox as unknown as { sessionBytes: number }).sessionBytes
  const before = bytes()
  const id = fresh()
  await cell(id, 0, 'import json, re\nx = [i * i for i in range(1000)]')
  expect(bytes() - before).toBeGreaterThan(0)
  expect(bytes() - before).toBeLessThan(8 * 2 ** 20)
})
