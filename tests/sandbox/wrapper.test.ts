/** What a cell and a script print and how they exit: as notebooks and interpreters do, in warm interpreters and in fresh ones. */
import { openSandbox, type Sandbox, type SandboxLevel } from '../../sandbox'

const text = (bytes: Uint8Array) => Buffer.from(bytes).toString('utf8')

describe.each<SandboxLevel>(['full', 'none'])('at level %s', level => {
  let sandbox: Sandbox
  beforeAll(async () => {
    sandbox = await openSandbox({ level, lanes: 2 })
  })
  afterAll(() => sandbox.close())

  async function run(code: string, mode: 'cell' | 'script') {
    const { status, exitCode, stdout, stderr } = await sandbox.run({ id: 'call', code, mode, timeoutMs: 20_000 })
    return { status, exitCode, stdout: text(stdout), stderr: text(stderr) }
  }

  test.each([
    ['x = 3\nx;', ''],
    ['x = 3\nx ; # said', ''],
    ['x = 3\n(x\n) \\\n;', ''],
    ['"é" + "😀";', ''],
    ['1; 2', '2\n'],
    ['x = 3\nx # ;', '3\n'],
    ['";"', "';'\n"],
    ['print("ran");', 'ran\n'],
  ])('of the cell %p what a notebook shows is shown', async (code, stdout) => {
    expect(await run(code, 'cell')).toEqual({ status: 'ok', exitCode: 0, stdout, stderr: '' })
  })

  test.each(['\u2028', '\u0085', '\f', '\v', '\x1c'])('a line with %j in a string is one line', async odd => {
    const code = `s = "a${odd}b"\r\nx = 1\r1/0`
    const error = 'ZeroDivisionError at line 3: division by zero\n  1/0\n'
    expect((await run(code, 'cell')).stderr).toBe(error)
    expect((await run(code, 'script')).stderr).toMatch(/line 3, in <module>\n {4}1\/0\n/)
  })

  test.each([
    ['import sys; sys.exit(2**70)', 255, ''],
    ['import sys; sys.exit(-(2**70))', 255, ''],
    ['import sys; sys.exit(2**40 + 7)', 7, ''],
    ['import sys; sys.exit(-1)', 255, ''],
    ['import sys; sys.exit(True)', 1, ''],
    ['import sys; sys.exit(2.5)', 1, '2.5\n'],
    ['class E(SystemExit):\n  @property\n  def code(self): raise ValueError("hidden")\nraise E("told")', 1, 'told\n'],
    ['class N(int):\n  def __and__(self, other): raise ValueError\nraise SystemExit(N(3))', 3, ''],
  ])('%p exits as in an interpreter', async (code, exitCode, stderr) => {
    for (const mode of ['cell', 'script'] as const) expect(await run(code, mode)).toMatchObject({ exitCode, stderr })
  })

  test('what C code has printed comes out, after what Python has', async () => {
    const code = 'import ctypes\nctypes.CDLL(None).puts(b"from C")\nprint("from Python")'
    expect(await run(code, 'script')).toMatchObject({ stdout: 'from Python\nfrom C\n' })
    expect(await run(code, 'cell')).toMatchObject({ stdout: 'from Python\nfrom C\n' })
  })
})

test('an excepthook that fails is told as Python tells it', async () => {
  const code = 'import sys\ndef hook(*_): raise KeyError("inner")\nsys.excepthook = hook\n1/0'
  const run = async (source: string) => (await full()).run({ id: 'call', code: source, timeoutMs: 20_000 })
  const { exitCode, ...result } = await run(code)
  const stderr = text(result.stderr)
  expect([exitCode, stderr]).toEqual([
    1,
    expect.stringMatching(
      /^Error in sys.excepthook:\nTraceback[\s\S]*line 2, in hook[\s\S]*'inner'\n\nOriginal exception was:\nTraceback[\s\S]*line 4[\s\S]*ZeroDivisionError/,
    ),
  ])
  expect(stderr).not.toContain('handling')
  expect(await run(code.replace('raise KeyError("inner")', 'sys.exit(9)'))).toMatchObject({ exitCode: 9 })
})

test.each([
  'class E(Exception):\n  @property\n  def __traceback__(self): raise ValueError\nraise E',
  'class E(Exception):\n  def __str__(self): raise ValueError\nraise E',
  'class M(type):\n  @property\n  def __name__(self): raise ValueError\nclass E(Exception, metaclass=M): pass\nraise E',
  'class E(SyntaxError):\n  lineno = "a"\nraise E',
  'class E(SystemExit):\n  @property\n  def code(self): raise ValueError\nraise E',
  'class C:\n  @property\n  def __class__(self): raise ValueError\nraise SystemExit(C())',
  'import sys\nsys.excepthook = None\n1/0',
  'import sys\ndel sys.excepthook\n1/0',
  'import sys\ndel sys.stdout, sys.stderr\n1/0',
  'import sys\nclass F:\n  def write(self, _): raise ValueError\n  flush = write\nsys.stdout = sys.stderr = F()\n1/0',
  'import threading\ndef stop(): raise ValueError("theirs")\nthreading._shutdown = stop',
  'import gc\ngc.collect = gc.get_count = None',
])('%p ends without a word of what is ours', async code => {
  const sandbox = await full()
  for (const mode of ['cell', 'script'] as const) {
    const { stdout, stderr } = await sandbox.run({ id: 'call', code, mode, timeoutMs: 20_000 })
    expect(text(stdout) + text(stderr)).not.toMatch(/zygote|running\.py|shim/)
  }
})

let opened: Promise<Sandbox> | undefined
function full(): Promise<Sandbox> {
  opened ??= openSandbox({ level: 'full', lanes: 2 })
  return opened
}
afterAll(async () => (await opened)?.close())
