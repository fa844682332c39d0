/**
 * Makes the Python venv: finds an interpreter (3.10 to 3.13), makes the venv, installs the pinned requirements.
 *
 * During the installation a marker file lies in the venv. A marker that is still there shows that the installation was
 * killed or failed half-way. pip takes a half-copied package for installed, so the next set-up then makes the venv
 * again (the downloads are cached).
 */
const { spawnSync } = require('node:child_process')
const fs = require('node:fs')
const path = require('node:path')
const { SetupError, say, digestOf, readStamp, writeStamp } = require('./say')
const { install } = require('./install')
const { runTool, cleanEnv } = require('./tool')

/**
 * Modules that trainer, engine, renderer and rewards import: compiling what these need takes a quarter of the time that
 * all packages take. Each list is compiled by a process of its own; the second comes to torch when the first has
 * compiled most of it.
 */
const importedByRuns = [
  ['torch', 'torch.optim', 'torch._dynamo', 'torch.distributed.checkpoint', 'torch.distributed.fsdp'],
  [
    'grpc',
    'google.protobuf.runtime_version',
    'math_verify',
    'transformers.models.auto.modeling_auto',
    'transformers.models.llama.modeling_llama',
    'peft',
  ],
]

const names = ['python3.11', 'python3.12', 'python3.13', 'python3.10', 'python3', 'python']
const wanted = 'Python 3.10, 3.11, 3.12 or 3.13'
const probe =
  'import sys, json; print(json.dumps([list(sys.version_info[:3]), ' +
  'getattr(sys, "_base_executable", None) or sys.executable, sys.implementation.name, sys.maxsize > 2**32]))'

/**
 * Asks a Python command for its version and the interpreter that it really runs; undefined if the command does not run.
 */
function ask(command) {
  const reply = spawnSync(command, ['-I', '-c', probe], { encoding: 'utf8', timeout: 20_000, env: cleanEnv() })
  if (reply.status !== 0) return undefined
  try {
    const [version, executable, implementation, is64] = JSON.parse(reply.stdout.trim().split('\n').at(-1))
    const fits = version[0] === 3 && version[1] >= 10 && version[1] <= 13 && implementation === 'cpython' && is64
    return { version: version.join('.'), executable, fits, command }
  } catch {
    return undefined
  }
}

/** Lists every executable of that name on PATH: the first may be a shim (pyenv, asdf) with no such Python behind it. */
function onPath(name) {
  const folders = (process.env.PATH ?? '').split(path.delimiter).filter(Boolean)
  return [...new Set(folders.map(folder => path.join(folder, name)))].filter(file => fs.existsSync(file))
}

function findPython() {
  const named = process.env.TROUPE_PYTHON
  if (named) {
    const found = ask(named)
    if (!found) throw new SetupError(`TROUPE_PYTHON=${named} does not run`, `name an interpreter: ${wanted}`)
    if (!found.fits)
      throw new SetupError(
        `TROUPE_PYTHON=${named} is Python ${found.version}, which does not fit`,
        `Troupe needs CPython, ${wanted}, 64 bit`,
      )
    return found
  }
  const seen = new Map()
  for (const command of names.flatMap(onPath)) {
    const found = ask(command)
    if (found?.fits) return found
    if (found) seen.set(found.executable, `${found.executable} (${found.version})`)
  }
  const others = seen.size ? `found only ${[...seen.values()].join(', ')}` : 'found no Python at all'
  throw new SetupError(
    `no fitting Python: ${others}`,
    `install ${wanted}, or name one with TROUPE_PYTHON=/path/to/python3.11`,
  )
}

