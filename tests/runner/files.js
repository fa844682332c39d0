/**
 * The project's files, and the suite that each test file belongs to.
 *
 * in   the folders of a checkout     out  paths relative to its root, with slashes
 * Invariant: a test file belongs to exactly one suite: that of its folder under tests/, else `unit`.
 */
const fs = require('node:fs')
const path = require('node:path')

/** Suites that own the folder of their name under tests/. Every other test is a unit test. */
const suiteFolders = [
  'sandbox',
  'containers',
  'kafka',
  'slice',
  'environments',
  'vllm',
  'sglang',
  'trackers',
  'compose',
]

const notOurs = new Set(['node_modules', 'dist', 'coverage', '__pycache__', 'generated'])

/** Every file below `folder`, without hidden folders, packages and build output. */
function filesBelow(root, folder = '') {
  const entries = fs.readdirSync(path.join(root, folder), { withFileTypes: true })
  return entries
    .filter(({ name }) => !notOurs.has(name) && !name.startsWith('.'))
    .sort((a, b) => (a.name < b.name ? -1 : 1))
    .flatMap(entry => {
      const file = folder === '' ? entry.name : `${folder}/${entry.name}`
      if (entry.isDirectory()) return filesBelow(root, file)
      return entry.isFile() ? [file] : []
    })
}

const isTest = file => file.endsWith('.test.ts')
const isPythonTest = file => /^policy\/tests\/(.*\/)?test_[^/]*\.py$/.test(file)

function suiteOf(file) {
  if (!isTest(file)) return undefined
  return suiteFolders.find(suite => file.startsWith(`tests/${suite}/`)) ?? 'unit'
}

const testFilesOf = (root, suite) => filesBelow(root, 'tests').filter(file => suiteOf(file) === suite)

module.exports = { filesBelow, isPythonTest, isTest, suiteFolders, suiteOf, testFilesOf }
