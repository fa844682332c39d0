#!/usr/bin/env node
/**
 * Bundles the dashboard's page with esbuild: page.js, page.css and index.html, without any reference to the network.
 *
 * in   the sources below dashboard/page, page.css, index.html        out  the three files in the given folder
 * Invariant: a bundle that is newer than every source is left as it is, so calling this often costs nothing.
 */
const fs = require('node:fs')
const path = require('node:path')

const page = path.join(__dirname, 'page')
const target = path.join(page, 'build')
const names = ['page.js', 'page.css', 'index.html']

function sourcesBelow(folder) {
  return fs.readdirSync(folder, { withFileTypes: true }).flatMap(entry => {
    const file = path.join(folder, entry.name)
    if (entry.isDirectory()) return entry.name === 'build' ? [] : sourcesBelow(file)
    return [file]
  })
}

function isCurrent(out) {
  const times = names.map(name => fs.statSync(path.join(out, name), { throwIfNoEntry: false })?.mtimeMs ?? 0)
  const inputs = [
    ...sourcesBelow(page),
    path.join(__dirname, 'api.ts'),
    path.join(__dirname, '../package-lock.json'),
    __filename,
  ]
  const newest = Math.max(...inputs.map(file => fs.statSync(file, { throwIfNoEntry: false })?.mtimeMs ?? 0))
  return Math.min(...times) > newest
}

/** Bundles the page into `out`. Resolves with false when the bundle there is current. */
async function bundlePage(out = target) {
  if (isCurrent(out)) return false
  const { build } = require('esbuild')
  // A folder of its own and a rename: two processes that bundle at once never serve half a file.
  const fresh = `${out}.${process.pid}`
  fs.mkdirSync(fresh, { recursive: true })
  try {
    await build({
      entryPoints: [{ in: path.join(page, 'main.ts'), out: 'page' }],
      ...{
        outdir: fresh,
        bundle: true,
        minify: true,
        format: 'iife',
        target: 'es2022',
        charset: 'utf8',
        legalComments: 'none',
      },
      ...{ logLevel: 'silent', tsconfig: path.join(page, 'tsconfig.json') },
    })
    fs.copyFileSync(path.join(page, 'index.html'), path.join(fresh, 'index.html'))
    fs.mkdirSync(out, { recursive: true })
    for (const name of names) fs.renameSync(path.join(fresh, name), path.join(out, name))
  } finally {
    fs.rmSync(fresh, { recursive: true, force: true })
  }
  return true
}

module.exports = { bundlePage, isCurrent, target }

if (require.main === module) {
  bundlePage(process.argv[2] ?? target).then(
    made => process.stderr.write(made ? 'page: bundled\n' : 'page: up to date\n'),
    error => {
      process.stderr.write(`page: ${error.message}\n`)
      process.exitCode = 1
    },
  )
}
