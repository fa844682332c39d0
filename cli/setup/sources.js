/**
 * Compiles the TypeScript that `troupe train` loads, in a checkout, so that the first run begins some seconds sooner.
 * It runs while pip fetches packages.
 *
 * in   the sources, ts-node     out  the cache of cli/register.js; what it lacks, later starts compile and add
 */
const fs = require('node:fs')
const path = require('node:path')
const { runTool } = require('./tool')

const entries = ['train', 'train/trainRun', 'check/checkRecipe']

function step(where) {
  return {
    name: 'sources',
    says: 'TypeScript that the first run needs',
    isOptional: true, // a command that needs a source that is not compiled compiles it itself
    isDone: () => fs.existsSync(path.join(where.logs, 'ts')),
    async run() {
      const loads = entries.map(entry => `require(${JSON.stringify(path.join(where.root, 'cli', entry))})`)
      const args = ['-r', path.join(where.root, 'cli/register.js'), '-e', loads.join(';')]
      await runTool('sources', process.execPath, args, { cwd: where.root, where })
    },
  }
}

module.exports = { step }
