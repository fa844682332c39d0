/**
 * Installs what programs may import in the sandbox into the venv of the Python step: numpy, scipy, sympy and others,
 * pinned in policy/requirements-sandbox.txt.
 *
 * in   the venv, the pinned requirements     out  the packages; their digest in the venv's stamp
 * The step is separate, so that a change of these requirements does not make pip check torch's requirements again.
 * While uv or pip installs, a marker file lies in the venv. pip treats a half-copied package as installed, so if the
 * marker is still there, an earlier installation was interrupted or failed, and all packages are installed again.
 */
const fs = require('node:fs')
const path = require('node:path')
const { digestOf, readStamp, writeStamp } = require('./say')
const { install } = require('./install')
const { shellWords } = require('./python')

/** Folders of the required packages, each of which has the name of its package. */
const foldersOf = file => [...new Set(fs.readFileSync(file, 'utf8').match(/^\w+(?===)/gm))]

function step(where) {
  const python = path.join(where.venv, 'bin/python')
  const stamp = path.join(where.venv, '.troupe-setup.json')
  const marker = path.join(where.venv, '.troupe-installing-sandbox')
  const file = path.join(where.policy, 'requirements-sandbox.txt')
  return {
    name: 'sandbox packages',
    says: `numpy, scipy, sympy, mpmath and networkx for programs in the sandbox, in ${where.venv}`,
    isDone: () => fs.existsSync(python) && readStamp(stamp).sandbox === digestOf([file]),
    async run() {
      const extra = shellWords(process.env.TROUPE_PIP_ARGS ?? '')
      const again = fs.existsSync(marker) ? ['--force-reinstall', '--no-deps'] : []
      fs.writeFileSync(marker, '')
      const tool = { cwd: where.policy, where }
      // All of these packages are compiled: a sandboxed program could not store the bytecode of what it imports.
      await install('sandbox packages', python, [...again, '-r', file], extra, tool, { folders: foldersOf(file) })
      writeStamp(stamp, { ...readStamp(stamp), sandbox: digestOf([file]) })
      fs.rmSync(marker, { force: true })
    },
  }
}

module.exports = { step }
