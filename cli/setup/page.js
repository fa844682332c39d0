/** Bundles the dashboard's page in a checkout; a package carries the bundle. */
const fs = require('node:fs')
const path = require('node:path')

function step(where) {
  const bundler = path.join(where.root, 'dashboard/bundle.js')
  const { bundlePage, isCurrent, target } = fs.existsSync(bundler) ? require(bundler) : {}
  return {
    name: 'dashboard',
    says: 'the bundle of its page',
    isDone: () => !isCurrent || isCurrent(target),
    run: async () => void (await bundlePage(target)),
  }
}

module.exports = { step }
