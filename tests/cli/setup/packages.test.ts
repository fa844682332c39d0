/** `setup packages`: a venv with pinned packages for sandboxed programs, where the runtime looks for it. */
import { spawnSync } from 'node:child_process'
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { packageRoot, packagesVenv, pythonPath } from '../../../runtime/python'

jest.setTimeout(240_000)
let home: string
beforeAll(() => {
  home = mkdtempSync(join(tmpdir(), 'troupe-packages-setup-'))
  cpSync(join(packageRoot(), 'cli/setup'), join(home, 'cli/setup'), { recursive: true })
  cpSync(join(packageRoot(), 'cli/setup.js'), join(home, 'cli/setup.js'))
  mkdirSync(join(home, 'policy'))
  writeFileSync(join(home, 'tsconfig.json'), '{}')
})
afterAll(() => rmSync(home, { recursive: true, force: true }))

/** A wheel that needs no index: written by hand. */
function wheel(name: string): void {
  const script = `
import zipfile, sys
with zipfile.ZipFile(sys.argv[1], 'w') as z:
    z.writestr('${name}.py', '')
    z.writestr('${name}-1.0.dist-info/METADATA', 'Metadata-Version: 2.1\\nName: ${name}\\nVersion: 1.0\\n')
    z.writestr('${name}-1.0.dist-info/WHEEL', 'Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')
    z.writestr('${name}-1.0.dist-info/RECORD', '')
`
  spawnSync(pythonPath(), ['-c', script, join(home, `${name}-1.0-py3-none-any.whl`)])
}

function setup(...packages: string[]) {
  const kept = Object.entries(process.env).filter(([name]) => !/^(PIP_|TROUPE_)/.test(name))
  const env = { ...Object.fromEntries(kept), PIP_CONFIG_FILE: '/dev/null', TROUPE_DISK_MB: '1' }
  return spawnSync(process.execPath, [join(home, 'cli/setup.js'), '--packages', ...packages], {
    env: { ...env, TROUPE_PIP_ARGS: `--no-index --find-links ${home}` },
    encoding: 'utf8',
  })
}

test('pinned packages are installed once, beside those of every set-up or in their place', () => {
  for (const name of ['base', 'own']) wheel(name)
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
