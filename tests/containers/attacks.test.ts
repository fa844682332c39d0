/**
 * The sandbox's attacks again, in a sandbox that is opened inside a container as docker-compose.yml makes it: the same tests,
 * with the container's user and without capabilities. A runtime that the machine lacks is skipped with the reason.
 */
import { type OuterContainer, outerContainer, runtimeMissing, runtimes } from '../support/outerContainer'

const { compileShim } = require('../../sandbox/zygote/compile.js') as { compileShim(): Promise<string | null> }

jest.setTimeout(600_000)

const files = ['attacks', 'sessionAttacks'].map(name => `tests/sandbox/${name}.test.ts`)
const probe = `
require('/src/cli/register.js')
const { readFileSync } = require('node:fs')
const { openSandbox } = require('/src/sandbox/index.ts')
openSandbox({}).then(async sandbox => {
  const { stdout } = await sandbox.run({ id: 'x', code: 'print(6 * 7)' })
  const held = ['CapEff', 'CapBnd', 'Seccomp'].map(name => Number('0x' + new RegExp(name + ':\\\\s*(\\\\S+)').exec(readFileSync('/proc/self/status', 'utf8'))[1]))
  const reads = [readFileSync('/run/secrets/token', 'utf8'), readFileSync('/runs/checkpoint', 'utf8')]
  console.log(JSON.stringify({ level: sandbox.level, says: String(Buffer.from(stdout)), user: process.getuid(), held, reads }))
  await sandbox.close()
})`

describe.each(runtimes)('in a container of %s', runtime => {
  const missing = runtimeMissing(runtime)
  if (missing !== undefined) {
    console.warn(`attacks in a container of ${runtime} are not tested: ${missing}`)
    test.skip(`attacks: ${missing}`, () => {})
    return
  }
  let container: OuterContainer
  beforeAll(async () => {
    // The checkout is read-only inside and /tmp noexec there, so the library for sessions is built outside.
    await compileShim()
    container = outerContainer(runtime)
  })
  afterAll(() => container?.close())

  test('the sandbox is at level full, for a user without capabilities that may read secrets and volumes', async () => {
    const { stdout, stderr } = await container.run(['/node', '-e', probe])
    if (stdout === '') throw new Error(stderr)
    expect(JSON.parse(stdout)).toEqual({
      ...{ level: 'full', says: '42\n', user: 10_001, held: [0, 0, 2] },
      reads: ['a secret of the container', 'weights'],
    })
  })

  test('every attack is contained at level full, and no session outlives its cells', async () => {
    const { code, stdout, stderr } = await container.run([
      ...['/node', 'node_modules/jest/bin/jest.js', '--runInBand', '--cacheDirectory', '/tmp/jest', '--json'],
      ...['--testNamePattern', '^(?!at level degraded)', ...files],
    ])
    if (stdout === '') throw new Error(`exit code ${code}\n${stderr.slice(-4000)}`)
    const { numPassedTests, testResults } = JSON.parse(stdout) as {
      numPassedTests: number
      testResults: { message: string; assertionResults: { status: string; fullName: string }[] }[]
    }
    const failed = testResults.flatMap(({ message, assertionResults }) =>
      assertionResults.some(({ status }) => status === 'failed') || assertionResults.length === 0 ? [message] : [],
    )
    if (failed.length > 0) throw new Error(failed.join('\n').slice(0, 6000))
    expect(testResults).toHaveLength(files.length)
    expect(numPassedTests).toBeGreaterThan(300)
    console.info(`${numPassedTests} tests of attacks passed in a container of ${runtime}, at level full`)
  })
})
