/** Set-up's faults, met for real: the script runs as a process in a folder that looks like a checkout, with real pip. */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { optionalParts } from '../../../cli/doctor'
import {
  isCheckout,
  packageRoot,
  pythonPath,
  torchPythonPath,
  venvCandidates,
  wandbVenv,
} from '../../../runtime/python'
import { type EmptyVenvs, emptyVenvs } from '../../support/emptyVenvs'
import { failure } from '../../support/refusal'
import { alone, writeWheel } from '../../support/wheel'

const root = join(__dirname, '../../..')
jest.setTimeout(120_000) // pip takes seconds, and more on a busy machine

let home: string
let venvs: EmptyVenvs
let children: ChildProcess[]

beforeAll(() => {
  venvs = emptyVenvs()
})
afterAll(() => venvs.remove())

/** A venv with pip and nothing else, as set-up would make it. */
const venvIsThere = () => venvs.put(join(home, '.venv'))

beforeEach(() => {
  home = mkdtempSync(join(tmpdir(), 'troupe-setup-'))
  children = []
  cpSync(join(root, 'cli/setup'), join(home, 'cli/setup'), { recursive: true })
  cpSync(join(root, 'cli/setup.js'), join(home, 'cli/setup.js'))
  cpSync(join(root, 'policy/proto'), join(home, 'policy/proto'), { recursive: true })
  mkdirSync(join(home, 'policy/troupe_policy'))
  writeFileSync(join(home, 'tsconfig.json'), '{}')
  requirements('')
  for (const name of ['sandbox', 'without-torch']) writeFileSync(join(home, `policy/requirements-${name}.txt`), '')
})
afterEach(() => {
  for (const child of children) child.kill('SIGKILL')
  rmSync(home, { recursive: true, force: true })
})

const requirements = (text: string) => writeFileSync(join(home, 'policy/requirements.txt'), text)

/** No cache and no wheels of this machine: what a test asks of pip must come from where the test says. */
const environment = (extra: Record<string, string>): NodeJS.ProcessEnv => {
  const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !/^(PIP_|TROUPE_)/.test(name)))
  return { ...env, ...alone, ...extra }
}

function setup(env: Record<string, string> = {}, ...args: string[]) {
  const reply = spawnSync(process.execPath, [join(home, 'cli/setup.js'), '--python-only', ...args], {
    env: environment({ TROUPE_DISK_MB: '1', ...env }),
    encoding: 'utf8',
    timeout: 110_000,
  })
  return { code: reply.status, said: reply.stderr }
}

/** Writes a wheel; returns the arguments with which pip finds it. */
function wheel(name: string) {
  const folder = join(home, 'wheels of mine')
  writeWheel(folder, name)
  return `--no-index --find-links '${folder}'`
}

/** Stands where generated code would be, so that these tests need no grpcio-tools: the step's own stamp, of its own inputs. */
function generatedIsDone() {
  const script = `
    const { places } = require('./cli/setup/places'), fs = require('fs'), path = require('path')
    const { digestOf, writeStamp } = require('./cli/setup/say')
    const policy = places().policy, target = path.join(policy, 'troupe_policy/generated')
    fs.mkdirSync(target, { recursive: true })
    for (const f of ['policy_pb2.py', 'policy_pb2.pyi', 'policy_pb2_grpc.py', '__init__.py']) fs.writeFileSync(path.join(target, f), '')
    const inputs = ['proto/policy.proto', 'requirements.txt'].map(f => path.join(policy, f))
    writeStamp(path.join(target, '.troupe-setup.json'), { digest: digestOf([...inputs, require.resolve('./cli/setup/generated')]) })`
  expect(spawnSync(process.execPath, ['-e', script], { cwd: home }).status).toBe(0)
}

test('a venv is made once, is skipped while nothing changes, and follows its requirements', () => {
  const args = wheel('first')
  requirements('first==1.0\n')
  generatedIsDone()
  const one = setup({ TROUPE_PIP_ARGS: args })
  expect(one).toMatchObject({ code: 0 })
  expect(one.said).toMatch(/Python: done in/)
  expect(setup().said).toBe('setup: up to date\n')

  wheel('second')
  requirements('first==1.0\nsecond==1.0\n')
  generatedIsDone()
  expect(setup({ TROUPE_PIP_ARGS: args }).code).toBe(0)
  expect(spawnSync(join(home, '.venv/bin/python'), ['-c', 'import first, second']).status).toBe(0)
})

