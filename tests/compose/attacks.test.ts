/**
 * The sandbox's attacks inside a container of the image: the same tests, against the package that is installed in it, as the
 * image's user, without capabilities, under the profile that the compose file names. Without an engine they are skipped.
 */
import { composeFile, composeRoot } from '../support/composeFile'
import { buildsImage, docker, dockerMissing, dockerOutput, endEngine } from '../support/dockerCompose'

jest.setTimeout(3_600_000)

const missing = dockerMissing()
const { tools, image } = composeFile().services
const files = ['attacks', 'sessionAttacks', 'covertChannels'].map(name => `tests/sandbox/${name}.test.ts`)

if (missing !== undefined) {
  console.warn(`attacks in a container are not tested: ${missing}`)
  test.skip(`attacks in a container: ${missing}`, () => {})
} else {
  beforeAll(async () => void (buildsImage && (await dockerOutput(['compose', 'build']))))
  afterAll(endEngine)

  test('every attack is contained at full and at degraded inside a container, as on the machine', async () => {
    // What the tests import as the sandbox is the package of the image.
    const mapper = JSON.stringify({ '^\\.\\./\\.\\./sandbox$': '/opt/troupe/dist/sandbox/index.js' })
    const { code, stdout, stderr } = await docker([
      ...['run', '--rm', '--init', '--network', 'none', '--cap-drop', 'ALL', '--tmpfs', '/tmp'],
      ...tools!.security_opt!.flatMap(option => ['--security-opt', option]),
      ...['-v', `${composeRoot}:/src:ro`, '-w', '/src', '--entrypoint', 'node', image!.image],
      ...['node_modules/jest/bin/jest.js', '--runInBand', '--cacheDirectory', '/tmp/jest', '--json'],
      ...['--reporters', 'default', '--moduleNameMapper', mapper, ...files],
    ])
    if (code !== 0) throw new Error(stderr.slice(-8000) || stdout.slice(-2000))
    const { numPassedTests, numFailedTests, numPendingTests, testResults } = JSON.parse(stdout)
    console.info(`inside a container: ${numPassedTests} tests of attacks passed`)
    expect({ numFailedTests, numPendingTests, files: testResults.length }).toEqual({
      ...{ numFailedTests: 0, numPendingTests: 0, files: files.length },
    })
    expect(numPassedTests).toBeGreaterThan(300)
  })
}
