/**
 * Installs the npm packages of a checkout: runs `npm ci` when node_modules does not match package-lock.json (`npm
 * install` if there is no package-lock.json).
 */
const fs = require('node:fs')
const path = require('node:path')
const { digestOf, readStamp, writeStamp } = require('./say')
const { runTool } = require('./tool')

/**
 * npm writes node_modules/.package-lock.json last: if this file agrees with package-lock.json, an install by hand is
 * complete.
 */
function agrees(root) {
  try {
    const wanted = JSON.parse(fs.readFileSync(path.join(root, 'package-lock.json'), 'utf8')).packages
    const present = JSON.parse(fs.readFileSync(path.join(root, 'node_modules/.package-lock.json'), 'utf8')).packages
    return Object.entries(wanted).every(
      ([name, entry]) =>
        name === '' || (present[name] ? present[name].version === entry.version : entry.optional === true),
    )
  } catch {
    return false
  }
}

function step(where) {
  const lock = path.join(where.root, 'package-lock.json')
  const stamp = path.join(where.root, 'node_modules/.troupe-setup.json')
  const digest = () =>
    digestOf(fs.existsSync(lock) ? [lock] : [path.join(where.root, 'package.json')], process.platform, process.arch)
  return {
    name: 'npm packages',
    says: 'npm ci (about 30 s)',
    isDone() {
      if (readStamp(stamp).digest === digest()) return true
      if (!agrees(where.root)) return false
      writeStamp(stamp, { digest: digest() })
      return true
    },
    async run() {
      // npm passes its own path to scripts in an environment variable; that npm need not be on PATH.
      const self = process.env.npm_execpath ?? ''
      const [command, before] = self.endsWith('npm-cli.js') ? [process.execPath, [self]] : ['npm', []]
      const verb = fs.existsSync(lock) ? 'ci' : 'install'
      const flags = ['--include=dev', '--no-audit', '--no-fund', '--no-progress']
      await runTool('npm packages', command, [...before, verb, ...flags], { cwd: where.root, where })
      writeStamp(stamp, { digest: digest() })
    },
  }
}

module.exports = { step }
