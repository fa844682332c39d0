/** Set-up installs with uv what pip would, and leaves the work to pip where uv cannot do it. */
import { spawnSync } from 'node:child_process'
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type EmptyVenvs, emptyVenvs } from '../../support/emptyVenvs'
import { writeWheel } from '../../support/wheel'

const root = join(__dirname, '../../..')
const { uvFolder, uvSettings } = require('../../../cli/setup/install')
jest.setTimeout(120_000)

let venvs: EmptyVenvs
beforeAll(() => {
  venvs = emptyVenvs()
})
afterAll(() => venvs.remove())

test.each([
  ['', { args: [], env: {} }],
  ["global.cert='/ca.pem'\n:env:.default-timeout='180'\n", { args: [], env: { SSL_CERT_FILE: '/ca.pem' } }],
  ['global.cert="/o\'b/ca.pem"\n', { args: [], env: { SSL_CERT_FILE: "/o'b/ca.pem" } }],
  [":env:.find-links='/one /two'\n", { args: ['--find-links', '/one', '--find-links', '/two'], env: {} }],
  [":env:.no-index='1'\n", { args: ['--no-index'], env: {} }],
  [":env:.no-index='false'\n", { args: [], env: {} }],
  ["global.index-url='https://mirror/simple'\n", undefined],
  ["global.extra-index-url='https://mirror/simple'\n", undefined],
  ["install.constraint='pins.txt'\n", undefined],
  ['a line that pip did not print before\n', undefined],
])('pip config %j becomes the settings of uv %j', (listed, settings) => {
  expect(uvSettings(listed)).toEqual(settings)
})

/**
 * Installs the wheel `first` into an empty venv by set-up's own function, with `uv` in the folder of set-up's uv.
 * compiles: what to compile; by default everything.
 */
function installFirst(prepareUv: (folder: string) => void, compiles?: object) {
  const home = mkdtempSync(join(tmpdir(), 'troupe-install-'))
  try {
    const venv = join(home, 'venv')
    venvs.put(venv)
    writeWheel(join(home, 'wheels'), 'first')
    prepareUv(join(home, uvFolder))
    const python = join(venv, 'bin/python')
    const script = `
      const { install } = require(${JSON.stringify(join(root, 'cli/setup/install'))})
      const where = { logs: ${JSON.stringify(home)}, lock: ${JSON.stringify(join(home, 'setup.lock'))} }
      install('packages', ${JSON.stringify(python)}, ['first==1.0'], [], { cwd: ${JSON.stringify(home)}, where }${compiles ? `, ${JSON.stringify(compiles)}` : ''})`
    const kept = Object.entries(process.env).filter(([name]) => !/^(PIP_|UV_)/.test(name))
    const env = {
      ...Object.fromEntries(kept),
      PIP_CONFIG_FILE: '/dev/null',
      PIP_NO_INDEX: '1',
      PIP_FIND_LINKS: join(home, 'wheels'),
    }
    const reply = spawnSync(process.execPath, ['-e', script], { env, encoding: 'utf8', timeout: 110_000 })
    const cached = 'import first, os, sys; sys.exit(not os.path.exists(first.__cached__))'
    const site = join(venv, 'lib', readdirSync(join(venv, 'lib'))[0]!, 'site-packages/first-1.0.dist-info/INSTALLER')
    return {
      code: reply.status,
      said: reply.stderr,
      compiled: spawnSync(python, ['-B', '-c', cached]).status === 0,
      installer: existsSync(site) ? spawnSync('cat', [site], { encoding: 'utf8' }).stdout.trim() : undefined,
    }
  } finally {
    rmSync(home, { recursive: true, force: true })
  }
}

const ours = join(root, '.cache', uvFolder)
const withUv = existsSync(join(ours, 'bin/uv')) ? test : test.skip
withUv('uv installs and the modules are compiled (skipped where set-up installed with pip)', () => {
  const { said: _, ...rest } = installFirst(folder => symlinkSync(ours, folder))
  expect(rest).toEqual({ code: 0, compiled: true, installer: 'uv' })
})

test.each([
  ['fails', '#!/bin/sh\necho "no such libc" >&2\nexit 1\n', 0o755],
  ['may not be executed', '#!/bin/sh\n', 0o644],
])('pip installs where uv %s', (_, text, mode) => {
  const broken = installFirst(folder => {
    mkdirSync(join(folder, 'bin'), { recursive: true })
    writeFileSync(join(folder, 'bin/uv'), text)
    chmodSync(join(folder, 'bin/uv'), mode)
  })
  expect(broken).toMatchObject({ code: 0, compiled: true, installer: 'pip' })
  expect(broken.said).toMatch(/uv did not install the packages .*; pip installs them/)
})

test('pip installs where uv cannot be fetched', () => {
  expect(installFirst(() => {})).toMatchObject({ code: 0, compiled: true, installer: 'pip' })
})

test.each([
  ['the folder of another package', { folders: ['second'] }, false],
  ['what modules import', { imported: [['no_such_module', 'first'], ['first']] }, true],
  ['nothing', {}, false],
])('compiles %s', (_, compiles, compiled) => {
  expect(installFirst(() => {}, compiles)).toMatchObject({ code: 0, compiled })
})
