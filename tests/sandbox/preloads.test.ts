/** Zygotes by what programs import: which one a program gets, and that a wrong guess or a broken module costs time only. */
import { execFileSync } from 'node:child_process'
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pythonPath } from '../../runtime/python'
import { openSandbox, type Sandbox } from '../../sandbox'
import { neededGroups } from '../../sandbox/zygote/imports'
import { WaitingJobs } from '../../sandbox/zygote/waitingJobs'

const text = (bytes: Uint8Array) => Buffer.from(bytes).toString('utf8')
const run = (sandbox: Sandbox, code: string) => sandbox.run({ id: 'call', code, timeoutMs: 60_000 })

describe('the groups that a program imports', () => {
  const needed = neededGroups([['numpy'], ['mpmath', 'sympy'], ['scipy.stats']])
  test.each([
    ['print("no numpy here")', 0],
    ['import math, numpyro', 0],
    ['x.import_numpy = 1; from_numpy = 2', 0],
    ['import os, numpy as np', 1],
    ['if True:import numpy.linalg', 1],
    ['import sys; from sympy import symbols', 2],
    ["exec('x = 1\\\\nimport sympy')", 2],
    ['np = __import__("numpy"); import importlib; importlib.import_module( \'scipy.optimize\')', 3],
    ['from scipy import stats', 3],
    ['from . import numpy', 0],
    ['for name in ["numpy", "sympy"]: __import__(name)', 2],
    ['from importlib import import_module as i; import_module(name) # numpyro', 0],
  ])('%j needs %i', (code, groups) => {
    expect(needed(Buffer.from(code))).toBe(groups)
  })

  test('are found in time linear in the text, whatever it holds', () => {
    const seconds = (text: string) => {
      const code = Buffer.from(`numpy${text}`)
      const began = process.cpuUsage()
      needed(code)
      return process.cpuUsage(began).user / 1e6
    }
    for (const hostile of ['import ', ' ', 'from\t', ';import a,', '\\nimport', 'import_module('])
      expect(seconds(hostile.repeat(2 ** 20 / hostile.length))).toBeLessThan(3)
  })
})

test('calls of a kind whose zygotes are busy do not hold up calls of another kind', () => {
  const waiting = new WaitingJobs()
  const link = (kind: number, ready: boolean) => ({ kind, ready, notBegun: 0, calls: new Map(), core: { calls: 0 } })
  const links = [link(0, true), link(1, false)] as never[]
  const job = (id: string, kind: number) => waiting.add({ client: 'a', id, kind, queuedAt: 0 } as never)
  for (const [id, kind] of [
    ['a', 1],
    ['b', 0],
    ['c', 1],
    ['d', 0],
  ] as const)
    job(id, kind)
  const lacking = new Set<number>()
  const next = () =>
    waiting.next(
      links,
      () => false,
      () => true,
      kind => lacking.add(kind),
    )?.job.id
  expect([next(), next(), next()]).toEqual(['b', 'd', undefined])
  expect([...lacking]).toEqual([1])
  expect(waiting.takeKind(1).map(({ id }) => id)).toEqual(['a', 'c'])
  expect(waiting.size).toBe(0)
})

test('calls that run at once get a zygote each, on a core of its own, while cores are left', async () => {
  const sandbox = await openSandbox({
    ...{ requireLevel: 'full', python: pythonPath(), zygotes: 2, preload: 'numpy', lazyPreload: true },
  })
  try {
    const pids = () => (sandbox as Sandbox & { readonly zygotePids: readonly number[] }).zygotePids.length
    const three = () => Promise.all([1, 2, 3].map(() => run(sandbox, 'import numpy, time; time.sleep(0.5)')))
    for (let tries = 0; tries < 20 && pids() < 4; tries++) await three()
    expect(pids()).toBe(4)
  } finally {
    await sandbox.close()
  }
}, 60_000)

