/**
 * Builds shim/shim.c with the machine's C compiler, once: set-up calls it, and so does a sandbox that finds no build.
 *
 * in   the C sources in shim/
 * out  path of a shared library named after their digest; null if no compiler works, or if no folder can be written and
 *      allows programs (one on a file system mounted noexec does not)
 * Invariant: the library appears complete or not at all, since it is renamed into place. Plain JavaScript, since set-up
 * runs before any package is installed.
 */
const { execFile } = require('node:child_process')
const { createHash } = require('node:crypto')
const fs = require('node:fs')
const os = require('node:os')
const path = require('node:path')
const { promisify } = require('node:util')

const SOURCES = path.join(__dirname, 'shim')
const COMPILERS = [process.env.CC, 'cc', 'gcc', 'clang'].filter(Boolean)
const LIMIT_MS = 60_000

/** Returns the folders for the library, the nearest first: an installed package's own folder may be read-only. */
function places() {
  const home = process.env.TROUPE_HOME || path.join(os.homedir(), '.cache/troupe')
  return [path.join(__dirname, 'build'), path.join(path.resolve(home), 'sandbox')]
}

function libraryName() {
  const digest = createHash('sha256')
  for (const name of fs.readdirSync(SOURCES).sort()) digest.update(fs.readFileSync(path.join(SOURCES, name)))
  return `shim-${digest.digest('hex').slice(0, 16)}-${process.arch}.so`
}

const builtShim = () =>
  places()
    .map(place => path.join(place, libraryName()))
    .find(canLoad) ?? null

/** False if the file is missing, or its file system is mounted noexec: no process could load the library from there. */
function canLoad(file) {
  try {
    fs.accessSync(file, fs.constants.X_OK)
    return true
  } catch {
    return false
  }
}

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
        const args = ['-O2', '-shared', '-fPIC', '-o', fresh, path.join(SOURCES, 'shim.c')]
        await promisify(execFile)(compiler, args, { timeout: LIMIT_MS })
        if (!canLoad(fresh)) throw new Error(`${place} is mounted noexec`)
        fs.renameSync(fresh, target)
        return target
      } catch {
        fs.rmSync(fresh, { force: true }) // After a failure, the next compiler in the list is tried.
      }
    }
  }
  return null
}

module.exports = { builtShim, compileShim }
