#!/usr/bin/env node
/**
 * Every suite, one after the other: lint, unit, sandbox, pytest, kafka, slice, environments, vllm. Usage: node tests/run.js [SUITE …]
 *
 * in   the runners' own reports (jest's JSON, pytest's JUnit XML)     out  a table, and last the line "N passed, N failed, N skipped"
 * Invariant: a runner that crashes, hangs or reports no test at all is a failure, never silence.
 */
const { spawn } = require('node:child_process')
const fs = require('node:fs')
const os = require('node:os')
const path = require('node:path')

const root = path.join(__dirname, '..')
const reports = fs.mkdtempSync(path.join(os.tmpdir(), 'troupe-tests-'))
const bin = name => path.join(root, 'node_modules/.bin', name)
const venv = process.env.TROUPE_VENV || path.join(root, '.venv')

/** One command counts as one test. */
const check = (title, command, args) => ({
  title,
  command,
  args,
  count: code => ({ passed: Number(code === 0), failed: Number(code !== 0), skipped: 0 }),
})

function jest(title, ...args) {
  const report = path.join(reports, `${title}.json`)
  const all = ['--json', `--outputFile=${report}`, ...args]
  return { title, command: bin('jest'), args: all, count: () => countJest(JSON.parse(fs.readFileSync(report, 'utf8'))) }
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

function pytest() {
  const report = path.join(reports, 'pytest.xml')
  const args = ['-m', 'pytest', 'policy', '-q', '--durations=5', `--junitxml=${report}`]
  return {
    title: 'pytest',
    command: path.join(venv, 'bin/python'),
    args,
    count: () => countJunit(fs.readFileSync(report, 'utf8')),
  }
}

function countJunit(xml) {
  const attributes = /<testsuite\b[^>]*>/.exec(xml)?.[0] ?? ''
  const read = name => Number(new RegExp(`\\b${name}="(\\d+)"`).exec(attributes)?.[1] ?? Number.NaN)
  const failed = read('failures') + read('errors')
  return { passed: read('tests') - failed - read('skipped'), failed, skipped: read('skipped') }
}

const suites = {
  lint: {
    limitMinutes: 5,
    commands: [check('biome', bin('biome'), ['check', '.']), check('types', bin('tsc'), ['--noEmit'])],
  },
  unit: {
    limitMinutes: 15,
    commands: [
      jest('unit', '--maxWorkers=2', '--testPathIgnorePatterns', '/tests/(slice|kafka|sandbox|environments|vllm)/'),
    ],
  },
  sandbox: { limitMinutes: 5, commands: [jest('sandbox', '--maxWorkers=2', '--testPathPatterns', '/tests/sandbox/')] },
  pytest: { limitMinutes: 15, commands: [pytest()] },
  // Real brokers: one cluster after the other, or they would take each other's time for a fault.
  kafka: { limitMinutes: 12, commands: [jest('kafka', '--runInBand', '--testPathPatterns', '/tests/kafka/')] },
  // Real engines and trainers: one file after the other, or two would measure and starve each other.
  slice: { limitMinutes: 25, commands: [jest('slice', '--runInBand', '--testPathPatterns', '/tests/slice/')] },
  // The packages of environments are fetched here too (0.9 GB).
  environments: {
    limitMinutes: 10,
    commands: [
      check('set-up of environments', process.execPath, ['cli/setup.js', '--environments']),
      jest('environments', '--runInBand', '--testPathPatterns', '/tests/environments/'),
    ],
  },
  // A real vLLM server. Its 6 GB are fetched here, not by set-up: whoever leaves this suite out need not have them.
  vllm: {
    limitMinutes: 15,
    commands: [
      check('set-up of vLLM', process.execPath, ['cli/setup.js', '--vllm']),
      check('set-up of SmolLM2', process.execPath, ['cli/bin.js', 'setup', 'smollm2']),
      jest('vllm', '--runInBand', '--testPathPatterns', '/tests/vllm/'),
    ],
  },
}

/** The exit code, or the reason why there is none. The deadline ends the runner's whole process group. */
function runCommand({ command, args }, deadlineMs) {
  return new Promise(resolve => {
    const child = spawn(command, args, {
      cwd: root,
      stdio: ['ignore', 2, 2], // stdout is kept for the closing table
      detached: true,
      env: { ...process.env, OMP_NUM_THREADS: process.env.OMP_NUM_THREADS ?? '2' },
    })
    running = child
    let late = false
    const timer = setTimeout(() => {
      late = true
      endGroup(child, 'SIGKILL')
    }, deadlineMs)
    const settle = outcome => {
      clearTimeout(timer)
      running = undefined
      resolve(outcome)
    }
    child.once('error', error => settle(error.message))
    child.once('close', (code, signal) => settle(late ? 'deadline passed' : (code ?? `ended by ${signal}`)))
  })
}

let running
function endGroup(child, signal) {
  try {
    process.kill(-child.pid, signal)
  } catch {
    // already gone
  }
}
for (const signal of ['SIGINT', 'SIGTERM']) {
  process.once(signal, () => {
    if (running) endGroup(running, 'SIGTERM')
    process.exit(signal === 'SIGINT' ? 130 : 143)
  })
}
process.once('exit', () => fs.rmSync(reports, { recursive: true, force: true }))

async function runSuite(name, suite) {
  const began = performance.now()
  const total = { name, passed: 0, failed: 0, skipped: 0, notes: [] }
  for (const command of suite.commands) {
    process.stderr.write(`\n== ${name}: ${command.title}\n`)
    const outcome = await runCommand(command, suite.limitMinutes * 60_000 - (performance.now() - began))
    let counts
    try {
      counts = command.count(outcome)
      if (Object.values(counts).some(Number.isNaN)) throw new Error('a count is missing')
    } catch (error) {
      counts = { passed: 0, failed: 1, skipped: 0 }
      total.notes.push(`${command.title}: no report (${typeof outcome === 'string' ? outcome : error.message})`)
    }
    if (outcome !== 0 && counts.failed === 0) {
      counts.failed = 1
      total.notes.push(`${command.title}: the runner ended with ${outcome}`)
    }
    if (outcome === 0 && counts.passed + counts.skipped === 0) {
      counts.failed = 1
      total.notes.push(`${command.title}: no test was found`)
    }
    for (const key of ['passed', 'failed', 'skipped']) total[key] += counts[key]
  }
  return { ...total, seconds: (performance.now() - began) / 1000 }
}

async function main(names) {
  const own = new Set(['sandbox', 'kafka', 'slice', 'environments', 'vllm']) // suites with a folder of their own
  const present = Object.keys(suites).filter(name => !own.has(name) || fs.existsSync(path.join(__dirname, name)))
  const unknown = names.find(name => !present.includes(name))
  if (unknown !== undefined) {
    console.error(`no suite '${unknown}': ${present.join(', ')}`)
    return 2
  }
  const results = []
  for (const name of names.length > 0 ? names : present) results.push(await runSuite(name, suites[name]))
  const sum = key => results.reduce((total, result) => total + result[key], 0)
  const row = cells => cells.map((cell, i) => (i === 0 ? String(cell).padEnd(13) : String(cell).padStart(9))).join('')
  console.log(`\n${row(['suite', 'seconds', 'share', 'passed', 'failed', 'skipped'])}`)
  for (const { name, seconds, passed, failed, skipped } of results) {
    const share = `${Math.round((100 * seconds) / sum('seconds'))} %`
    console.log(row([name, seconds.toFixed(1), share, passed, failed, skipped]))
  }
  for (const note of results.flatMap(result => result.notes)) console.log(note)
  console.log(`${sum('passed')} passed, ${sum('failed')} failed, ${sum('skipped')} skipped`)
  return sum('failed') === 0 ? 0 : 1
}

module.exports = { countJest, countJunit }

if (require.main === module) {
  main(process.argv.slice(2)).then(code => {
    process.exitCode = code
  })
}
