/**
 * The examples of embedding, run as a user would: from the packed package in an empty project, in TypeScript, CommonJS
 * and ES modules. Each ends by itself: no `process.exit`, nothing that keeps the process alive after `close`.
 */
import { copyFileSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { type InstalledPackage, installPackage } from './support/installPackage'

jest.setTimeout(300_000)

const root = join(__dirname, '..')
const examples = readdirSync(join(root, 'examples')).filter(name => !name.endsWith('.ipynb')) // tests/python runs the notebook
const timeoutMs = 60_000
let installed: InstalledPackage

beforeAll(() => {
  installed = installPackage()
  for (const name of examples) copyFileSync(join(root, 'examples', name), join(installed.project, name))
})
afterAll(() => installed.remove())

/** What it printed, in lines, sorted: turns and calls end in any order. */
function printed(file: string, ...args: readonly string[]): readonly string[] {
  const { stdout, stderr } = installed.run(process.execPath, [file, ...args], timeoutMs)
  expect(stderr).toBe('')
  return stdout.trimEnd().split('\n').sort()
}

test('each example has at most 40 lines, imports nothing but the package, and never forces its exit', () => {
  expect(examples.map(name => name.slice(name.indexOf('.'))).sort()).toEqual(['.cjs', '.mjs', '.mjs', '.mjs', '.ts'])
  for (const name of examples) {
    const source = readFileSync(join(root, 'examples', name), 'utf8')
    expect(source.trimEnd().split('\n').length).toBeLessThanOrEqual(40)
    const modules = [...source.matchAll(/(?:from |require\()'([^']+)'/g)].map(([, module]) => module!)
    expect(modules.length).toBeGreaterThan(0)
    expect(modules.filter(module => !/^(troupe\/|node:)/.test(module))).toEqual([])
    expect(source).not.toContain('process.exit')
  }
})

test('TypeScript: the tool executor compiles strictly and answers the calls of a topic of its own', () => {
  const tsc = join(root, 'node_modules/typescript7/bin/tsc')
  const strict = ['--strict', '--exactOptionalPropertyTypes', '--noEmitOnError', '--types', 'node', '--skipLibCheck']
  const target = ['--target', 'es2023', '--module', 'node16', '--outDir', 'built']
  installed.run(process.execPath, [tsc, ...strict, ...target, 'toolExecutor.ts'])
  expect(printed('built/toolExecutor.js')).toEqual([
    'acme/0 ok: "Tool call success\\nstdout: 42"',
    'acme/1 ok: "Tool call success\\nstdout: 45"',
    expect.stringMatching(/^acme\/2 error: "Tool call failure.*ZeroDivisionError/),
  ])
})

test('CommonJS: the grouper keeps four of eight by RoC and rejects a group of equal rewards', () => {
  // Both negatives (the floor), and the two positives that were drawn: none whose calls failed, by the weights.
  const lines = printed('grouper.cjs')
  expect(lines).toHaveLength(5)
  expect(lines.filter(line => /^mixed\/[012]: 0\.866$/.test(line))).toHaveLength(2)
  expect(lines.slice(2)).toEqual(['mixed/6: -0.866', 'mixed/7: -0.866', 'solved: rejected, equal-rewards'])
})

test('ES modules: the scheduler spreads turns over two engines, and each turn is answered once', () => {
  const lines = printed('scheduler.mjs')
  const parts = lines.map(line => /^task-(\d)\/0 on ([ab]): abc\1$/.exec(line)!)
  expect(parts.map(([, order]) => order)).toEqual(['0', '1', '2', '3', '4', '5'])
  expect(new Set(parts.map(([, , engine]) => engine)).size).toBe(2)
})

test('to import the actors or the runtime loads no gRPC, lmdb, piscina, nact or pino', () => {
  const script = `
    require('troupe/actors'); require('troupe/runtime')
    const heavy = /node_modules.(@grpc|lmdb|piscina|nact|pino|prom-client|typescript)./
    console.log(JSON.stringify(Object.keys(require.cache).filter(file => heavy.test(file))))`
  expect(JSON.parse(installed.run(process.execPath, ['-e', script], timeoutMs).stdout)).toEqual([])
})

test('ES modules: replay reads a saved history: a trajectory, its selection, every decision again, a verification', () => {
  const bus = `lmdb:${join(installed.project, 'history')}`
  const history = join(root, 'tests/histories/quickstart.v1.jsonl.gz')
  installed.run(process.execPath, ['node_modules/troupe/cli/bin.js', 'replay', 'import', history, '--bus', bus])
  const lines = printed('replay.mjs', bus)
  expect(lines).toContain('11 rewarded trajectories with failed calls')
  expect(lines).toContain('s0001.0000 paper: selected, 3 positives and 1 negatives')
  expect(lines).toContain("today's code decides as the log says: true")
  expect(lines).toContain('396 decisions are the same, 0 differ')
  expect(lines).toContain('sound: 184 turns of 88 trajectories')
  expect(lines.filter(line => line.startsWith('tool   error'))).toHaveLength(1)
})

test('ES modules: the sandbox alone answers calls and batches, and ends a call that does not end', () => {
  expect(printed('sandbox.mjs')).toEqual(['100 of 100', 'ok 42', 'timeout true'])
})
