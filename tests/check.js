#!/usr/bin/env node
/**
 * `npm run check`: lint, types, and the unit tests that the change can touch, within three minutes.
 *
 * in   the files that differ from the main branch, committed or not     out  what was left out, and last "N passed, N failed, N skipped"
 * The nearest tests run first, in batches, until the time is used up. A change whose tests cannot be told
 * (package.json, jest.config.cjs, a file that nothing names) counts as a change to every unit test.
 */
const { execFileSync } = require('node:child_process')
const os = require('node:os')
const { parseArgs } = require('node:util')
const { affectedTests, readSources } = require('./runner/affected')
const { chooseBatch, inOrder, paceOf, secondsOf } = require('./runner/batches')
const commands = require('./runner/commands')
const { readDurations } = require('./runner/durations')
const { isPythonTest, suiteOf } = require('./runner/files')

const usage = `usage: npm run check -- [--since REF] [--minutes 3] [--all]
  --since REF   compare with this commit; default: where the branch left main, and on main its last commit
  --minutes M   start no test that would end later than this
  --all         run every unit test that the change can touch, however long that takes`

/** Read the whole tree, so that any change can touch them. */
const wholeTree = /^tests\/(floors|floorsPython|layoutSizes|suites)\.test\.ts$/
const quickSuites = new Set(['unit', 'sandbox'])
const batchSeconds = 30
/** Seconds of the first batch, which shows how much slower than the estimates this machine is. */
const firstBatchSeconds = 10

const git = (...args) => {
  try {
    return execFileSync('git', args, {
      cwd: commands.root,
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'ignore'],
    }).trim()
  } catch {
    return undefined
  }
}
const lines = text => (text ?? '').split('\n').filter(Boolean)

/** Files that differ from `base`, those of the working tree included; a renamed file counts under both names. */
function changedSince(base) {
  const differing = lines(git('diff', '--name-only', '--no-renames', base))
  return [...new Set([...differing, ...lines(git('ls-files', '--others', '--exclude-standard'))])]
}

function findChange(since) {
  if (git('rev-parse', '--git-dir') === undefined) return { says: 'this is no git checkout', files: undefined }
  if (since !== undefined) {
    const commit = git('rev-parse', '--verify', `${since}^{commit}`)
    if (commit === undefined) throw new Error(`--since ${since}: git knows no such commit; give a branch, tag or hash`)
    return { says: `since ${since}`, files: changedSince(commit) }
  }
  for (const branch of ['main', 'origin/main']) {
    const base = git('merge-base', 'HEAD', branch)
    const files = base === undefined ? [] : changedSince(base)
    if (files.length > 0) return { says: `since ${branch}`, files }
  }
  const parent = git('rev-parse', '--verify', 'HEAD~1')
  if (parent === undefined) return { says: 'there is no earlier commit', files: undefined }
  return { says: 'in the last commit', files: changedSince(parent) }
}

/** Test files in the order in which they shall run, and why all of them may have to. */
function plan(files) {
  const sources = readSources(commands.root)
  const everyTest = [...sources.keys()].filter(file => suiteOf(file) !== undefined || isPythonTest(file))
  if (files === undefined) return { tests: new Map(everyTest.map(file => [file, 1])), unknown: ['everything'] }
  const { tests, unknown } = affectedTests(sources, files)
  const far = Math.max(0, ...tests.values()) + 1
  for (const file of everyTest) {
    if (wholeTree.test(file) && files.length > 0 && !tests.has(file)) tests.set(file, 1)
    else if (unknown.length > 0 && !tests.has(file)) tests.set(file, far)
  }
  return { tests, unknown }
}

async function main(argv) {
  const { values } = parseArgs({
    args: argv,
    options: {
      since: { type: 'string' },
      minutes: { type: 'string', default: '3' },
      all: { type: 'boolean', default: false },
      help: { type: 'boolean', short: 'h', default: false },
    },
  })
  if (values.help) {
    console.log(usage)
    return 0
  }
  const minutes = Number(values.minutes)
  if (!(minutes > 0)) throw new Error(`--minutes ${values.minutes}: expected a number above 0, such as 3`)
  commands.cleanUpAtExit()
  const began = performance.now()
  const change = findChange(values.since)
  const { tests, unknown } = plan(change.files)
  const results = await Promise.all(
    [commands.biome(), commands.types()].map(each => commands.runAndCount(each, 5 * 60_000)),
  )

  const known = readDurations(commands.root)
  const quick = [...tests.keys()].filter(file => isPythonTest(file) || quickSuites.has(suiteOf(file)))
  // A tenth of the time is kept for a batch that takes longer than its files took before.
  const secondsLeft = () => (values.all ? Infinity : minutes * 54 - (performance.now() - began) / 1000)
  let waiting = inOrder(quick, tests, known)
  const ran = []
  let pace = 1
  for (;;) {
    const left = secondsLeft() / pace
    const batch = chooseBatch(waiting, known, Math.min(ran.length === 0 ? firstBatchSeconds : batchSeconds, left), left)
    if (batch.length === 0) break
    waiting = waiting.filter(file => !batch.includes(file))
    ran.push(...batch)
    const result = await commands.runAndCount(commandFor(batch, ran.length), 10 * 60_000)
    results.push(result)
    pace = paceOf(batch, known, result.seconds)
  }

  const all = commands.total(results)
  const elapsed = (performance.now() - began) / 1000
  console.log(
    `\nchanged ${change.says}: ${change.files?.length ?? 'unknown'} files; ${ran.length} test files ran in ${elapsed.toFixed(0)} s`,
  )
  if (unknown.length > 0)
    console.log(`any test may be touched by ${unknown.slice(0, 5).join(', ')}${unknown.length > 5 ? ', …' : ''}`)
  for (const line of leftOut(waiting, tests, known)) console.log(line)
  for (const note of results.flatMap(result => result.notes)) console.log(note)
  console.log(commands.closingLine(all))
  return all.failed === 0 ? 0 : 1
}

function commandFor(files, serial) {
  if (isPythonTest(files[0])) return commands.pytest(`pytest-${serial}`, files)
  const workers = Math.min(8, Math.max(2, os.availableParallelism()))
  return commands.jest(`jest-${serial}`, files, `--maxWorkers=${workers}`)
}

function* leftOut(waiting, tests, known) {
  if (waiting.length > 0) {
    const seconds = waiting.reduce((sum, file) => sum + secondsOf(file, known), 0)
    const named = waiting.slice(0, 4).join(' ')
    yield `left out for want of time: ${waiting.length} test files, about ${Math.ceil(seconds / 2)} s (${named}${waiting.length > 4 ? ' …' : ''}); npm run check -- --all`
  }
  const others = [...tests.keys()].filter(file => !isPythonTest(file) && !quickSuites.has(suiteOf(file)))
  const suites = [...new Set(others.map(suiteOf))]
  if (suites.length > 0) yield `left out by suite: ${others.length} test files; node tests/run.js ${suites.join(' ')}`
}

main(process.argv.slice(2)).then(
  code => {
    process.exitCode = code
  },
  error => {
    console.error(`check: ${error.message}\n${usage}`)
    process.exitCode = 2
  },
)
