/** `troupe doctor --tree`: the supervision tree as a run's log has it. */
import { mkdtempSync, rmSync } from 'node:fs'
import { hostname, tmpdir } from 'node:os'
import { join } from 'node:path'
import { textOf } from '../../cli/supervisionTree'
import type { ActorStatus } from '../../messages/commands'
import type { RunStarted } from '../../messages/facts'
import { runId } from '../../messages/ids'
import { treesOf } from '../../replay/log/supervisionTrees'
import { memoryBlobs } from '../../runtime/bus/blobs'
import { openLmdbBus } from '../../runtime/bus/lmdb/lmdbBus'
import { openJournal } from '../../runtime/journal/openJournal'
import { runDirectory } from '../../runtime/runDirectory'
import { troupe } from '../support/cli'

const directory = mkdtempSync(join(tmpdir(), 'troupe-tree-'))
afterAll(() => rmSync(directory, { recursive: true, force: true }))

const status = (actor: string, change: Partial<ActorStatus> = {}): ActorStatus => ({
  ...{ type: 'actor.status', at: 1000, actor, kind: 'supervisor', state: 'up', restarts: 0 },
  ...{ tree: 't', host: hostname(), pid: process.pid },
  ...change,
})
const plain = (_style: string, text: string) => text

const tree = [
  status('root'),
  status('root/inference'),
  status('root/inference/e-10', { kind: 'process' }),
  status('root/inference/e-2', { kind: 'process', state: 'resting', restarts: 6, reason: 'e-2 died\nwith a trace' }),
]

test('the text is a line an actor, in order, with states, restarts and the first line of the latest reason', () => {
  const [found] = treesOf(tree, 0)
  expect(textOf(found!, 61_000, plain).split('\n')).toEqual([
    `${hostname()}, process ${process.pid}: it runs; last change 1m00s ago`,
    'root          supervisor  up',
    '└─ inference  supervisor  up',
    '   ├─ e-2     process     resting     6 restarts: e-2 died',
    '   └─ e-10    process     up',
  ])
})

test('what a reason holds cannot command the terminal', () => {
  const [found] = treesOf([status('root', { reason: '\u001b[2Jgone', restarts: 1 })], 0)
  expect(textOf(found!, 1000, plain)).toContain('1 restart: \\u001b[2Jgone')
})

test('trees that wrote nothing since the run was resumed are left out, unless there are no others', () => {
  const old = status('root', { tree: 'old', at: 10 })
  expect(treesOf([old, ...tree], 500).map(one => one.tree)).toEqual(['t'])
  expect(treesOf([old], 500).map(one => one.tree)).toEqual(['old'])
})

test('a run of a process that was killed is read from its log, as text and as JSON', async () => {
  const bus = await openLmdbBus({ directory: runDirectory(directory, runId('r')).log, mode: 'write' })
  const journal = openJournal(bus, memoryBlobs(), runId('r'))
  await journal.create(1)
  const digests = { recipeDigest: '', codeDigest: '', tokenizerDigest: '' }
  const begun = { type: 'run.started', at: 0, run: runId('r'), recipe: {}, ...digests, seed: 1, versions: {} } as const
  await journal.append([{ ...begun, partitions: { trajectories: 1 } } satisfies RunStarted])
  const gone = 2 ** 22 + 1 // above every process id of Linux
  await journal.append(tree.map(one => ({ ...one, state: 'starting' as const, pid: gone })))
  await journal.append(tree.map(one => ({ ...one, pid: gone })))
  await bus.close()
  const args = ['doctor', '--tree', 'r', '--bus', `lmdb:${directory}`]
  const text = await troupe(args).done
  expect({ code: text.code, stderr: text.stderr }).toEqual({ code: 0, stderr: '' })
  expect(text.stdout).toContain('the process is gone, killed or crashed')
  expect(text.stdout).toContain('resting     6 restarts: e-2 died')
  const { stdout } = await troupe([...args, '--json']).done
  expect(JSON.parse(stdout)).toMatchObject({
    ...{ tree: 't', host: hostname(), pid: gone, process: 'gone' },
    actors: expect.arrayContaining([
      {
        actor: 'root/inference/e-2',
        kind: 'process',
        state: 'resting',
        restarts: 6,
        reason: 'e-2 died\nwith a trace',
        at: 1000,
      },
    ]),
  })
}, 60_000)

test('a run that wrote nothing about its tree is refused with a reason', async () => {
  const bus = await openLmdbBus({ directory: runDirectory(directory, runId('old')).log, mode: 'write' })
  const journal = openJournal(bus, memoryBlobs(), runId('old'))
  await journal.create(1)
  await bus.close()
  const { code, stderr } = await troupe(['doctor', '--tree', 'old', '--bus', `lmdb:${directory}`]).done
  expect(code).toBe(2)
  expect(stderr).toContain("the log of run 'old' holds no record of a supervision tree")
}, 60_000)
