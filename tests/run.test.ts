/** The counts behind `npm test`'s closing line: nothing that went wrong may be missing from them. */
import { spawnSync } from 'node:child_process'
import { chmodSync, cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

const root = join(__dirname, '..')
let home: string

beforeEach(() => {
  home = mkdtempSync(join(tmpdir(), 'troupe-run-'))
  for (const folder of ['tests', 'node_modules/.bin', 'node_modules/typescript7/bin', '.venv/bin'])
    mkdirSync(join(home, folder), { recursive: true })
  cpSync(join(root, 'tests/run.js'), join(home, 'tests/run.js'))
  cpSync(join(root, 'tests/runner'), join(home, 'tests/runner'), {
    recursive: true,
    filter: file => !file.endsWith('.test.ts'),
  })
  writeFileSync(join(home, 'tests/some.test.ts'), '')
  runner('node_modules/.bin/biome', 'exit 0')
  typesEndWith(0)
  jestSays({ numPassedTests: 5, numFailedTests: 0, numPendingTests: 1, numTodoTests: 1, testResults: [] })
  pytestSays(
    '<testsuites><testsuite name="pytest" errors="0" failures="0" skipped="1" tests="4" time="1"></testsuite></testsuites>',
  )
})
afterEach(() => rmSync(home, { recursive: true, force: true }))

/** The real runner's place is taken by a script: here the subject is what is made of a runner's report and end. */
function runner(file: string, script: string) {
  writeFileSync(join(home, file), `#!/bin/sh\n${script}\n`)
  chmodSync(join(home, file), 0o755)
}
const typesEndWith = (code: number) =>
  writeFileSync(join(home, 'node_modules/typescript7/bin/tsc'), `process.exitCode = ${code}`)
const last = (option: string) => `for word in "$@"; do case "$word" in ${option}=*) out="\${word#*=}";; esac; done`
const jestSays = (report: object, exit = 0, seconds = 0) =>
  runner(
    'node_modules/.bin/jest',
    `sleep ${seconds}\n${last('--outputFile')}\ncat > "$out" <<'END'\n${JSON.stringify(report)}\nEND\nexit ${exit}`,
  )
const pytestSays = (xml: string, exit = 0) =>
  runner('.venv/bin/python', `${last('--junitxml')}\necho '${xml}' > "$out"\nexit ${exit}`)

function run(...suites: string[]) {
  const env = { ...process.env, TROUPE_VENV: '' }
  const reply = spawnSync(process.execPath, [join(home, 'tests/run.js'), ...suites], {
    env,
    encoding: 'utf8',
    timeout: 25_000,
  })
  return { code: reply.status, closing: reply.stdout.trimEnd().split('\n').at(-1), out: reply.stdout }
}

test('the closing line is the sum of all suites, alone on the last line', () => {
  expect(run()).toMatchObject({ code: 0, closing: '10 passed, 0 failed, 3 skipped' })
  expect(run('pytest').closing).toBe('3 passed, 0 failed, 1 skipped')
})

test('a failed check, a failed test and an error in a fixture are failures', () => {
  typesEndWith(2)
  jestSays({ numPassedTests: 4, numFailedTests: 1, numPendingTests: 0, numTodoTests: 0, testResults: [] }, 1)
  pytestSays('<testsuite errors="1" failures="2" skipped="0" tests="6"/>', 1)
  expect(run()).toMatchObject({ code: 1, closing: '8 passed, 5 failed, 0 skipped' })
})

test('a test file that cannot be loaded is a failure though it has no tests', () => {
  const broken = { status: 'failed', assertionResults: [] }
  jestSays({ numPassedTests: 4, numFailedTests: 0, numPendingTests: 0, numTodoTests: 0, testResults: [broken] }, 1)
  expect(run('unit')).toMatchObject({ code: 1, closing: '4 passed, 1 failed, 0 skipped' })
})

test('a runner that crashes without a report, or after a clean one, is a failure', () => {
  runner('node_modules/.bin/jest', 'kill -9 $$')
  expect(run('unit')).toMatchObject({ code: 1, closing: '0 passed, 1 failed, 0 skipped' })
  pytestSays('<testsuite errors="0" failures="0" skipped="0" tests="4"/>', 3)
  const { code, closing, out } = run('pytest')
  expect({ code, closing }).toEqual({ code: 1, closing: '4 passed, 1 failed, 0 skipped' })
  expect(out).toContain('pytest: the runner ended with 3')
})

test('a runner that is not there, and one that finds no test, are failures', () => {
  rmSync(join(home, '.venv/bin/python'))
  jestSays({ numPassedTests: 0, numFailedTests: 0, numPendingTests: 0, numTodoTests: 0, testResults: [] })
  expect(run()).toMatchObject({ code: 1, closing: '2 passed, 2 failed, 0 skipped' })
})

test('a suite without a test file is a failure, and its runner, which would then run every test, is not started', () => {
  rmSync(join(home, 'tests/some.test.ts'))
  expect(run('unit')).toMatchObject({ code: 1, closing: '0 passed, 1 failed, 0 skipped' })
})

test('two suites of a stage run at once, in the order of the list; each suite counts its own set-up once', () => {
  for (const folder of ['tests/kafka', 'tests/slice', 'tests/vllm', 'cli']) mkdirSync(join(home, folder))
  for (const file of ['tests/kafka/a.test.ts', 'tests/slice/b.test.ts', 'tests/vllm/c.test.ts'])
    writeFileSync(join(home, file), '')
  const tells = "require('node:fs').appendFileSync(__dirname + '/calls', process.argv.slice(2).join(' ') + '\\n')"
  for (const file of ['cli/setup.js', 'cli/bin.js']) writeFileSync(join(home, file), tells)
  const counts = { numPassedTests: 5, numFailedTests: 0, numPendingTests: 1, numTodoTests: 1, testResults: [] }
  jestSays(counts, 0, 2)
  const { code, closing, out } = run('vllm', 'slice', 'kafka')
  expect({ code, closing }).toEqual({ code: 0, closing: '17 passed, 0 failed, 6 skipped' })
  expect(out.match(/^(slice|kafka|vllm) /gm)).toEqual(['slice ', 'vllm ', 'kafka '])
  expect(Number(/^(\d+) s in all$/m.exec(out)?.[1])).toBeLessThan(6) // three of 2 s one after the other
  expect(readFileSync(join(home, 'cli/calls'), 'utf8').trim().split('\n')).toEqual(['--vllm', 'setup smollm2'])
})

test('what a suite installs is fetched while the suites before it run, and it waits for that', () => {
  for (const folder of ['tests/vllm', 'cli']) mkdirSync(join(home, folder))
  writeFileSync(join(home, 'tests/vllm/c.test.ts'), '')
  const calls = join(home, 'calls')
  const tells = (text: string, after: number) =>
    `setTimeout(() => require('node:fs').appendFileSync(${JSON.stringify(calls)}, '${text}\\n'), ${after})`
  writeFileSync(join(home, 'cli/setup.js'), tells('set up', 0))
  writeFileSync(join(home, 'cli/bin.js'), tells('model', 4000))
  jestSays({ numPassedTests: 1, numFailedTests: 0, numPendingTests: 0, numTodoTests: 0, testResults: [] })
  const jest = readFileSync(join(home, 'node_modules/.bin/jest'), 'utf8')
  runner(
    'node_modules/.bin/jest',
    jest.replace('sleep 0', `sleep 2; echo tests >> ${calls}`).replace('#!/bin/sh\n', ''),
  )
  expect(run('unit', 'vllm').closing).toBe('4 passed, 0 failed, 0 skipped')
  expect(readFileSync(calls, 'utf8').trim().split('\n')).toEqual(['set up', 'tests', 'model', 'tests'])
})

test('a suite that is large to fetch runs only if it is named', () => {
  for (const folder of ['tests/sglang', 'cli']) mkdirSync(join(home, folder))
  writeFileSync(join(home, 'tests/sglang/a.test.ts'), '')
  writeFileSync(join(home, 'cli/setup.js'), "console.log('set up', ...process.argv.slice(2))")
  jestSays({ numPassedTests: 2, numFailedTests: 0, numPendingTests: 0, numTodoTests: 0, testResults: [] })
  expect(run().out).not.toMatch(/^sglang /m)
  expect(run('sglang').out).toMatch(/^sglang /m)
})

test('an unknown suite is wrong usage', () => {
  expect(run('nope').code).toBe(2)
})
