/**
 * Order in which Jest starts the test files of a suite: the longest first, so that no worker is left alone with a long file
 * at the end while the others have nothing to do. Without it Jest starts the largest files first.
 *
 * in   Jest's order, seconds of earlier runs     out  the same files, longest first
 */
const path = require('node:path')
const { default: Sequencer } = require('@jest/test-sequencer')
const { readDurations } = require('./durations')

const root = path.join(__dirname, '../..')

/** Files that take most of a minute and more on two busy cores, the longest first: what a fresh checkout goes by. */
const longFiles = [
  'tests/slice/chaos.test.ts',
  'tests/slice/train.test.ts',
  'tests/slice/movedRun.test.ts',
  'tests/slice/replay.test.ts',
  'tests/slice/supervision.test.ts',
  'tests/cli/rehearse/rehearse.test.ts',
  'tests/cli/setup/setup.test.ts',
  'tests/package.test.ts',
  'tests/cli/dryRun.test.ts',
  'tests/docs/commands.test.ts',
  'tests/backends/engines/recorded/run.test.ts',
  'tests/actors/curriculum/stagesRun.test.ts',
  'tests/actors/run/tree.test.ts',
  'tests/config/estimate/measured.test.ts',
]

/** By seconds where they are known, else by the list; other files keep their order, behind the long ones. */
function longestFirst(files, known, long = longFiles) {
  const listed = file => (long.includes(file) ? 60 + long.length - long.indexOf(file) : 0)
  const seconds = file => known[file] ?? listed(file)
  return [...files].sort((a, b) => seconds(b) - seconds(a))
}

class LongestFirst extends Sequencer {
  sort(tests) {
    const byFile = new Map(super.sort(tests).map(test => [path.relative(root, test.path), test]))
    return longestFirst(byFile.keys(), readDurations(root)).map(file => byFile.get(file))
  }
}

module.exports = LongestFirst
module.exports.longestFirst = longestFirst
module.exports.longFiles = longFiles
