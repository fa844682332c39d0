/**
 * Installs an optional part in its own venv, because its requirements conflict with those of the venv with torch.
 *
 * in   requirements, the disk space that they need       out  the venv, with a stamp file once it is complete
 * The stamp is written last: a venv without a stamp, or with other requirements, is deleted and made again. If the
 * venv's path is a folder with files that is no venv, the folder is left alone and the step fails.
 */
const fs = require('node:fs')
const path = require('node:path')
const { SetupError, digestOf, readStamp, say, writeStamp } = require('./say')
const { install } = require('./install')
const { linkTorch } = require('./linkTorch')
const { runTool } = require('./tool')
const { findPython, shellWords } = require('./python')

/**
 * Path of the part's venv: `venv` if the part has a fixed one, the environment variable `variable` if it is set, else a
 * folder beside the set-up's other files.
 */
function ownVenvOf(where, { venv, variable, folder }, env = process.env) {
  if (venv) return venv
  if (env[variable]) return path.resolve(env[variable])
  return where.checkout ? path.join(where.root, `.${folder}`) : path.join(where.logs, folder)
}

function checkDisk(venv, { part, variable, neededMb }) {
  let folder = venv
  while (!fs.existsSync(folder)) folder = path.dirname(folder)
  const disk = fs.statfsSync(folder)
  const freeMb = Math.floor((disk.bavail * disk.bsize) / 1e6)
  const wantMb = Number(process.env.TROUPE_DISK_MB || neededMb)
  if (freeMb >= wantMb) return
  throw new SetupError(
    `${freeMb} MB are free on the disk of ${folder}, but the venv with ${part} needs ${wantMb} MB`,
    `free some space${variable ? `, or put the venv elsewhere with ${variable}` : ''} (TROUPE_DISK_MB overrides this check)`,
  )
}

/** Finds Python 3.11 or newer, which the optional parts need. */
function pythonFor({ part }) {
  const found = findPython()
  if (Number(found.version.split('.')[1]) >= 11) return found.executable
  const hint = 'install Python 3.11, 3.12 or 3.13, or name one with TROUPE_PYTHON=/path/to/python3.11'
  throw new SetupError(
    `Python ${found.version} (${found.executable}) is too old for ${part}, which needs 3.11 or newer`,
    hint,
  )
}

/**
 * Set-up step that installs a part. files: the files whose digest the stamp holds, requirements first.
 * compiles: what to compile to bytecode at once; default: every package. Python compiles the rest when it is imported.
 * afterwards(python, pip): work to do after the requirements are installed.
 */
function ownVenvStep(where, part) {
  const { part: name, says, files, variable, compiles, checkMachine, afterwards } = part
  const venv = ownVenvOf(where, part)
  const python = path.join(venv, 'bin/python')
  const stamp = path.join(venv, '.troupe-setup.json')
  const digest = () => digestOf(files, part.version)
  return {
    name,
    venv,
    says: `${says} in ${venv}`,
    isDone: () => readStamp(stamp).digest === digest() && fs.existsSync(python),
    async run() {
      checkMachine?.()
      checkDisk(venv, part)
      const base = pythonFor(part)
      if (fs.existsSync(venv)) {
        // Deletes a venv or an empty folder only.
        if (!fs.existsSync(path.join(venv, 'pyvenv.cfg')) && fs.readdirSync(venv).length > 0) {
          throw new SetupError(
            `${venv} exists already and is not a venv`,
            variable ? `choose another folder with ${variable}` : 'move it away',
          )
        }
        say(`${name}: the existing venv is incomplete or of another version; making it again`)
        fs.rmSync(venv, { recursive: true, force: true })
      }
      const extra = shellWords(process.env.TROUPE_PIP_ARGS ?? '')
      const tool = { cwd: where.root, where }
      const pip = (what, ...args) => install(what, python, args, extra, tool, compiles)
      await runTool(`${name} venv`, base, ['-m', 'venv', venv], tool)
      if (linkTorch(where.venv, venv, files[0]) > 0) say(`${name}: torch is shared with ${where.venv}`)
      await pip(`${name} packages`, '-r', files[0])
      await afterwards?.(python, pip)
      writeStamp(stamp, { digest: digest() })
    },
  }
}

module.exports = { ownVenvStep }
