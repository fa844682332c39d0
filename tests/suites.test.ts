/** Every test file belongs to exactly one suite of `npm test`, and every suite has tests. */
import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join, relative } from 'node:path'

interface Files {
  readonly suiteFolders: readonly string[]
  filesBelow(root: string): readonly string[]
  isPythonTest(file: string): boolean
  suiteOf(file: string): string | undefined
  testFilesOf(root: string, suite: string): readonly string[]
}
const { filesBelow, isPythonTest, suiteFolders, suiteOf, testFilesOf } = require('./runner/files') as Files

const root = join(__dirname, '..')
const suites = ['unit', ...suiteFolders]

test('each test file is run by exactly one suite, and no suite is empty', () => {
  const bySuite = suites.map(suite => testFilesOf(root, suite))
  expect(bySuite.every(files => files.length > 0)).toBe(true)
  const run = bySuite.flat().sort()
  expect(new Set(run).size).toBe(run.length)
  expect(run).toEqual(
    filesBelow(root)
      .filter(file => /\.(test|spec)\.[cm]?[jt]sx?$/.test(file))
      .sort(),
  )
})

test('jest finds the same files', () => {
  const listed = execFileSync(process.execPath, [join(root, 'node_modules/.bin/jest'), '--listTests'], {
    cwd: root,
    encoding: 'utf8',
  })
  const found = listed.trim().split('\n')
  expect(found.map(file => relative(root, file)).sort()).toEqual(
    suites.flatMap(suite => testFilesOf(root, suite)).sort(),
  )
})

test('a suite is known by the folder directly under tests/, wherever the checkout lies', () => {
  expect(suiteOf('tests/kafka/traps.test.ts')).toBe('kafka')
  expect(suiteOf('tests/backends/engines/vllm/faults.test.ts')).toBe('unit')
  expect(suiteOf('tests/floors.test.ts')).toBe('unit')
  expect(suiteOf('tests/kafka/cluster.ts')).toBeUndefined()
})

test('pytest collects every Python test', () => {
  const tests = filesBelow(root).filter(file => /(^|\/)test_[^/]*\.py$|_test\.py$/.test(file))
  expect(tests.length).toBeGreaterThan(0)
  expect(tests.filter(file => !isPythonTest(file))).toEqual([])
  expect(readFileSync(join(root, 'policy/pytest.ini'), 'utf8')).toMatch(/^testpaths = tests$/m)
})
