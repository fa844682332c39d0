/**
 * Builds shim.c with the machine's C compiler, once: set-up calls it, and so does a sandbox that finds nothing built.
 *
 * in   shim.c      out  the path of a shared library named after the sources' digest, or null where there is no compiler
 * Invariant: whoever sees the file sees all of it (it is renamed into place). Plain JavaScript, since set-up runs before
 * any package is there.
 */
const { execFile } = require('node:child_process')
const { createHash } = require('node:crypto')
const fs = require('node:fs')
const os = require('node:os')
const path = require('node:path')
const { promisify } = require('node:util')

const SOURCES = ['shim.c', 'arenas.h', 'cells.h', 'sessions.h']
const COMPILERS = [process.env.CC, 'cc', 'gcc', 'clang'].filter(Boolean)
const LIMIT_MS = 60_000

/** Where a build may lie, the nearest first: an installed package's folder may be read-only. */
function places() {
  const home = process.env.TROUPE_HOME || path.join(os.homedir(), '.cache/troupe')
  return [path.join(__dirname, 'build'), path.join(path.resolve(home), 'sandbox')]
}

function libraryName() {
  const digest = createHash('sha256')
  for (const name of SOURCES) digest.update(fs.readFileSync(path.join(__dirname, name)))
  return `shim-${digest.digest('hex').slice(0, 16)}-${process.arch}.so`
}

const builtShim = () =>
  places()
    .map(place => path.join(place, libraryName()))
    .find(file => fs.existsSync(file)) ?? null

async function compileShim() {
  const built = builtShim()
  if (built) return built
  for (const place of places()) {
    const target = path.join(place, libraryName())
    const fresh = `${target}.${process.pid}.new`
    try {
      fs.mkdirSync(place, { recursive: true })
      fs.accessSync(place, fs.constants.W_OK)
    } catch {
      continue
    }
    for (const compiler of COMPILERS) {
      try {
        const args = ['-O2', '-shared', '-fPIC', '-o', fresh, path.join(__dirname, 'shim.c')]
        await promisify(execFile)(compiler, args, { timeout: LIMIT_MS })
        fs.renameSync(fresh, target)
        return target
      } catch {
        fs.rmSync(fresh, { force: true }) // the next compiler may do better
      }
    }
  }
  return null
}

module.exports = { builtShim, compileShim }
