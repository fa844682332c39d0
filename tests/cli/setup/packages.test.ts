/** `setup packages`: a venv with pinned packages for sandboxed programs, where the runtime looks for it. */
import { spawnSync } from 'node:child_process'
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { packageRoot, packagesVenv } from '../../../runtime/python'
import { alone, writeWheel } from '../../support/wheel'

jest.setTimeout(240_000)
let home: string
beforeAll(() => {
  home = mkdtempSync(join(tmpdir(), 'troupe-packages-setup-'))
  cpSync(join(packageRoot(), 'cli/setup'), join(home, 'cli/setup'), { recursive: true })
  cpSync(join(packageRoot(), 'cli/setup.js'), join(home, 'cli/setup.js'))
  mkdirSync(join(home, 'policy'))
  cpSync(join(packageRoot(), 'policy/pinned-package.json'), join(home, 'policy/pinned-package.json'))
  writeFileSync(join(home, 'tsconfig.json'), '{}')
})
afterAll(() => rmSync(home, { recursive: true, force: true }))

function setup(...packages: string[]) {
  const kept = Object.entries(process.env).filter(([name]) => !/^(PIP_|TROUPE_)/.test(name))
  const env = { ...Object.fromEntries(kept), ...alone, TROUPE_DISK_MB: '1' }
  return spawnSync(process.execPath, [join(home, 'cli/setup.js'), '--packages', ...packages], {
    env: { ...env, TROUPE_PIP_ARGS: `--no-index --find-links ${home}` },
    encoding: 'utf8',
  })
}

test('pinned packages are installed once, beside those of every set-up or in their place', () => {
  for (const name of ['base', 'own']) writeWheel(home, name)
  writeFileSync(join(home, 'policy/requirements-sandbox.txt'), '# pinned\nbase==1.0\nown==9.0\n')
  expect(setup('own==1.0')).toMatchObject({ status: 0, stderr: expect.stringMatching(/packages: done in/) })
  expect(setup('own==1.0').stderr).toBe('setup: up to date\n')
  const [found] = spawnSync('ls', ['-d', `${home}/.venv-packages/`], { encoding: 'utf8' }).stdout.split('\n')
  const venv = spawnSync('find', [found!, '-name', 'requirements.lock'], { encoding: 'utf8' }).stdout.trim()
  expect(readFileSync(venv, 'utf8')).toBe('base==1.0\nown==1.0\n')
})

test('a package without a version, or that no index has, is refused by name', () => {
  const unpinned = setup('own>=1')
  expect(unpinned).toMatchObject({ status: 1, stderr: expect.stringContaining('own>=1 is not pinned') })
  const absent = setup('absent==1.0')
  expect(absent).toMatchObject({ status: 1, stderr: expect.stringContaining('absent==1.0') })
  expect(setup()).toMatchObject({ status: 1, stderr: expect.stringContaining('no packages were named') })
})

test('the runtime looks for the venv where set-up makes it', () => {
  const script = `
const { step } = require('./cli/setup/packages'), { places } = require('./cli/setup/places')
process.stdout.write(step({ ...places(), policy: ${JSON.stringify(join(packageRoot(), 'policy'))} }, ['b==2', 'a==1']).venv)`
  const made = spawnSync(process.execPath, ['-e', script], { cwd: home, encoding: 'utf8' }).stdout
  expect(made.replace(home, packageRoot())).toBe(packagesVenv(['a==1', 'b==2']))
  expect(existsSync(made)).toBe(false)
})

test('a pip that does not tell what it installed is a fault that says so', () => {
  const script = `
require('./cli/setup/ownVenv').ownVenvStep = (where, part) => part
const part = require('./cli/setup/packages').step(require('./cli/setup/places').places(), ['own==1.0'])
part.afterwards('/no/such/python').then(() => console.log('done'), ({ message, hint }) => console.log(message, '|', hint))`
  const { stdout } = spawnSync(process.execPath, ['-e', script], { cwd: home, encoding: 'utf8' })
  expect(stdout).toMatch(/^pip freeze failed, so .* are not known: .*ENOENT \| run the same command again/)
})