/** Splits a text into words as a shell does: blanks separate, quotes and backslashes protect. */
function shellWords(text) {
  const words = []
  for (const match of text.matchAll(/(?:[^\s"'\\]+|\\.|"(?:[^"\\]|\\.)*"|'[^']*')+/gs)) {
    words.push(
      match[0].replace(/\\(.)|"((?:[^"\\]|\\.)*)"|'([^']*)'/gs, (_, escaped, double, single) =>
        double !== undefined ? double.replace(/\\(["\\$`])/g, '$1') : (single ?? escaped),
      ),
    )
  }
  return words
}

const smallBuild = "take torch's small build: TROUPE_PIP_ARGS='--extra-index-url https://download.pytorch.org/whl/cpu'"

/**
 * Checks the free disk space. On Linux torch from PyPI brings CUDA (6 GB unpacked); a CPU-only build takes a tenth of
 * that.
 */
function checkDisk(where, pipArgs, withoutTorch) {
  const cpuOnly = process.platform === 'darwin' || pipArgs.some(word => /\bcpu\b/.test(word))
  const neededMb = Number(process.env.TROUPE_DISK_MB || (withoutTorch ? 500 : cpuOnly ? 2_500 : 6_500))
  let folder = where.venv
  while (!fs.existsSync(folder)) folder = path.dirname(folder)
  const disk = fs.statfsSync(folder)
  const freeMb = Math.floor((disk.bavail * disk.bsize) / 1e6)
  if (freeMb < neededMb) {
    throw new SetupError(
      `${freeMb} MB are free on the disk of ${folder}, but the venv ${withoutTorch ? 'without' : 'with'} torch needs ${neededMb} MB`,
      `free some space, or put the venv elsewhere with TROUPE_VENV${withoutTorch ? '' : `; without a GPU, ${smallBuild}`} (TROUPE_DISK_MB overrides this check)`,
    )
  }
}

function step(where, { test, withoutTorch, pythonOnly }) {
  const python = path.join(where.venv, 'bin/python')
  const stamp = path.join(where.venv, '.troupe-setup.json')
  const marker = path.join(where.venv, '.troupe-installing')
  const whole = { key: 'requirements', file: path.join(where.policy, 'requirements.txt') }
  const light = { key: 'withoutTorch', file: path.join(where.policy, 'requirements-without-torch.txt') }
  const files = [withoutTorch ? light : whole]
  if (test && where.checkout) files.push({ key: 'tests', file: path.join(where.policy, 'requirements-test.txt') })
  const isDone = () => {
    if (!fs.existsSync(python)) return false
    const made = readStamp(stamp)
    const has = ({ key, file }) => made[key] === digestOf([file])
    return files.every(has) || (withoutTorch === true && !test && has(whole))
  }

  async function run() {
    const pipArgs = shellWords(process.env.TROUPE_PIP_ARGS ?? '')
    if (fs.existsSync(marker)) {
      say('Python: an earlier install was interrupted; installing again')
      fs.rmSync(where.venv, { recursive: true, force: true })
    }
    const present = fs.existsSync(python) ? ask(python) : undefined
    if (present && !present.fits) say(`Python: ${where.venv} is of Python ${present.version}; making it again`)
    const tool = { cwd: where.policy, where }
    if (!present?.fits) {
      const found = findPython()
      say(`Python: ${found.version}, ${found.executable}`)
      checkDisk(where, pipArgs, withoutTorch)
      fs.rmSync(where.venv, { recursive: true, force: true })
      await runTool('Python venv', found.executable, ['-m', 'venv', where.venv], tool)
    }
    fs.writeFileSync(marker, '')
    const wants = files.flatMap(({ file }) => ['-r', file])
    // With `pythonOnly`, as in an image, all packages are compiled: an image's user cannot store bytecode later.
    const compiles = test || pythonOnly ? { folders: ['.'] } : { imported: importedByRuns }
    try {
      await install('Python packages', python, wants, pipArgs, tool, compiles)
    } catch (error) {
      if (error.unchanged) fs.rmSync(marker, { force: true })
      throw error
    }
    writeStamp(stamp, {
      ...readStamp(stamp),
      ...Object.fromEntries(files.map(({ key, file }) => [key, digestOf([file])])),
    })
    fs.rmSync(marker, { force: true })
  }
  const what = withoutTorch ? 'without torch (half a minute)' : 'torch and transformers (minutes the first time)'
  return { name: 'Python', says: `venv in ${where.venv}, ${what}`, isDone, run }
}

module.exports = { step, findPython, shellWords }