describe('with numpy and sympy', () => {
  let sandbox: Sandbox & { readonly zygotePids?: readonly number[] }
  beforeAll(async () => {
    const preload = ['numpy', 'mpmath+sympy']
    sandbox = await openSandbox({ requireLevel: 'full', python: pythonPath(), zygotes: 1, preload, lazyPreload: true })
  })
  afterAll(() => sandbox.close())
  const modules = "import sys; print(*[name in sys.modules for name in ('numpy', 'sympy')])"

  test('a program runs where what it imports is loaded, and one that imports nothing pays for nothing', async () => {
    expect(sandbox.zygotePids).toHaveLength(1)
    expect(text((await run(sandbox, modules)).stdout)).toBe('False False\n')
    expect(sandbox.zygotePids).toHaveLength(1)
    expect(text((await run(sandbox, `${modules}\nimport numpy`)).stdout)).toBe('True False\n')
    expect(sandbox.zygotePids).toHaveLength(2)
    const result = await run(sandbox, `${modules}\nimport numpy, sympy; print(sympy.factorint(360))`)
    expect(text(result.stdout)).toBe('True True\n{2: 3, 3: 2, 5: 1}\n')
    expect(sandbox.zygotePids).toHaveLength(3)
    expect(result.cpuMs).toBeLessThan(100) // an import of sympy alone takes more than twice that
  }, 60_000)

  test('an import that is not seen before the program runs costs time and nothing else', async () => {
    const result = await run(sandbox, `${modules}\nprint(__import__("".join(["num", "py"])).arange(3))`)
    expect(text(result.stdout)).toBe('False False\n[0 1 2]\n')
  }, 60_000)

  test('a cell of a notebook finds everything loaded, whatever its session begins with', async () => {
    const session = { id: 's', cell: 0 }
    const result = await sandbox.run({ id: 'cell', code: modules, session, timeoutMs: 60_000 })
    expect(text(result.stdout)).toBe('True True\n')
  }, 60_000)
})

describe('a module that raises when it is imported', () => {
  let home: string
  let python: string
  beforeAll(() => {
    home = mkdtempSync(join(tmpdir(), 'troupe-preload-'))
    execFileSync('python3', ['-m', 'venv', '--without-pip', home], { timeout: 60_000 })
    python = join(home, 'bin/python')
    const packages = join(home, 'lib', readdirSync(join(home, 'lib'))[0]!, 'site-packages')
    writeFileSync(join(packages, 'broken.py'), 'raise OSError("this module has no library")\n')
    writeFileSync(join(packages, 'whole.py'), '')
  })
  afterAll(() => rmSync(home, { recursive: true, force: true }))

  test('is refused by name when it shall be preloaded, as is one that is not installed', async () => {
    await expect(openSandbox({ python, zygotes: 1, preload: 'whole,broken' })).rejects.toMatchObject({
      code: 'sandbox.start_failed',
      message: expect.stringContaining('preload of broken failed: this module has no library'),
    })
    await expect(openSandbox({ python, zygotes: 1, preload: ['absent.part'] })).rejects.toMatchObject({
      code: 'sandbox.start_failed',
      message: expect.stringMatching(/bin\/python \(Python 3\.[\d.]+\): preload of absent failed: not installed/),
    })
    await expect(openSandbox({ preload: 'os.system()' })).rejects.toMatchObject({ code: 'sandbox.bad_option' })
  }, 60_000)

  test('is left to the programs that import it where preloads are lazy', async () => {
    const lazy = { preload: ['whole', 'broken', 'absent'], lazyPreload: true }
    const sandbox = await openSandbox({ requireLevel: 'full', python, zygotes: 1, ...lazy })
    try {
      const results = await Promise.all(
        ['import broken', 'import absent', 'import whole'].map(code => run(sandbox, code)),
      )
      expect(results.map(({ status, stderr }) => [status, text(stderr).trim().split('\n').at(-1)])).toEqual([
        ['error', 'OSError: this module has no library'],
        ['error', "ModuleNotFoundError: No module named 'absent'"],
        ['ok', ''],
      ])
    } finally {
      await sandbox.close()
    }
  }, 60_000)
})
