/**
 * Remembers how long each test file took, so that `npm run check` can fit the nearest tests into its time.
 *
 * in   seconds by test file, after each run     out  .cache/test-seconds.json, ignored by git
 * Invariant: a file that is missing or unreadable only makes the estimates worse; it never fails a run.
 */
const fs = require('node:fs')
const path = require('node:path')

const place = root => path.join(root, '.cache/test-seconds.json')

function readDurations(root) {
  try {
    return JSON.parse(fs.readFileSync(place(root), 'utf8'))
  } catch {
    return {}
  }
}

function keepDurations(root, seconds) {
  const file = place(root)
  try {
    fs.mkdirSync(path.dirname(file), { recursive: true })
    fs.writeFileSync(`${file}.${process.pid}`, JSON.stringify({ ...readDurations(root), ...seconds }, null, 1))
    fs.renameSync(`${file}.${process.pid}`, file)
  } catch {
    // a read-only checkout: the next check estimates without it
  }
}

module.exports = { keepDurations, readDurations }
