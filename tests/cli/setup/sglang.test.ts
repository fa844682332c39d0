/** `setup --sglang`: the pinned packages, the server without its own list, and the package that stands for its kernels. */
import { execFileSync, spawnSync } from 'node:child_process'
import { chmodSync, cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pythonPath } from '../../../runtime/python'

const root = join(__dirname, '../../..')
let home: string
beforeEach(() => {
  home = mkdtempSync(join(tmpdir(), 'troupe-setup-sglang-'))
  cpSync(join(root, 'cli/setup'), join(home, 'cli/setup'), { recursive: true })
  cpSync(join(root, 'cli/setup.js'), join(home, 'cli/setup.js'))
  writeFileSync(join(home, 'tsconfig.json'), '{}')
  for (const folder of ['bin', 'packages']) mkdirSync(join(home, folder))
  for (const tool of ['sh', 'cat', 'mkdir', 'cp', 'chmod']) symlinkSync(join('/bin', tool), join(home, 'bin', tool))
  symlinkSync(process.execPath, join(home, 'bin/node'))
  const venv = join(home, '.venv-sglang')
  const info = JSON.stringify([[3, 11, 7], join(home, 'bin/python3'), 'cpython', true])
  const script = `#!/bin/sh
case "$*" in
  *version_info*) echo '${info}' ;;
  *purelib*) echo '${join(home, 'packages')}' ;;
  *"-m venv"*) mkdir -p '${venv}/bin'; cp '${join(home, 'bin/python3')}' '${venv}/bin/python'; : > '${venv}/pyvenv.cfg' ;;
  *"-m pip"*) echo "$*" >> '${join(home, 'calls')}' ;;
esac
`
  writeFileSync(join(home, 'bin/python3'), script)
  chmodSync(join(home, 'bin/python3'), 0o755)
})
afterEach(() => rmSync(home, { recursive: true }))

function setup(): { code: number | null; said: string } {
  const reply = spawnSync(process.execPath, [join(home, 'cli/setup.js'), '--sglang'], {
    encoding: 'utf8',
    env: { PATH: join(home, 'bin'), HOME: home, TROUPE_DISK_MB: '1', TROUPE_PIP_ARGS: '--find-links wheels' },
  })
  return { code: reply.status, said: reply.stderr }
}

test('it installs the pinned packages, then the server alone, and a second set-up has nothing to do', () => {
  expect(setup().code).toBe(0)
  const [packages, server] = readFileSync(join(home, 'calls'), 'utf8').trim().split('\n')
  expect(packages).toMatch(/-r .*cli\/setup\/sglang\/requirements\.txt --find-links wheels$/)
  expect(server).toMatch(/--no-deps sglang==\d+\.\d+\.\d+ --find-links wheels$/)
  expect(setup()).toEqual({ code: 0, said: 'setup: up to date\n' })
})

test('the names that stand for the kernels can be imported, and whoever calls one is told that it is absent', () => {
  expect(setup().code).toBe(0)
  const program = `
import sgl_kernel, sgl_kernel.mamba
for call in (sgl_kernel.copy_all_layer_kv_cache_cpu, sgl_kernel.mamba.causal_conv1d_fn_cpu):
    try:
        call(1)
    except NotImplementedError as error:
        print(error)
`
  const said = execFileSync(pythonPath(), ['-c', program], {
    encoding: 'utf8',
    env: { ...process.env, PYTHONPATH: join(home, 'packages') },
  })
  expect(said.match(/sgl_kernel\.\S+: SGLang's kernels for CPUs are not on PyPI/g)).toHaveLength(2)
})
