/**
 * Helpers that all set-up steps share: lines on stderr, an error with a hint, digests, and stamps that record a step's
 * inputs.
 */
const { createHash } = require('node:crypto')
const fs = require('node:fs')

/** Error that ends set-up. `hint` tells the user what to do, `detail` is the tool's output. */
class SetupError extends Error {
  constructor(message, hint, detail = '') {
    super(message)
    this.hint = hint
    this.detail = detail
  }
}

const say = line => process.stderr.write(`setup: ${line}\n`)

const seconds = ms => (ms < 950 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(1)} s`)

/** Digest of the files' bytes and then of the texts, each in order. */
function digestOf(files, ...texts) {
  const hash = createHash('sha256')
  for (const file of files) hash.update(fs.readFileSync(file)).update('\0')
  for (const text of texts) hash.update(text).update('\0')
  return hash.digest('hex')
}

function readStamp(file) {
  try {
    return JSON.parse(fs.readFileSync(file, 'utf8'))
  } catch {
    return {} // the stamp is absent or half written: the step runs again
  }
}

function writeStamp(file, stamp) {
  fs.writeFileSync(`${file}.new`, `${JSON.stringify(stamp, null, 2)}\n`)
  fs.renameSync(`${file}.new`, file)
}

module.exports = { SetupError, say, seconds, digestOf, readStamp, writeStamp }
