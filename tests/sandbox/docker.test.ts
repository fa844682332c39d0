/**
 * Which level a container reaches: under Docker's default rules for system calls, and under the profile that we ship.
 * The rules are put on a process of another user; the machine's own kernel answers.
 */
import { execFileSync, spawnSync } from 'node:child_process'
import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'

const root = resolve(__dirname, '../..')
const NOBODY = 65_534
const directory = mkdtempSync(join(tmpdir(), 'troupe-docker-'))
const launcher = join(directory, 'under')

/** What a process under the rules says of its levels. The interpreter must be one that another user can reach. */
function levelsUnder(profile: 'default' | 'shipped', options: Record<string, unknown> = {}) {
  const python = ['/usr/bin/python3', '/usr/local/bin/python3'].find(existsSync)
  const script = `
require('${root}/cli/register.js')
const { probeLevels, openSandbox } = require('${root}/sandbox/index.ts')
;(async () => {
  const options = ${JSON.stringify({ ...options, ...(python ? { python } : {}) })}
  const levels = (await probeLevels(options)).filter(({ reached }) => reached).map(({ level }) => level)
  const sandbox = await openSandbox(options)
  const { stdout, stderr } = await sandbox.run({ id: 'x', code: 'import os\\nprint(6 * 7, os.getuid())' })
  const forks = await sandbox.run({ id: 'x', code: 'import os\\nos.fork()' })
  const renices = await sandbox.run({ id: 'x', code: 'import os\\nos.setpriority(os.PRIO_PROCESS, os.getppid() or 2, 19)' })
  const required = await openSandbox({ ...options, requireLevel: 'full' }).then(s => s.close().then(() => 'full'), e => e.code)
  console.log(JSON.stringify({ levels, level: sandbox.level, says: String(Buffer.from(stdout)) + Buffer.from(stderr), forks: forks.status, renices: renices.status, required }))
  await sandbox.close()
})()`
  const { stdout, stderr } = spawnSync(launcher, [String(NOBODY), profile, process.execPath, '-e', script], {
    cwd: '/',
    encoding: 'utf8',
    timeout: 60_000,
    env: { PATH: process.env.PATH ?? '', TMPDIR: directory, HOME: directory, TROUPE_HOME: directory },
  })
  const line = stdout.trim().split('\n').at(-1) ?? ''
  try {
    return JSON.parse(line)
  } catch {
    throw new Error(`it said nothing: ${stdout}\n${stderr}`)
  }
}

beforeAll(() => {
  chmodSync(directory, 0o777)
  const { syscalls } = JSON.parse(readFileSync(join(root, 'sandbox/seccomp.json'), 'utf8')) as {
    syscalls: { names: string[] }[]
  }
  const names = syscalls.flatMap(({ names }) => names)
  const lines = names.map(name => `#ifdef SYS_${name}\nNAME(${name})\n#endif`)
  writeFileSync(join(directory, 'profile.h'), `${lines.join('\n')}\n`)
  execFileSync('cc', ['-I', directory, '-o', launcher, join(__dirname, 'underProfile.c')])
})
afterAll(() => rmSync(directory, { recursive: true, force: true }))

test("under Docker's default rules, as another user than root, the level is degraded, and full is refused", () => {
  expect(levelsUnder('default')).toEqual({
    levels: ['degraded', 'none'],
    level: 'degraded',
    says: expect.stringMatching(/^42 /),
    forks: 'error',
    renices: 'error',
    required: 'sandbox.level_unmet',
  })
}, 90_000)

test('under the profile that comes with the package the level is full, without any privilege', () => {
  expect(levelsUnder('shipped')).toEqual({
    levels: ['full', 'degraded', 'none'],
    level: 'full',
    says: '42 1000\n',
    forks: 'error',
    renices: 'error',
    required: 'full',
  })
}, 90_000)