test('npm and pip install at the same time', () => {
  const args = wheel('first')
  requirements('first==1.0\n')
  generatedIsDone()
  venvIsThere()
  writeFileSync(join(home, 'package.json'), '{}')
  // Stands for npm: it ends while pip installs, and fails if pip has not begun within 60 s.
  const npm = join(home, 'npm-cli.js')
  writeFileSync(
    npm,
    `const { existsSync, mkdirSync } = require('node:fs')
    const began = Date.now()
    setInterval(() => {
      if (existsSync('.venv/.troupe-installing')) { mkdirSync('node_modules', { recursive: true }); process.exit(0) }
      if (Date.now() - began > 60_000) process.exit(1)
    }, 50)`,
  )
  const script = [join(home, 'cli/setup.js')]
  const env = environment({ TROUPE_DISK_MB: '1', TROUPE_PIP_ARGS: args, npm_execpath: npm })
  const { status, stderr } = spawnSync(process.execPath, script, { env, encoding: 'utf8', timeout: 110_000 })
  expect(stderr).toMatch(/npm packages: done in/)
  expect(status).toBe(0)
})

test('an install that was cut off is found and done anew', () => {
  const args = wheel('first')
  requirements('first==1.0\n')
  generatedIsDone()
  venvIsThere()
  writeFileSync(join(home, '.venv/.troupe-installing'), '')
  writeFileSync(join(home, '.venv/left-over'), '')
  const again = setup({ TROUPE_PIP_ARGS: args })
  expect(again).toMatchObject({ code: 0 })
  expect(again.said).toContain('an earlier install was interrupted')
  expect(existsSync(join(home, '.venv/left-over'))).toBe(false)
  expect(setup().said).toBe('setup: up to date\n')
})

test('without a network it says so, and how to do without one; the next run goes on in the same venv', async () => {
  const server = createServer()
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as { port: number }
  await new Promise(resolve => server.close(resolve)) // nothing listens there now
  venvIsThere()
  requirements('first==1.0\n')
  const refused = setup({ TROUPE_PIP_ARGS: `--retries 1 --index-url http://127.0.0.1:${port}/simple` })
  expect(refused.code).toBe(1)
  expect(refused.said).toContain('no network, or the package index does not answer')
  expect(refused.said).toContain('TROUPE_PIP_ARGS')
  writeFileSync(join(home, '.venv/kept'), '')
  generatedIsDone()
  expect(setup({ TROUPE_PIP_ARGS: wheel('first') }).code).toBe(0)
  expect(existsSync(join(home, '.venv/kept'))).toBe(true)
})

test('a pin that the index does not offer is told apart from a missing network', () => {
  venvIsThere()
  requirements('first==2.0\n')
  const { code, said } = setup({ TROUPE_PIP_ARGS: wheel('first') })
  expect(code).toBe(1)
  expect(said).toContain('has no build of a pinned package for this Python and machine')
})

test('a disk without room is refused before anything is installed, with the figures', () => {
  const { code, said } = setup({ TROUPE_DISK_MB: '999999999' })
  expect(code).toBe(1)
  expect(said).toMatch(/\d+ MB are free on the disk of .*, but the venv with torch needs 999999999 MB/)
  expect(existsSync(join(home, '.venv'))).toBe(false)
})

test('a Python that does not fit is named with its version; so is one that does not run', () => {
  const old = join(home, 'python3')
  writeFileSync(old, '#!/bin/sh\necho \'[[3, 8, 1], "/old/python3.8", "cpython", true]\'\n', { mode: 0o755 })
  expect(setup({ TROUPE_PYTHON: old }).said).toContain(`TROUPE_PYTHON=${old} is Python 3.8.1`)
  expect(setup({ TROUPE_PYTHON: '/not/there' }).said).toContain('TROUPE_PYTHON=/not/there does not run')

  const only = spawnSync(process.execPath, [join(home, 'cli/setup.js'), '--python-only'], {
    env: environment({ PATH: home }),
    encoding: 'utf8',
  })
  expect(only.status).toBe(1)
  expect(only.stderr).toContain('no fitting Python: found only /old/python3.8 (3.8.1)')
})

