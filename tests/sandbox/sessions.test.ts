/**
 * What a session promises: a cell sees what the cells before it made, and nothing else, whatever happened meanwhile.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { openSandbox, openSession, type RunRequest, type Sandbox } from '../../sandbox'

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

test('40 cells run at the pace of the first few: a turn does not depend on how many came before', async () => {
  const id = fresh()
  const times: number[] = []
  for (let n = 0; n < 40; n++) {
    const began = performance.now()
    expect((await cell(id, n, n === 0 ? 'x = 0' : 'x += 1\nx')).status).toBe('ok')
    times.push(performance.now() - began)
  }
  const median = (part: number[]) => part.sort((a, b) => a - b)[Math.floor(part.length / 2)]!
  expect(median(times.slice(30))).toBeLessThan(3 * median(times.slice(1, 11)) + 5)
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

test('an idle session holds less than 8 MB', async () => {
  const bytes = () => (sandbox as unknown as { sessionBytes: number }).sessionBytes
  const before = bytes()
  const id = fresh()
  await cell(id, 0, 'import json, re\nx = [i * i for i in range(1000)]')
  expect(bytes() - before).toBeGreaterThan(0)
  expect(bytes() - before).toBeLessThan(8 * 2 ** 20)
})
