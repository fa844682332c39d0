/**
 * Links torch and the libraries that it brings from the main venv into the venv of an optional part, so that their 4 GB
 * are neither fetched, unpacked nor stored a second time. pip then finds them installed.
 *
 * in   both venvs, the part's requirements     out  hard links in the part's venv
 * Invariant: torch is linked only in the version that the requirements pin, for the same Python, with its libraries;
 * pip installs everything else. pip replaces files and never writes into one, so a change of one venv leaves the other
 * as it is.
 */
const fs = require('node:fs')
const path = require('node:path')

/** Matches the dist-info folders of torch, and of the distributions that torch's wheels require on Linux. */
const ofTorch = /^(torch|triton|nvidia_\w+|cuda_\w+)-[^-]+\.dist-info$/

function packagesOf(venv) {
  const lib = path.join(venv, 'lib')
  const python = fs.existsSync(lib) && fs.readdirSync(lib).find(name => /^python3\.\d+$/.test(name))
  const folder = python && path.join(lib, python, 'site-packages')
  return folder && fs.existsSync(folder) ? { python, folder } : undefined
}

/**
 * Files of a distribution below site-packages, from its RECORD, the RECORD itself last. Programs in bin are left out.
 */
function filesOf(folder, distribution) {
  const record = path.join(distribution, 'RECORD')
  const lines = fs.readFileSync(path.join(folder, record), 'utf8').trim().split('\n')
  const files = lines.map(line => line.replace(/,[^,]*,[^,]*$/, '').replace(/^"(.*)"$/, '$1'))
  return [...files.filter(file => file !== record && !/^(\.\.|\/)/.test(file)), record]
}

/** @returns {number} how many distributions were linked; 0 if torch cannot be linked: pip then installs it */
function linkTorch(from, to, requirements) {
  const [theirs, ours] = [packagesOf(from), packagesOf(to)]
  const version = /^torch==(\S+)/m.exec(fs.readFileSync(requirements, 'utf8'))?.[1]
  if (!theirs || !ours || theirs.python !== ours.python || version === undefined) return 0
  const distributions = fs.readdirSync(theirs.folder).filter(name => ofTorch.test(name))
  // A build of torch has a name after the version, such as 2.13.0+cpu; pip accepts it as the version.
  const torch = distributions.find(name => name.startsWith('torch-'))
  if (torch === undefined || torch.slice('torch-'.length, -'.dist-info'.length).split('+')[0] !== version) return 0
  const linked = []
  try {
    for (const file of distributions.flatMap(name => filesOf(theirs.folder, name))) {
      const target = path.join(ours.folder, file)
      if (fs.existsSync(target)) continue // two distributions may share a file
      fs.mkdirSync(path.dirname(target), { recursive: true })
      fs.linkSync(path.join(theirs.folder, file), target)
      linked.push(target)
    }
  } catch {
    // The venvs are on different file systems, or a file is gone: what was linked is removed, and pip installs torch.
    for (const file of linked) fs.rmSync(file, { force: true })
    return 0
  }
  return distributions.length
}

module.exports = { linkTorch }
