/** Without a C compiler the zygote serves in Python: the same answers, the same walls. */
import { openSandbox, openSession, type RunRequest, type Sandbox, type SandboxLevel } from '../../sandbox'

const text = (bytes: Uint8Array) => Buffer.from(bytes).toString('utf8')

describe.each<SandboxLevel>(['full', 'degraded'])('at level %s', level => {
  let sandbox: Sandbox
  beforeAll(async () => {
    sandbox = await openSandbox({ level, noShim: true })
  })
  afterAll(() => sandbox.close())

  const run = (code: string, more: Partial<RunRequest> = {}) =>
    sandbox.run({ id: 'call', code, timeoutMs: 20_000, ...more })

  test('calls at once are each answered with their own output', async () => {
    const stdin = (i: number) => `${i}`.repeat(i % 7 === 0 ? 100_000 : 3)
    const results = await Promise.all(
      Array.from({ length: 60 }, (_, i) =>
        run('print(input())', { id: `${i}`, stdin: stdin(i), maxOutputBytes: 1 << 20 }),
      ),
    )
    for (const [i, { stdout }] of results.entries()) expect(text(stdout) === `${stdin(i)}\n`).toBe(true)
  })

  test.each([
    ['while True: pass', 'timeout'],
    ['import os; os.fork()', 'error'],
    ['import socket; socket.socket()', 'error'],
    ["open('/etc/shadow')", 'error'],
    ["open('/usr/x', 'w')", 'error'],
    ['x = []\nwhile True: x.append(bytearray(10**7))', 'error'],
    ['import ctypes; ctypes.string_at(0)', 'killed'],
    ['import os; os._exit(3)', 'error'],
    ["import os; os.write(0, b'x')", 'error'],
    ["import os; os.setxattr(1, 'user.a', b'x')", 'error'],
    ['print(1)', 'ok'],
  ])('%p ends as it does with the shim', async (code, status) => {
    expect((await run(code, { stdin: 'a', timeoutMs: status === 'timeout' ? 300 : 20_000 })).status).toBe(status)
    expect(text((await run('print("alive")')).stdout)).toBe('alive\n')
  })

  test('gigabytes of output end well, with their true size', async () => {
    const code = "import os\nfor _ in range(4500): os.write(1, b'x' * (1 << 20))"
    const result = await run(code, { timeoutMs: 60_000 })
    expect(result).toMatchObject({ status: 'ok', stdoutBytes: 4500 * 2 ** 20 })
    expect(result.stdout.byteLength).toBe(65_536)
  })

  test("a search of its memory finds no other's code or output", async () => {
    await Promise.all(Array.from({ length: 4 }, () => run('print("CAN" + "ARY" * 1)  # CANARY-CODE')))
    const search = `
import gc
needle = "CAN" + "ARY"
print(len([x for x in gc.get_objects() if isinstance(x, (str, bytes)) and needle in str(x)]))`
    expect(text((await run(search)).stdout)).toBe('0\n')
  })

  test('sessions are refused with the reason', async () => {
    const reason = expect.stringContaining(level === 'full' ? 'C compiler' : "level 'full'")
    expect(await run('1', { session: { id: 's', cell: 0 } })).toMatchObject({ status: 'rejected', reason })
    expect(sandbox.noSessions).toEqual(reason)
    expect(() => openSession(sandbox)).toThrow(
      expect.objectContaining({ code: 'sandbox.level_unmet', message: sandbox.noSessions }),
    )
  })
})
