/**
 * Driver `local` for a user who is not root: namespaces of a user namespace, without cgroups. Skipped, with the reason,
 * where this suite cannot become another user, or that user may not make a user namespace or read this checkout.
 */
import { spawnSync } from 'node:child_process'
import { chmodSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

jest.setTimeout(120_000)

const user = { uid: 1234, gid: 1234 }
const register = join(__dirname, '../../cli/register.js')
const program = `
require(${JSON.stringify(register)})
const { localDriver } = require(${JSON.stringify(join(__dirname, '../../environments'))})
const { systemEffects } = require(${JSON.stringify(join(__dirname, '../../runtime/effects'))})
const driver = localDriver({ run: 'user', fx: systemEffects, directory: process.argv[1] })
const run = async (one, command) => {
  const { status, stdout, stderr } = await one.exec({ command, stdin: 'in', timeoutMs: 20_000 })
  return status + ' ' + stdout + stderr
}
driver.start({ network: 'no-network', limits: { memoryMb: 64, processes: 16 } }).then(async one => {
  await run(one, 'mkdir -p d/e && echo old > d/e/f && rm -rf /srv && mkdir /srv')
  const two = await driver.fork(one)
  const both = await Promise.all([run(one, 'sleep 0.2; cat; id -u'), run(two, 'cat d/e/f; ls -A /srv; grep ^Seccomp: /proc/self/status')])
  await run(two, 'rm -rf d && mkdir d')
  const { digest } = await two.snapshot()
  const three = await driver.start({ network: 'no-network', limits: { memoryMb: 64, processes: 16 }, snapshot: digest })
  both.push(await run(three, 'ls -A d'))
  await driver.close()
  console.log(JSON.stringify({ both, left: require('node:fs').readdirSync(process.argv[1] + '/live') }))
})`

const missing = (() => {
  if (process.platform !== 'linux' || process.geteuid?.() !== 0) return 'this suite needs Linux and root'
  if (spawnSync('unshare', ['-U', 'true'], user).status !== 0) return 'a user may not make a user namespace here'
  return spawnSync('cat', [register], user).status === 0 ? undefined : 'the checkout is not readable for other users'
})()
const suite = missing === undefined ? test : test.skip
if (missing !== undefined) console.warn(`the driver local without root is not tested: ${missing}`)

suite('without root, commands, snapshots and forks work, and nothing is left', () => {
  const home = mkdtempSync(join(tmpdir(), 'troupe-user-'))
  chmodSync(home, 0o777)
  const env = { PATH: '/usr/bin:/bin', HOME: home, TROUPE_HOME: home, TROUPE_SANDBOX_PYTHON: '/usr/bin/python3' }
  const { stdout, stderr } = spawnSync(process.execPath, ['-e', program, join(home, 'store')], {
    ...{ ...user, env, encoding: 'utf8', cwd: '/', timeout: 100_000 },
  })
  rmSync(home, { recursive: true, force: true })
  if (stdout === '') throw new Error(stderr)
  expect(JSON.parse(stdout)).toEqual({ both: ['ok in0\n', 'ok old\nSeccomp:\t2\n', 'ok '], left: [] })
})