test('a shim without a version behind it does not hide the interpreter behind it on PATH', () => {
  const real = spawnSync(pythonPath(), ['-c', 'import sys; print(sys._base_executable)'], {
    encoding: 'utf8',
  }).stdout.trim()
  for (const folder of ['shims', 'real']) mkdirSync(join(home, folder))
  writeFileSync(join(home, 'shims/python3.11'), '#!/bin/sh\nexit 127\n', { mode: 0o755 })
  symlinkSync(real, join(home, 'real/python3.11'))
  const { said } = setup({ PATH: `${join(home, 'shims')}:${join(home, 'real')}`, TROUPE_DISK_MB: '999999999' })
  expect(said).toMatch(/setup: Python: 3\.\d+\.\d+, \//)
  expect(said).toContain('MB are free') // so it got past the search
})

test('a second set-up waits for the first; a lock whose owner died is broken', async () => {
  venvIsThere()
  generatedIsDone()
  mkdirSync(join(home, '.cache'))
  const lock = join(home, '.cache/setup.lock')
  const owner = spawn('sleep', ['60'])
  children.push(owner)
  const stat = readFileSync(`/proc/${owner.pid}/stat`, 'utf8')
  const start = stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19]
  writeFileSync(lock, `${owner.pid} ${start}`)

  const waiter = spawn(process.execPath, [join(home, 'cli/setup.js'), '--python-only'], {
    env: environment({ TROUPE_DISK_MB: '1', TROUPE_PIP_ARGS: '--no-index' }),
  })
  children.push(waiter)
  let said = ''
  const waits = new Promise<void>(resolve => {
    waiter.stderr.on('data', chunk => {
      said += chunk
      if (said.includes(`waiting for another set-up (pid ${owner.pid}`)) resolve()
    })
  })
  const ended = new Promise(resolve => waiter.once('exit', resolve))
  await waits
  expect(existsSync(join(home, '.venv/.troupe-setup.json'))).toBe(false)
  owner.kill('SIGKILL')
  expect(await ended).toBe(0)
  expect(existsSync(lock)).toBe(false)
})

