/**
 * Files of a rollout over its calls: after a fork at any call they are those that the rollout had there, from the store of
 * snapshots or, where the store has lost them, by running the calls again.
 */
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import * as fc from 'fast-check'
import { boundSnapshots, directoryDigest, openStore, RolloutEnvironments } from '../../../environments'
import type { EnvironmentAt, FilesChanged, PastCall, TaskEnvironment } from '../../../messages/facts'
import { suite } from '../../../recipes/terminal/suite'
import { writeTask } from '../../../recipes/terminal/suite/task'
import { systemEffects } from '../../../runtime/effects'
import { until } from '../../support/until'

jest.setTimeout(120_000)
const isRoot = process.platform === 'linux' && process.geteuid?.() === 0
const inEnvironment = isRoot ? describe : describe.skip

const root = mkdtempSync(join(tmpdir(), 'troupe-snapshots-'))
const store = openStore(join(root, 'store'))
const environments = new RolloutEnvironments({
  ...{ run: 'r', epoch: 0, fx: systemEffects, directory: store.root, live: 2, idleMs: 60_000, snapshotMb: 1024 },
})
const directory = writeTask(root, suite.find(({ name }) => name === 'replace-foo')!)
const task: TaskEnvironment = { directory, digest: directoryDigest(directory), driver: 'local' }
const timeoutMs = 20_000
const at = (calls: readonly PastCall[]): EnvironmentAt => ({ task, calls, timeoutMs })
afterAll(async () => {
  await environments.close()
  expect(readdirSync(store.live)).toEqual([])
  rmSync(root, { recursive: true, force: true })
})

async function bash(rollout: string, calls: readonly PastCall[], command: string) {
  const call = { tool: 'bash', arguments: { command } }
  const outcome = await environments.call(rollout, at(calls), { ...call, timeoutMs })
  return { outcome, past: { ...call, snapshot: outcome.files?.snapshot ?? null } }
}

/** Digest of the files that an environment after these calls really has. */
async function digestAfter(calls: readonly PastCall[]): Promise<{ readonly digest: string; readonly from?: string }> {
  const { environment, from } = await environments.start(at(calls))
  try {
    return { digest: (await environment.snapshot()).digest, ...(from === undefined ? {} : { from }) }
  } finally {
    await environment.stop()
  }
}

const commands = fc.oneof(
  fc.constantFrom('ls', 'cd src', 'cd /', 'x=1', 'rm -rf src/deep', 'mv src moved', 'mkdir -p src; chmod 700 src'),
  fc.constantFrom(
    'ln -s a.txt src/link',
    'echo more >> outside.txt',
    'rm -f src/a.txt',
    'false',
    'cat /etc/hostname > h',
  ),
  fc.integer({ min: 0, max: 4 }).map(n => `echo ${n} > f${n}; touch g${n}`),
)

inEnvironment('an environment whose last call was aborted', () => {
  test('is ended when it has no further call, as any other', async () => {
    const own = openStore(join(root, 'idle'))
    const short = new RolloutEnvironments({
      ...{ run: 'r', epoch: 0, fx: systemEffects, directory: own.root, live: 2, idleMs: 500, snapshotMb: 1024 },
    })
    try {
      const bash = (command: string) => ({ tool: 'bash', arguments: { command }, timeoutMs: 60_000 })
      const { files } = await short.call('aborted', at([]), bash('echo 1 > one'))
      const past = { tool: 'bash', arguments: { command: 'echo 1 > one' }, snapshot: files!.snapshot }
      const aborting = new AbortController()
      const call = short.call('aborted', at([past]), bash('sleep 60'), aborting.signal)
      setTimeout(() => aborting.abort(new Error('enough')), 300)
      await expect(call).rejects.toThrow('enough')
      await until(() => readdirSync(own.live).length === 0, 20_000)
    } finally {
      await short.close()
    }
  })
})

