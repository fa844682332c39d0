/**
 * Installs the npm packages of a checkout when node_modules does not match package-lock.json. It installs all of them;
 * with `omitDev`, unless an earlier set-up installed all, only those that a run needs, in less than half the time.
 *
 * `npm ci` deletes node_modules and makes it anew. `npm install` is run instead if there is no package-lock.json, and
 * if only development packages are missing, so that a run that uses node_modules at this time is not disturbed.
 */
const fs = require('node:fs')
const path = require('node:path')
const { digestOf, readStamp, writeStamp } = require('./say')
const { runTool } = require('./tool')

/**
 * True if the wanted packages are installed, whoever installed them: npm writes node_modules/.package-lock.json last.
 */
function agrees(root, omitDev) {
  try {
    const wanted = JSON.parse(fs.readFileSync(path.join(root, 'package-lock.json'), 'utf8')).packages
    const present = JSON.parse(fs.readFileSync(path.join(root, 'node_modules/.package-lock.json'), 'utf8')).packages
    return Object.entries(wanted).every(
      ([name, entry]) =>
        name === '' ||
        (omitDev && entry.dev) ||
        (present[name] ? present[name].version === entry.version : entry.optional === true),
    )
  } catch {
    return false
  }
}

function step(where, { omitDev = false } = {}) {
  const lock = path.join(where.root, 'package-lock.json')
  const stamp = path.join(where.root, 'node_modules/.troupe-setup.json')
  const digest = () =>
    digestOf(fs.existsSync(lock) ? [lock] : [path.join(where.root, 'package.json')], process.platform, process.arch)
  const made = readStamp(stamp)
  const ofRun = omitDev && (made.digest === undefined || made.omitDev === true)
  return {
    name: 'npm packages',
    says: ofRun ? 'those that a run needs (about 15 s)' : 'all (about 30 s)',
    isDone() {
      const { digest: installed, omitDev: isPart } = readStamp(stamp)
      if (installed === digest() && (ofRun || !isPart)) return true
      if (!agrees(where.root, ofRun)) return false
      writeStamp(stamp, { digest: digest(), omitDev: ofRun })
      return true
    },
    async run() {
      // npm passes its own path to scripts in an environment variable; that npm need not be on PATH.
      const self = process.env.npm_execpath ?? ''
      const [command, before] = self.endsWith('npm-cli.js') ? [process.execPath, [self]] : ['npm', []]
      const isLocked = fs.existsSync(lock)
      const verb = !isLocked ? ['install'] : agrees(where.root, true) ? ['install', '--no-save'] : ['ci']
      const flags = [ofRun ? '--omit=dev' : '--include=dev', '--no-audit', '--no-fund', '--no-progress']
      await runTool('npm packages', command, [...before, ...verb, ...flags], { cwd: where.root, where })
      writeStamp(stamp, { digest: digest(), omitDev: ofRun })
    },
  }
}

module.exports = { step }
