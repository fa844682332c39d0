#!/usr/bin/env node
/**
 * Builds dist/, the package's content: the sources compiled to CommonJS with declarations, the non-TypeScript files
 * beside them (Python, C, templates, the proto), the dashboard's page, and ES module wrappers for each entry of the
 * exports map.
 *
 * Invariant: dist mirrors the sources' folders, so a path relative to `__dirname` means the same in both, except for
 * JavaScript files of cli/: the package has them in cli/ itself, not in dist.
 */
const { spawnSync } = require('node:child_process')
const fs = require('node:fs')
const path = require('node:path')
const { bundlePage } = require('../dashboard/bundle')

const root = path.join(__dirname, '..')
const dist = path.join(root, 'dist')
const houses = [
  'messages',
  'kernels',
  'policy',
  'sandbox',
  'runtime',
  'config',
  'environments',
  'backends',
  'actors',
  'gateway',
  'recipes',
  'replay',
  'dashboard/demo',
  'entries',
]
const entries = [
  'messages',
  'actors',
  'runtime',
  'backends',
  'sandbox',
  'recipes',
  'replay',
  'kernels',
  'entries/runtime',
]

/** Types are not checked here, which would double the time: `npm run lint` checks them. */
function compile() {
  const tsc = path.join(root, 'node_modules/typescript7/bin/tsc')
  const { status, signal, error } = spawnSync(process.execPath, [tsc, '-p', 'tsconfig.build.json', '--noCheck'], {
    cwd: root,
    stdio: ['ignore', 2, 2],
  })
  if (status !== 0)
    throw new Error(`tsc ${error?.message ?? (signal ? `was ended by ${signal}` : `ended with exit code ${status}`)}`)
}

/** Copies every file of the packaged folders, except TypeScript sources, tests, dot files, caches and builds. */
function copyAssets() {
  const left = /(^|\/)(__pycache__|\.[^/]+|tests|build)(\/|$)|\.tsx?$|\.pyc$|requirements-test\.txt$/
  for (const house of houses.filter(name => fs.existsSync(path.join(root, name)))) {
    for (const file of fs.readdirSync(path.join(root, house), { recursive: true })) {
      const from = path.join(root, house, file)
      if (left.test(file) || !fs.statSync(from).isFile()) continue
      fs.mkdirSync(path.dirname(path.join(dist, house, file)), { recursive: true })
      fs.copyFileSync(from, path.join(dist, house, file)) // copying keeps the file mode
    }
  }
  const generated = path.join(dist, 'policy/troupe_policy/generated/policy_pb2.py')
  if (!fs.existsSync(generated))
    throw new Error('the code generated from policy.proto is missing: run npm run setup first')
}

const namesOf = folder => Object.keys(require(path.join(dist, folder, 'index.js'))).filter(name => name !== 'default')

/**
 * ES modules do not see names that CommonJS re-exports with `export *`, so the wrapper lists them; the wrapper has the
 * original's types.
 */
function writeModule(folder, names) {
  const lines = names.map(name => `export const ${name} = module.${name}`)
  fs.writeFileSync(path.join(dist, folder, 'index.mjs'), `import module from './index.js'\n${lines.join('\n')}\n`)
  fs.writeFileSync(path.join(dist, folder, 'index.d.mts'), "export * from './index.js'\n")
}

function writeEntries() {
  const owner = new Map()
  for (const folder of entries) {
    const names = namesOf(folder)
    if (names.length === 0) throw new Error(`${folder}/index.ts exports no value`)
    writeModule(folder, names)
    for (const name of names) if (!owner.has(name)) owner.set(name, folder)
  }
  writeModule('', [...owner.keys()])
  const getters = [...owner].map(([name, folder]) => `lazy('${name}', () => require('./${folder}').${name})`)
  const lazy = 'const lazy = (name, get) => Object.defineProperty(exports, name, { enumerable: true, get })'
  const head = `"use strict"\nObject.defineProperty(exports, '__esModule', { value: true })\n${lazy}`
  fs.writeFileSync(path.join(dist, 'index.js'), `${head}\n${getters.join('\n')}\n`)
}

async function build() {
  const began = performance.now()
  fs.rmSync(dist, { recursive: true, force: true })
  compile()
  copyAssets()
  await bundlePage(path.join(dist, 'dashboard/page/build'))
  writeEntries()
  process.stderr.write(`build: dist in ${((performance.now() - began) / 1000).toFixed(1)} s\n`)
}

build().catch(error => {
  console.error(`build: ${error.message}`)
  process.exitCode = 1
})
