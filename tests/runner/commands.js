/**
 * Runs a test runner as a child process and counts what it reports.
 *
 * in   biome and tsc (exit code), jest (JSON report), pytest (JUnit XML)     out  {passed, failed, skipped, notes, seconds}
 * Invariant: a runner that crashes, hangs or reports no test at all is a failure, never silence.
 */
const { spawn } = require('node:child_process')
const fs = require('node:fs')
const os = require('node:os')
const path = require('node:path')
const { keepDurations } = require('./durations')

const root = path.join(__dirname, '../..')
/** Folder of this run's reports and sockets, removed at its end. */
const directory = fs.mkdtempSync(path.join(os.tmpdir(), 'troupe-tests-'))
const bin = name => path.join(root, 'node_modules/.bin', name)
const venv = process.env.TROUPE_VENV || path.join(root, '.venv')

/** A command without a report counts as one test: passed when it exits with 0. */
const check = (title, command, args) => ({
  title,
  command,
  args,
  count: code => ({ passed: Number(code === 0), failed: Number(code !== 0), skipped: 0 }),
})

const biome = () => check('biome', bin('biome'), ['check', '.'])

/**
 * TypeScript 7 checks in a quarter of the time of TypeScript 6, whose API ts-node, ts-jest and typedoc need. It keeps what
 * it knows about each file in .cache/types.json (tsconfig.json): the next run checks what changed. One checker, since
 * several repeat each other's work. The dashboard's page runs in a browser, so it is checked by itself, with the types of
 * one.
 */
const types = () => {
  const script = '"$0" "$1" --noEmit --checkers 1 && "$0" "$1" --noEmit -p dashboard/page'
  return check('types', 'sh', ['-c', script, process.execPath, path.join(root, 'node_modules/typescript7/bin/tsc')])
}

/** Runs exactly `files`. Without any file jest would run every test, so none is a failure here. */
function jest(title, files, ...options) {
  const report = path.join(directory, `${title}.json`)
  const readReport = () => JSON.parse(fs.readFileSync(report, 'utf8'))
  return {
    title,
    command: files.length > 0 ? bin('jest') : 'false',
    args: ['--json', `--outputFile=${report}`, ...options, '--runTestsByPath', ...files],
    count: () => {
      const found = readReport()
      keepDurations(root, jestDurations(found))
      return countJest(found)
    },
  }
}

/** A file that could not be loaded has no tests in the report: it counts as one that failed. */
function countJest(report) {
  const broken = report.testResults.filter(
    file => file.status === 'failed' && file.assertionResults.length === 0,
  ).length
  return {
    passed: report.numPassedTests,
    failed: report.numFailedTests + broken,
    skipped: report.numPendingTests + report.numTodoTests,
  }
}

/** Seconds by test file. */
function jestDurations(report) {
  const files = report.testResults.filter(file => file.endTime > file.startTime)
  return Object.fromEntries(files.map(file => [path.relative(root, file.name), (file.endTime - file.startTime) / 1000]))
}

function pytest(title, files) {
  const report = path.join(directory, `${title}.xml`)
  return {
    title,
    command: path.join(venv, 'bin/python'),
    args: ['-m', 'pytest', ...files, '-q', '--durations=5', `--junitxml=${report}`],
    count: () => countJunit(fs.readFileSync(report, 'utf8')),
  }
}

function countJunit(xml) {
  const attributes = /<testsuite\b[^>]*>/.exec(xml)?.[0] ?? ''
  const read = name => Number(new RegExp(`\\b${name}="(\\d+)"`).exec(attributes)?.[1] ?? Number.NaN)
  const failed = read('failures') + read('errors')
  return { passed: read('tests') - failed - read('skipped'), failed, skipped: read('skipped') }
}

/** Several processes share two cores here: a thread that spins takes the time of the one that it waits for. */
const threads = { OMP_NUM_THREADS: '2', GOMP_SPINCOUNT: '0' }

const running = new Set()

function endGroup(child, signal) {
  try {
    process.kill(-child.pid, signal)
  } catch {
    // already gone
  }
}

/** The exit code, or the reason why there is none. The deadline ends the runner's whole process group. */
function runCommand({ command, args }, deadlineMs) {
  return new Promise(resolve => {
    const child = spawn(command, args, {
      cwd: root,
      stdio: ['ignore', 2, 2], // stdout is kept for the closing table
      detached: true,
      env: { ...threads, ...process.env },
    })
    running.add(child)
    let late = false
    const timer = setTimeout(() => {
      late = true
      endGroup(child, 'SIGKILL')
    }, deadlineMs)
    const settle = outcome => {
      clearTimeout(timer)
      running.delete(child)
      resolve(outcome)
    }
    child.once('error', error => settle(error.message))
    child.once('close', (code, signal) => settle(late ? 'deadline passed' : (code ?? `ended by ${signal}`)))
  })
}

/** Runs one command and counts its tests; `notes` say why a runner without a usable report counts as failed. */
async function runAndCount(command, deadlineMs) {
  const began = performance.now()
  const outcome = await runCommand(command, deadlineMs)
  const notes = []
  let counts
  try {
    counts = command.count(outcome)
    if (Object.values(counts).some(Number.isNaN)) throw new Error('a count is missing')
  } catch (error) {
    counts = { passed: 0, failed: 1, skipped: 0 }
    notes.push(`${command.title}: no report (${typeof outcome === 'string' ? outcome : error.message})`)
  }
  if (outcome !== 0 && counts.failed === 0) {
    counts = { ...counts, failed: 1 }
    notes.push(`${command.title}: the runner ended with ${outcome}`)
  }
  if (outcome === 0 && counts.passed + counts.skipped === 0) {
    counts = { ...counts, failed: 1 }
    notes.push(`${command.title}: no test was found`)
  }
  return { ...counts, notes, seconds: (performance.now() - began) / 1000 }
}

/** Ends every runner when this process is ended, and removes its folder. */
function cleanUpAtExit() {
  for (const signal of ['SIGINT', 'SIGTERM']) {
    process.once(signal, () => {
      for (const child of running) endGroup(child, 'SIGTERM')
      process.exit(signal === 'SIGINT' ? 130 : 143)
    })
  }
  process.once('exit', () => fs.rmSync(directory, { recursive: true, force: true }))
}

/** Adds counts of several commands up. */
function total(results) {
  const sum = key => results.reduce((all, result) => all + result[key], 0)
  return { passed: sum('passed'), failed: sum('failed'), skipped: sum('skipped'), seconds: sum('seconds') }
}

const closingLine = ({ passed, failed, skipped }) => `${passed} passed, ${failed} failed, ${skipped} skipped`

module.exports = {
  ...{
    biome,
    check,
    cleanUpAtExit,
    closingLine,
    directory,
    jest,
    pytest,
    root,
    runAndCount,
    threads,
    total,
    types,
    venv,
  },
}
