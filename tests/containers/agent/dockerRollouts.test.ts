/**
 * Rollouts whose environments are containers of a Docker engine: what a call changed is in the log and in the store, a fork has the
 * files of its turn, and the engine keeps no snapshot that the store has dropped. Without an engine these are skipped.
 */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { environmentSettings } from '../../../config'
import {
  boundSnapshots,
  directoryDigest,
  dockerDriver,
  dockerMissing,
  openStore,
  RolloutEnvironments,
} from '../../../environments'
import type { FilesChanged, PastCall, TaskEnvironment } from '../../../messages/facts'
import { terminalTasks } from '../../../recipes/terminal/tasks'
import { bytesIn, fileDiff } from '../../../replay/files/trajectoryFiles'
import { systemEffects } from '../../../runtime/effects'
import { importMinimal, makeMinimalImage, removeImages } from '../../support/minimalImage'

jest.setTimeout(120_000)

const missing = dockerMissing()
if (missing !== undefined) {
  console.warn(`rollouts with the driver docker are not tested: ${missing}`)
  test.skip(`rollouts with the driver docker: ${missing}`, () => {})
} else {
  const root = mkdtempSync(join(tmpdir(), 'troupe-docker-rollouts-'))
  const store = openStore(join(root, 'store'))
  const open = (epoch: number) =>
    new RolloutEnvironments({
      ...{ run: 'r', epoch, fx: systemEffects, directory: store.root, live: 4, idleMs: 60_000, snapshotMb: 1024 },
    })
  const environments = open(0)
  const { engine } = dockerDriver({ run: 'images', fx: systemEffects, directory: store.root })
  const directory = join(root, 'task')
  for (const [name, text] of Object.entries({
    'task.toml': 'version = "1.0"\n',
    'instruction.md': 'Write a greeting.\n',
    'environment/Dockerfile': 'FROM minimal\nWORKDIR /app\nCOPY given /app/given\n',
    'environment/given': 'as given\n',
    'tests/test.sh': 'true\n',
  })) {
    mkdirSync(dirname(join(directory, name)), { recursive: true })
    writeFileSync(join(directory, name), text)
  }
  const task: TaskEnvironment = { directory, digest: directoryDigest(directory), driver: 'docker' }
  const timeoutMs = 20_000
  const at = (calls: readonly PastCall[]) => ({ task, calls, timeoutMs })

  beforeAll(async () => {
    makeMinimalImage(store.root)
    await importMinimal(engine, store.root)
  })
  afterAll(async () => {
    await environments.close()
    await removeImages(engine, store.root)
    engine.close()
    rmSync(root, { recursive: true, force: true })
  })

  async function bash(rollout: string, calls: readonly PastCall[], command: string, on = environments) {
    const call = { tool: 'bash', arguments: { command } }
    const outcome = await on.call(rollout, at(calls), { ...call, timeoutMs })
    return { outcome, past: { ...call, snapshot: outcome.files?.snapshot ?? null } }
  }
  const snapshotImages = async () =>
    (
      await engine.call<{ RepoTags: string[] | null }[]>('GET', '/images/json', {
        query: { filters: JSON.stringify({ reference: ['troupe-snapshot'] }) },
      })
    ).flatMap(({ RepoTags }) => RepoTags ?? [])

  test('the recipe takes the driver, and says what it cannot give', async () => {
    const settings = { ...environmentSettings(undefined), driver: 'docker' } as const
    expect((await terminalTasks(directory, '', settings))[0]!.environment.driver).toBe('docker')
    const limited = join(root, 'limited')
    mkdirSync(join(limited, 'tests'), { recursive: true })
    writeFileSync(join(limited, 'task.toml'), '[environment]\ndocker_image = "minimal"\nstorage_mb = 100\n')
    writeFileSync(join(limited, 'instruction.md'), 'Do it.')
    writeFileSync(join(limited, 'tests/test.sh'), 'true')
    await expect(terminalTasks(limited, '', settings)).rejects.toThrow(/100 MiB of disk.*--no-storage-limit/)
    expect(await terminalTasks(limited, '', { ...settings, storage: 'no-limit' })).toHaveLength(1)
  })

  test('a call says which files it changed, their texts are in the store, and a later call goes on from there', async () => {
    const calls: PastCall[] = []
    const run = async (command: string) => {
      const { outcome, past } = await bash('changes', calls, command)
      calls.push(past)
      return outcome.files
    }
    expect(await run('cat given')).toBeUndefined()
    const first = (await run('echo new > given; echo hello > größe.txt; mkdir sub; cd sub; word=kept')) as FilesChanged
    expect(first.changed).toEqual([
      { path: '/app/given', change: 'changed', bytes: 4 },
      { path: '/app/größe.txt', change: 'added', bytes: 6 },
      { path: '/app/sub', change: 'added', bytes: 0 },
    ])
    const second = (await run('echo $word > here; rm ../given')) as FilesChanged
    expect(second.changed).toEqual([
      { path: '/app/given', change: 'removed', bytes: 0 },
      { path: '/app/sub/here', change: 'added', bytes: 5 },
    ])
    expect(`${bytesIn(store, second.snapshot, '/app/größe.txt')}`).toBe('hello\n')
    expect(fileDiff(store, second, second.changed[1]!)).toEqual(['@@ -1 +1 @@', '+kept'])
    // Another process, after a crash: at the second call's files, with its shell.
    const resumed = open(1)
    const next = await bash('changes', calls.slice(0, 2), 'cat /app/given; echo $word $PWD; touch next', resumed)
    await resumed.close()
    expect(next.outcome.stdout).toBe('new\nkept /app/sub\n')
    expect(next.outcome.files).toMatchObject({ before: first.snapshot, restored: 'snapshot' })
  })

  test('a snapshot that has left the store is made again by its calls, and leaves the engine too', async () => {
    const { past } = await bash('lost', [], 'echo 1 > made')
    await environments.end('lost')
    boundSnapshots(store, 0, Number.POSITIVE_INFINITY)
    const { driver } = await environments.prepare(task)
    await driver.prune()
    expect((await snapshotImages()).filter(tag => tag.endsWith(past.snapshot!))).toEqual([])
    const { outcome } = await bash('lost', [past], 'cat made; touch more')
    expect(outcome.stdout).toBe('1\n')
    expect(outcome.files).toMatchObject({ before: past.snapshot, restored: 'calls' })
  })
}
