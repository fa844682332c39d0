/**
 * Installs packages for sandboxed programs, besides those of every set-up, in a venv of their own (`tools.packages`).
 *
 * in   pinned packages (NAME==VERSION), policy/requirements-sandbox.txt     out  a venv named by a digest of both
 * A package that is named replaces the set-up's version of it. The venv's requirements.lock lists every version that
 * was installed, also of the packages' own requirements. runtime/python.ts computes the same path of the venv.
 */
const { createHash } = require('node:crypto')
const { spawnSync } = require('node:child_process')
const fs = require('node:fs')
const path = require('node:path')
const { SetupError } = require('./say')
const { ownVenvStep } = require('./ownVenv')

/** Pattern of a package with its version, by which the recipe's `tools.packages` are checked too. */
const pinnedIn = policy =>
  new RegExp(JSON.parse(fs.readFileSync(path.join(policy, 'pinned-package.json'), 'utf8')).pattern)
const plain = name => name.toLowerCase().replaceAll(/[-_.]+/g, '-')

function step(where, packages) {
  const pinned = pinnedIn(where.policy)
  const wrong = packages.find(one => !pinned.test(one))
  if (packages.length === 0 || wrong !== undefined)
    throw new SetupError(
      wrong === undefined ? 'no packages were named' : `${wrong} is not pinned`,
      "name each package with its version: troupe setup packages 'pandas==3.1.1'",
    )
  const base = path.join(where.policy, 'requirements-sandbox.txt')
  const name = createHash('sha256')
    .update(fs.readFileSync(base))
    .update(JSON.stringify([...new Set(packages)].sort()))
    .digest('hex')
    .slice(0, 16)
  const folder = where.checkout ? path.join(where.root, '.venv-packages') : path.join(where.logs, 'venv-packages')
  const named = new Set(packages.map(one => plain(pinned.exec(one)[1])))
  const lines = fs.readFileSync(base, 'utf8').split('\n')
  const kept = lines.filter(line => !named.has(plain(line.split('==')[0])))
  const requirements = path.join(folder, `${name}.txt`)
  fs.mkdirSync(folder, { recursive: true })
  fs.writeFileSync(requirements, [...kept.filter(Boolean), ...packages, ''].join('\n'))
  return ownVenvStep(where, {
    part: 'packages',
    says: packages.join(', '),
    version: '1',
    files: [requirements],
    neededMb: 1000,
    venv: path.join(folder, name),
    async afterwards(python) {
      const frozen = spawnSync(python, ['-m', 'pip', 'freeze'], { encoding: 'utf8', timeout: 60_000 })
      if (frozen.status !== 0) {
        const why =
          frozen.error?.message ?? (frozen.signal ? `it was ended by ${frozen.signal}` : `exit code ${frozen.status}`)
        throw new SetupError(
          `pip freeze failed, so the versions that were installed in ${path.join(folder, name)} are not known: ${why}`,
          'run the same command again: it makes the venv anew',
          frozen.stderr ?? '',
        )
      }
      fs.writeFileSync(path.join(folder, name, 'requirements.lock'), frozen.stdout)
    },
  })
}

module.exports = { step }
