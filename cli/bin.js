#!/usr/bin/env node
/**
 * The `troupe` command. In a checkout it runs the TypeScript sources through ts-node, in an installed package the dist
 * folder; both export `main(argv): Promise<exit code>` and `redactOutput`, which removes secrets from what is printed.
 * After a command it sets `process.exitCode` instead of exiting, so that a slow pipe still gets all of stdout.
 */
const fs = require('node:fs')
const path = require('node:path')

function load() {
  const checkout = fs.existsSync(path.join(__dirname, 'main.ts'))
  if (checkout && !fs.existsSync(path.join(__dirname, '../node_modules/ts-node'))) {
    console.error('troupe: the packages of this checkout are not installed\n  hint: npm run setup')
    process.exit(1)
  }
  require('./register') // An installed package needs ts-node too: a user's recipe may be TypeScript.
  return require(checkout ? './main.ts' : '../dist/cli/main.js')
}

// A closed pipe (`troupe … | head`) is not an error of the command.
process.stdout.on('error', error => {
  if (error.code !== 'EPIPE') throw error
  process.exit(0)
})

const { main, redactOutput } = load()
redactOutput()
main(process.argv.slice(2)).then(
  code => {
    process.exitCode = code
  },
  error => {
    console.error(error)
    process.exitCode = 1
  },
)