/** An index that takes connections and never answers; it tells when pip has connected and when it has gone. */
async function silentIndex() {
  let come: () => void
  let go: () => void
  const connected = new Promise<void>(resolve => {
    come = resolve
  })
  const gone = new Promise<void>(resolve => {
    go = resolve
  })
  const server = createServer(socket => {
    socket.on('error', () => undefined)
    socket.once('close', () => go())
    socket.resume()
    come()
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as { port: number }
  return { server, connected, gone, args: `--index-url http://127.0.0.1:${port}/simple` }
}

test.each(['SIGTERM', 'SIGKILL'] as const)(
  'set-up ended by %s leaves no pip at work, and the next one goes on',
  async signal => {
    venvIsThere()
    requirements('first==1.0\n')
    const index = await silentIndex()
    try {
      const first = spawn(process.execPath, [join(home, 'cli/setup.js'), '--python-only'], {
        env: environment({ TROUPE_DISK_MB: '1', TROUPE_PIP_ARGS: index.args }),
      })
      children.push(first)
      const ended = new Promise(resolve => first.once('exit', resolve))
      await index.connected
      first.kill(signal)
      await ended
      generatedIsDone()
      const next = setup({ TROUPE_PIP_ARGS: wheel('first') })
      expect(next.code).toBe(0)
      if (signal === 'SIGKILL') expect(next.said).toMatch(/ending a tool that a killed set-up left running/)
      await index.gone
    } finally {
      index.server.close()
    }
  },
)

test('a lock whose pid belongs to a younger process is broken', () => {
  venvIsThere()
  generatedIsDone()
  mkdirSync(join(home, '.cache'))
  writeFileSync(join(home, '.cache/setup.lock'), `${process.pid} 1`)
  expect(setup({ TROUPE_PIP_ARGS: '--no-index' }).code).toBe(0)
})

test('the lock names the optional packages of every platform, or npm ci refuses it elsewhere', () => {
  type Entry = { readonly optionalDependencies?: Readonly<Record<string, string>> }
  const lock: { packages: Record<string, Entry> } = JSON.parse(readFileSync(join(root, 'package-lock.json'), 'utf8'))
  const wanted = Object.entries(lock.packages).flatMap(([holder, entry]) =>
    Object.keys(entry.optionalDependencies ?? {}).map(name => [
      `node_modules/${name}`,
      `${holder}/node_modules/${name}`,
    ]),
  )
  expect(wanted.length).toBeGreaterThan(10)
  expect(wanted.filter(places => !places.some(place => place in lock.packages))).toEqual([])
})

test('an unknown argument is wrong usage', () => {
  expect(setup({}, '--tset')).toMatchObject({ code: 2 })
})

test('the optional parts that doctor names are those that set-up takes, and it sees which are there', () => {
  const usage = spawnSync(process.execPath, [join(__dirname, '../../../cli/bin.js'), 'setup', 'no-part'], {
    encoding: 'utf8',
  })
  const known = /parts: (.*)/.exec(usage.stderr)![1]!.split(', ')
  const before = { ...process.env }
  try {
    process.env.TROUPE_VLLM_VENV = join(tmpdir(), 'no-such-venv')
    process.env.TROUPE_SGLANG_VENV = join(tmpdir(), 'no-such-venv')
    process.env.TROUPE_KAFKA_LIBS = tmpdir()
    const parts = new Map(optionalParts())
    // `packages` makes a venv of packages that the user names: doctor cannot know which.
    expect([...parts.keys()].sort()).toEqual(known.filter(part => part !== 'packages'))
    expect(parts.get('vllm')).toBe(false)
    expect(parts.get('sglang')).toBe(false)
    expect(parts.get('kafka')).toBe(true)
  } finally {
    process.env = before
  }
})

test('set-up installs where the runtime looks', () => {
  const { places } = require('../../../cli/setup/places') as {
    places(env: NodeJS.ProcessEnv, root?: string): { venv: string; checkout: boolean }
  }
  expect(isCheckout()).toBe(true)
  expect(packageRoot()).toBe(root)
  for (const env of [{}, { TROUPE_VENV: '/x/venv' }, { TROUPE_HOME: '/x/home' }, { TROUPE_VENV: 'relative' }]) {
    expect(venvCandidates(env)[0]).toBe(places(env).venv)
  }
  const wandb = require('../../../cli/setup/wandb') as { step(where: object): { venv: string } }
  expect(wandb.step(places(process.env)).venv).toBe(wandbVenv())
  // An installed package: no tsconfig.json beside it.
  expect(places({ TROUPE_HOME: '/x/home' }, '/')).toMatchObject({
    checkout: false,
    venv: venvCandidates({ TROUPE_HOME: '/x/home' })[1],
  })
})

test('--without-torch installs the light requirements alone; commands that run a model say what adds the rest', () => {
  const args = wheel('light')
  wheel('torch')
  venvIsThere()
  writeFileSync(join(home, 'policy/requirements-without-torch.txt'), 'light==1.0\n')
  requirements('light==1.0\ntorch==1.0\n')
  const python = join(home, '.venv/bin/python')
  const has = (name: string) => spawnSync(python, ['-c', `import ${name}`]).status === 0
  expect(setup({ TROUPE_PIP_ARGS: args }, '--without-torch').said).toMatch(/without torch/)
  expect([has('light'), has('torch')]).toEqual([true, false])
  expect(setup({}, '--without-torch').said).toBe('setup: up to date\n')
  const env = { TROUPE_VENV: join(home, '.venv') }
  expect(pythonPath(env)).toBe(python)
  expect(failure(() => torchPythonPath(env))).toMatchObject({ code: 'process.no_torch', hint: 'npm run setup adds it' })

  generatedIsDone()
  expect(setup({ TROUPE_PIP_ARGS: args }).code).toBe(0)
  expect([has('torch'), torchPythonPath(env)]).toEqual([true, python])
  expect(setup({}, '--without-torch').said).toBe('setup: up to date\n')
})

test('a venv without its interpreter is an error that says what to run', () => {
  expect(() => pythonPath({ TROUPE_VENV: join(home, 'none') })).toThrow(/no Python interpreter made by .* in .*none/)
})

test('what sandboxed programs import is installed beside torch, once, and anew after an interruption', () => {
  const TROUPE_PIP_ARGS = wheel('first')
  venvIsThere()
  writeFileSync(join(home, 'policy/requirements-sandbox.txt'), 'first==1.0\n')
  generatedIsDone()
  expect(setup({ TROUPE_PIP_ARGS }).said).toMatch(/sandbox packages: done in/)
  const python = join(home, '.venv/bin/python')
  expect(spawnSync(python, ['-c', 'import first']).status).toBe(0)
  expect(setup().said).toBe('setup: up to date\n')

  // As after a power cut in the middle of pip's work: the package counts as installed, and its file is not there.
  const [lib] = spawnSync(python, ['-c', 'import first; print(first.__file__)'], { encoding: 'utf8' }).stdout.split(
    '\n',
  )
  rmSync(lib!)
  const stamp = join(home, '.venv/.troupe-setup.json')
  const { sandbox: _, ...rest } = JSON.parse(readFileSync(stamp, 'utf8'))
  writeFileSync(stamp, JSON.stringify(rest))
  writeFileSync(join(home, '.venv/.troupe-installing-sandbox'), '')
  expect(setup({ TROUPE_PIP_ARGS }).code).toBe(0)
  expect(spawnSync(python, ['-c', 'import first']).status).toBe(0)
})
