/** What a killed process leaves in the directory for temporary files is removed by the next one, and nothing else. */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, join, resolve } from 'node:path'
import { sweepTemporaryDirectories } from '../../sandbox/temporaryDirectory'
import { canMount, onSmallDisk } from '../support/smallDisk'

const scratch = mkdtempSync(join(tmpdir(), 'swept-'))
afterAll(() => rmSync(scratch, { recursive: true, force: true }))

const ours = () => readdirSync(scratch).filter(name => name.startsWith('troupe-'))

/** Opens a sandbox in a process of its own. Resolves with that process and its temporary directories. */
async function opened(): Promise<{ child: ChildProcess; left: readonly string[] }> {
  const program = `
require('./cli/register.js')
require('./sandbox').openSandbox({ zygotes: 1 }).then(() => { console.log('open'); setInterval(() => {}, 1e6) })`
  const child = spawn(process.execPath, ['-e', program], {
    cwd: resolve(__dirname, '../..'),
    env: { ...process.env, TMPDIR: scratch },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  await once(child.stdout!, 'data')
  return { child, left: ours().map(name => join(scratch, name)) }
}

test('a sandbox that was killed with SIGKILL leaves a directory, which the next process removes; a living one’s stays', async () => {
  const { child, left } = await opened()
  expect(left.map(path => basename(path))).toEqual([expect.stringMatching(/^troupe-sandbox-/)])
  mkdirSync(join(scratch, 'troupe-mine')) // A name that says no owner is somebody else's.
  writeFileSync(join(left[0]!, 'file'), 'x')
  expect(sweepTemporaryDirectories(scratch)).toEqual([])
  child.kill('SIGKILL')
  await once(child, 'exit')
  expect(existsSync(left[0]!)).toBe(true)
  // The same pid, start time and namespace on another host: its owner may live.
  const elsewhere = left[0]!.replace(/-[0-9a-f]{10}(-\w{6})$/, '-0123456789$1')
  expect(elsewhere).not.toBe(left[0])
  mkdirSync(elsewhere)
  const next = await opened()
  expect(existsSync(left[0]!)).toBe(false)
  expect(existsSync(join(scratch, 'troupe-mine'))).toBe(true)
  expect(existsSync(elsewhere)).toBe(true)
  next.child.kill('SIGKILL')
  await once(next.child, 'exit')
  expect(sweepTemporaryDirectories(scratch)).toHaveLength(1)
  expect(ours().sort()).toEqual(['troupe-mine', basename(elsewhere)].sort())
}, 30_000)

test('where the directory cannot be listed, nothing is swept and nothing fails', () => {
  expect(sweepTemporaryDirectories(join(scratch, 'nowhere'))).toEqual([])
})

const whereMountable = canMount ? test : test.skip

whereMountable('a disk without room for a temporary directory is named, with the directory and what to do', () => {
  const program = `
require('./cli/register.js')
require('./sandbox').openSandbox({ zygotes: 1 }).catch(error => console.log(JSON.stringify({ ...error, message: error.message })))`
  const node = [process.execPath, '-e', program]
  const [unshare = '', ...words] = onSmallDisk(
    scratch,
    ...([1, 'sh', '-c', 'mount -o remount,nr_inodes=1 "$0" && exec "$@"', scratch, ...node] as const),
  )
  const ran = spawnSync(unshare, words, {
    ...{
      cwd: resolve(__dirname, '../..'),
      env: { ...process.env, TMPDIR: scratch },
      encoding: 'utf8',
      timeout: 30_000,
    },
  })
  expect(JSON.parse(ran.stdout)).toMatchObject({
    ...{ code: 'sandbox.disk_full', retriable: true, message: expect.stringContaining(scratch) },
    hint: expect.stringContaining('TMPDIR'),
  })
})
