/**
 * Chooses which test files run next in the time that is left.
 *
 * in   test files with their distance from the change, seconds of earlier runs     out  a batch of one runner's files
 * Invariant: of one runner's files, a nearer one is never put off for a farther one; it is passed over only where it
 * would end too late.
 */
const { isPythonTest } = require('./files')

/** Seconds assumed for a test file that has not run here yet. */
const unknownSeconds = 4
/** Seconds that a runner takes before its first test, two workers included. */
const startSeconds = 3

const secondsOf = (file, known) => known[file] ?? unknownSeconds

/** Nearest first; among equals the quick ones. */
function inOrder(files, distance, known) {
  const rank = file => distance.get(file) ?? Infinity
  return [...files].sort((a, b) => rank(a) - rank(b) || secondsOf(a, known) - secondsOf(b, known) || (a < b ? -1 : 1))
}

/** Wall time of files that two workers share. */
function batchTime(files, known) {
  const seconds = files.map(file => secondsOf(file, known))
  const sum = seconds.reduce((all, each) => all + each, 0)
  return startSeconds + (isPythonTest(files[0]) ? sum : Math.max(sum / 2, ...seconds))
}

/**
 * Files of one runner that together take about `batchSeconds`. A file that alone takes longer makes a batch of its own
 * where `secondsLeft` allows it, else it is passed over.
 */
function chooseBatch(waiting, known, batchSeconds, secondsLeft) {
  const batch = []
  for (const file of waiting) {
    if (batch.length > 0 && isPythonTest(file) !== isPythonTest(batch[0])) continue
    const time = batchTime([...batch, file], known)
    if (time <= (batch.length === 0 ? secondsLeft : batchSeconds)) batch.push(file)
    else if (batch.length > 0) break
  }
  return batch
}

/**
 * Slowdown of this machine: a batch's seconds divided by its estimate. At least 1, so that a batch that ended early does
 * not make the next one too large.
 */
const paceOf = (batch, known, seconds) => Math.max(1, seconds / batchTime(batch, known))

module.exports = { batchTime, chooseBatch, inOrder, paceOf, secondsOf }