inEnvironment('files of a rollout', () => {
  let count = 0
  test('after a fork at call k they are those of the original at k, by digest, with and without the store', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(commands, { minLength: 2, maxLength: 5 }), fc.nat(4), async (list, at) => {
        const rollout = `original ${count++}`
        const calls: PastCall[] = []
        for (const command of list) calls.push((await bash(rollout, calls, command)).past)
        await environments.end(rollout)
        const { base } = await environments.prepare(task)
        const k = at % (list.length + 1)
        const expected = calls.slice(0, k).findLast(({ snapshot }) => snapshot !== null)?.snapshot ?? base
        expect((await digestAfter(calls.slice(0, k))).digest).toBe(expected)
        boundSnapshots(store, 0, Number.POSITIVE_INFINITY)
        const again = await digestAfter(calls.slice(0, k))
        expect(again).toEqual({ digest: expected, ...(expected === base ? {} : { from: 'calls' }) })
      }),
      { numRuns: 5 },
    )
  })

  test('a call says which files it changed, and one that only looks says nothing', async () => {
    const calls: PastCall[] = []
    const run = async (command: string) => {
      const { outcome, past } = await bash('changes', calls, command)
      calls.push(past)
      return outcome.files
    }
    expect(await run('cat src/a.txt; ls -R /app')).toBeUndefined()
    const first = (await run('echo new > src/a.txt; echo more > b; rm outside.txt')) as FilesChanged
    expect(first.changed).toEqual([
      { path: '/app/b', change: 'added', bytes: 5 },
      { path: '/app/outside.txt', change: 'removed', bytes: 0 },
      { path: '/app/src/a.txt', change: 'changed', bytes: 4 },
    ])
    expect(first.changes).toBe(3)
    expect((await run('cd src'))?.changed).toEqual([]) // the shell's state alone
    expect((await run('pwd; touch x'))?.changed).toEqual([{ path: '/app/src/x', change: 'added', bytes: 0 }])
  })

  test('a call that is made again finds the files as they were before its first attempt', async () => {
    const { past } = await bash('again', [], 'echo 1 >> counted')
    const repeated = await bash('again', [], 'echo 1 >> counted')
    expect(repeated.past.snapshot).toBe(past.snapshot)
    const { outcome } = await bash('again', [past], 'cat counted')
    expect(outcome.stdout).toBe('1\n')
  })

  test('a call whose environment was killed is no error of the run; the next call finds the files that were there', async () => {
    const { past } = await bash('killed', [], 'echo kept > kept')
    for (const id of readdirSync(join(store.live, 'r/0')))
      process.kill(Number(readFileSync(join(store.live, 'r/0', id, 'keeper.pid'), 'utf8').split(' ')[0]), 'SIGKILL')
    const { outcome } = await bash('killed', [past], 'echo lost > lost')
    expect(outcome).toMatchObject({ status: 'killed', reason: expect.stringContaining('the environment ended') })
    expect((await bash('killed', [past], 'cat kept; ls lost')).outcome.stdout).toBe('kept\n')
  })

  test('another process goes on with the files and the shell, and says that it made the environment again', async () => {
    const { past } = await bash('moved', [], 'cd /app/src; word=kept; echo 1 > made')
    const options = { run: 'r', epoch: 1, fx: systemEffects, directory: store.root, live: 1, idleMs: 60_000 }
    const resumed = new RolloutEnvironments({ ...options, snapshotMb: 1024 })
    const call = { tool: 'bash', arguments: { command: 'echo $word $PWD $(cat made); touch next' }, timeoutMs }
    const outcome = await resumed.call('moved', at([past]), call)
    await resumed.close()
    expect(outcome.stdout).toBe('kept /app/src 1\n')
    expect(outcome.files).toMatchObject({ before: past.snapshot, restored: 'snapshot' })
  })

  test('files that the calls no longer make are reported as others', async () => {
    const { past } = await bash('clock', [], 'date +%N > now')
    await environments.end('clock')
    boundSnapshots(store, 0, Number.POSITIVE_INFINITY)
    const { outcome } = await bash('clock', [past], 'true')
    expect(outcome.files).toMatchObject({ restored: 'other-files' })
  })

  test('an environment that dies is an outcome, and the next call has its files', async () => {
    const { past } = await bash('dies', [], 'echo kept > kept')
    const running = bash('dies', [past], 'echo late > late; sleep 20')
    const [name] = readdirSync(store.live)
    const first = join(store.live, name!, '0')
    await new Promise(resolve => setTimeout(resolve, 1000))
    // The one environment that is alive: its first process ends, as the kernel ends it where memory is short.
    for (const id of readdirSync(first))
      process.kill(Number(readFileSync(join(first, id, 'first.pid'), 'utf8').split(' ')[0]), 'SIGKILL')
    const died = await running
    expect(died.outcome).toMatchObject({ status: 'killed', reason: expect.stringContaining('the environment ended') })
    expect((await bash('dies', [past, died.past], 'cat kept late')).outcome.stdout).toBe('kept\nlate\n')
  })

  test('the store stays within its bound, the snapshot that was used longest ago goes first, and those in use stay', async () => {
    const calls: PastCall[] = []
    for (const n of [1, 2, 3])
      calls.push((await bash('large', calls, `head -c 3000000 /dev/zero | tr '\\0' ${n} > big`)).past)
    const [oldest, , newest] = calls.map(({ snapshot }) => join(store.root, 'layers', snapshot!))
    const removed = boundSnapshots(store, 7_000_000, Number.POSITIVE_INFINITY)
    expect(removed.length).toBeGreaterThan(0)
    expect([existsSync(oldest!), existsSync(newest!)]).toEqual([false, true])
    const [held] = await Promise.all([environments.start(at(calls))])
    boundSnapshots(store, 0, Number.POSITIVE_INFINITY)
    expect(existsSync(newest!)).toBe(true)
    expect((await held.environment.exec({ command: 'head -c 3 big', timeoutMs })).stdout.toString()).toBe('333')
    await held.environment.stop()
  })
})
