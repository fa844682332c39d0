/**
 * Installs an SGLang server that runs on a CPU, in a venv of its own: for generation on a CPU and for the tests.
 *
 * in   sglang/requirements.txt, sglang/sgl_kernel
 * out  the venv: TROUPE_SGLANG_VENV if it is set; else .venv-sglang in a checkout; for an installed package
 * venv-sglang in ~/.cache/troupe (TROUPE_HOME)
 * PyPI has no kernels of SGLang for CPUs, and SGLang does not start without the package `sgl_kernel`. Our own package
 * of that name (sglang/sgl_kernel) replaces it; SGLang then computes with torch's functions (docs/sglang.md).
 */
const { spawnSync } = require('node:child_process')
const fs = require('node:fs')
const path = require('node:path')
const { SetupError } = require('./say')
const { ownVenvStep } = require('./ownVenv')

const version = '0.5.23'
const requirements = path.join(__dirname, 'sglang/requirements.txt')
const kernels = path.join(__dirname, 'sglang/sgl_kernel')
const kernelFiles = ['__init__.py', 'mamba.py'].map(name => path.join(kernels, name))

/** Environment variables of a server on a CPU. Without the first, SGLang looks for a GPU and finds none. */
const environment = { SGLANG_USE_CPU_ENGINE: '1', TORCHDYNAMO_DISABLE: '1' }
/** Flags of a server on a CPU. */
const flags = [
  '--device',
  'cpu',
  '--attention-backend',
  'torch_native',
  '--disable-overlap-schedule',
  '--sleep-on-idle',
]

function checkMachine() {
  if (process.platform === 'linux') return
  const hint = 'run an SGLang server on a Linux machine, and name it: --engine sglang:URL'
  throw new SetupError('sglang has wheels for Linux only', hint)
}

/** Copies the package that takes the place of SGLang's kernels into the venv. */
function writeKernels(python) {
  const ask = ['-I', '-c', 'import sysconfig; print(sysconfig.get_paths()["purelib"])']
  const packages = spawnSync(python, ask, { encoding: 'utf8', timeout: 60_000 }).stdout.trim()
  const folder = path.join(packages, 'sgl_kernel')
  fs.mkdirSync(folder, { recursive: true })
  for (const file of kernelFiles) fs.copyFileSync(file, path.join(folder, path.basename(file)))
}

const step = where =>
  ownVenvStep(where, {
    part: 'SGLang',
    says: `SGLang ${version} for CPUs (7 GB, minutes)`,
    version,
    files: [requirements, ...kernelFiles],
    neededMb: 8_000,
    variable: 'TROUPE_SGLANG_VENV',
    folder: 'venv-sglang',
    checkMachine,
    async afterwards(python, pip) {
      await pip('SGLang server', '--no-deps', `sglang==${version}`)
      writeKernels(python)
    },
  })

module.exports = { environment, flags, step }
