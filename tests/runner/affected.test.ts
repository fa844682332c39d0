/** Which tests `npm run check` runs for a change, and in which order; on planted files and on the project's own. */
import { join } from 'node:path'
import fc from 'fast-check'

type Distances = ReadonlyMap<string, number>
interface Affected {
  affectedTests(
    sources: ReadonlyMap<string, string>,
    changed: readonly string[],
  ): { tests: Distances; unknown: string[] }
  readSources(root: string): ReadonlyMap<string, string>
}
interface Batches {
  batchTime(files: readonly string[], known: Record<string, number>): number
  paceOf(batch: readonly string[], known: Record<string, number>, seconds: number): number
  chooseBatch(
    waiting: readonly string[],
    known: Record<string, number>,
    batchSeconds: number,
    secondsLeft: number,
  ): readonly string[]
  inOrder(files: readonly string[], distance: Distances, known: Record<string, number>): readonly string[]
}
const { affectedTests, readSources } = require('./affected') as Affected
const { batchTime, chooseBatch, inOrder, paceOf } = require('./batches') as Batches

const sources = new Map(
  Object.entries({
    'messages/ids.ts': '',
    'kernels/a.ts': "import { id } from '../messages/ids'",
    'kernels/index.ts': "export * from './a'",
    'kernels/table.csv': '',
    'cli/bin.js': "require('./main')",
    'cli/main.ts': "const a = () => require('../kernels') as typeof import('../kernels')",
    'deploy/server.txt': '',
    'sandbox/shim/shim.c': '#include "cells.h"',
    'sandbox/shim/cells.h': '',
    'sandbox/compile.js': "const SOURCES = path.join(__dirname, 'shim')",
    'tests/f.test.ts': "require('../sandbox/compile')",
    'docs/a.md': '',
    'tests/support/cli.ts': "const bin = join(__dirname, '../../cli/bin.js')",
    'tests/support/child.ts': "import '../../kernels/a'",
    'tests/a.test.ts': "import { id } from '../kernels'",
    'tests/b.test.ts': "import { run } from './support/cli'",
    'tests/c.test.ts': "fork(join(__dirname, 'support/child.ts'))",
    'tests/d.test.ts': "const script = `require('./cli/main').x`",
    'tests/e.test.ts': "readFileSync('kernels/table.csv')",
    'policy/troupe_policy/trainer/losses/__init__.py': 'from .clip import clip',
    'policy/troupe_policy/trainer/losses/clip.py': 'import torch',
    'policy/troupe_policy/trainer/step.py': 'from ..trainer import losses\nfrom . import meter',
    'policy/troupe_policy/trainer/meter.py': '',
    'policy/tests/helper.py': 'from troupe_policy.trainer.step import (\n    a,\n    b,\n)',
    'policy/tests/trainer/test_step.py': 'from helper import a',
    'policy/tests/trainer/test_meter.py': 'def test_a():\n    from troupe_policy.trainer import meter',
  }),
)
const touched = (...changed: string[]) => Object.fromEntries(affectedTests(sources, changed).tests)

test('a test that changed runs itself; a test of a changed file counts the files between them', () => {
  expect(touched('tests/a.test.ts')).toEqual({ 'tests/a.test.ts': 0 })
  expect(touched('kernels/index.ts')).toMatchObject({ 'tests/a.test.ts': 1 })
  expect(touched('messages/ids.ts')).toMatchObject({ 'tests/a.test.ts': 3, 'tests/c.test.ts': 3 })
})

test('a test uses what it starts as a process, what its scripts require, and the files that it reads', () => {
  expect(touched('cli/main.ts')).toEqual({ 'tests/b.test.ts': 3, 'tests/d.test.ts': 1 })
  expect(touched('tests/support/child.ts')).toEqual({ 'tests/c.test.ts': 1 })
  expect(touched('sandbox/shim/cells.h')).toEqual({ 'tests/f.test.ts': 2 })
  expect(touched('kernels/table.csv')).toEqual({ 'tests/e.test.ts': 1 })
})

test('Python imports are followed: relative, absolute, of packages, in functions and over several lines', () => {
  expect(touched('policy/troupe_policy/trainer/losses/clip.py')).toEqual({ 'policy/tests/trainer/test_step.py': 4 })
  expect(touched('policy/troupe_policy/trainer/meter.py')).toEqual({
    'policy/tests/trainer/test_meter.py': 1,
    'policy/tests/trainer/test_step.py': 3,
  })
})

test('a change whose tests cannot be told is unknown; documentation touches none', () => {
  expect(affectedTests(sources, ['package.json', 'deploy/server.txt']).unknown).toEqual([
    'package.json',
    'deploy/server.txt',
  ])
  expect(affectedTests(sources, ['docs/a.md', 'biome.json', 'kernels/a.ts', 'kernels/deleted.ts'])).toMatchObject({
    unknown: [],
  })
})

test('in this project, a kernel reaches its own test first, and the sandbox’s C file reaches the sandbox’s tests', () => {
  const ours = readSources(join(__dirname, '../..'))
  const { tests, unknown } = affectedTests(ours, ['kernels/selection/roc.ts'])
  expect(inOrder([...tests.keys()], tests, {})[0]).toBe('tests/kernels/selection/roc.test.ts')
  expect(unknown).toEqual([])
  const shim = affectedTests(ours, ['sandbox/zygote/shim/shim.c'])
  expect(shim.tests.has('tests/sandbox/zygote.test.ts')).toBe(true)
  const losses = [...ours.keys()].filter(file => file.startsWith('policy/troupe_policy/trainer/losses/'))
  expect(affectedTests(ours, losses).tests.has('policy/tests/trainer/test_losses.py')).toBe(true)
})

const seconds = fc.dictionary(
  fc.constantFrom('a', 'b', 'c', 'd', 'e.py', 'f.py'),
  fc.double({ min: 0, max: 60, noNaN: true }),
)
const asTest = (name: string) => (name.endsWith('.py') ? `policy/tests/test_${name}` : `tests/${name}.test.ts`)

test('batches keep the order of each runner, end within the time that is left, and leave out only what does not fit', () =>
  fc.assert(
    fc.property(seconds, fc.double({ min: 0, max: 200, noNaN: true }), (given, limit) => {
      const known = Object.fromEntries(Object.entries(given).map(([name, each]) => [asTest(name), each]))
      let waiting: readonly string[] = inOrder(Object.keys(known), new Map(), known)
      const order = waiting
      let left = limit
      const ran: string[] = []
      for (;;) {
        const batch = chooseBatch(waiting, known, Math.min(30, left), left)
        if (batch.length === 0) break
        expect(batchTime(batch, known)).toBeLessThanOrEqual(left)
        expect(new Set(batch.map(file => file.endsWith('.py'))).size).toBe(1)
        left -= batchTime(batch, known)
        waiting = waiting.filter(file => !batch.includes(file))
        ran.push(...batch)
      }
      for (const file of waiting) expect(batchTime([file], known)).toBeGreaterThan(left)
      for (const isPython of [true, false]) {
        const own = (files: readonly string[]) => files.filter(file => file.endsWith('.py') === isPython)
        expect(own(ran)).toEqual(own(order).filter(file => ran.includes(file)))
      }
    }),
  ))

test('on a machine that is slower than the estimates no batch but the first ends after the limit', () =>
  fc.assert(
    fc.property(seconds, fc.double({ min: 1, max: 8, noNaN: true }), (given, slowdown) => {
      const known = Object.fromEntries(Object.entries(given).map(([name, each]) => [asTest(name), each]))
      let waiting: readonly string[] = inOrder(Object.keys(known), new Map(), known)
      let left = 160
      let pace = 1
      for (let count = 0; ; count++) {
        const batch = chooseBatch(waiting, known, Math.min(count === 0 ? 10 : 30, left / pace), left / pace)
        if (batch.length === 0) break
        const took = slowdown * batchTime(batch, known)
        if (count > 0) expect(took).toBeLessThanOrEqual(left * 1.000001)
        left -= took
        waiting = waiting.filter(file => !batch.includes(file))
        pace = paceOf(batch, known, took)
      }
      expect(pace === 1 || Math.abs(pace - slowdown) < 1e-6).toBe(true)
    }),
  ))
