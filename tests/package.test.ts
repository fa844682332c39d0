/**
 * What a user gets: the tarball of `npm pack`, unpacked into an empty project whose node_modules holds only what the
 * package declares. Every entry is required, imported and type-checked there, away from the checkout.
 */
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { asError } from '../runtime/errors'
import { type InstalledPackage, installPackage } from './support/installPackage'

jest.setTimeout(300_000)

const root = join(__dirname, '..')
const manifest = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as {
  readonly version: string
  readonly exports: Readonly<Record<string, unknown>>
}
const entries = Object.keys(manifest.exports)
  .filter(entry => entry !== './package.json')
  .map(entry => entry.replace(/^\./, 'troupe'))
let installed: InstalledPackage
let project: string
let run: InstalledPackage['run']

beforeAll(() => {
  installed = installPackage()
  ;({ project, run } = installed)
})
afterAll(() => installed.remove())

function namesBy(kind: 'require' | 'import'): Record<string, readonly string[]> {
  const load = kind === 'require' ? 'require(entry)' : 'await import(entry)'
  const script = `(async () => {
    const names = {}
    for (const entry of ${JSON.stringify(entries)}) {
      const found = ${load}
      names[entry] = Object.keys(found).filter(name => found[name] !== undefined && name !== 'default' && name !== 'module.exports').sort()
    }
    process.stdout.write(JSON.stringify(names), () => process.exit())
  })()`
  writeFileSync(join(project, `names-${kind}.cjs`), script)
  return JSON.parse(run(process.execPath, [`names-${kind}.cjs`]).stdout)
}

test('every entry gives the same names to require and to import, and the root gives them all', () => {
  const required = namesBy('require')
  expect(namesBy('import')).toEqual(required)
  const inFolders = entries.filter(entry => entry !== 'troupe').flatMap(entry => required[entry]!)
  for (const entry of entries) expect(required[entry]!.length).toBeGreaterThan(0)
  expect(required.troupe).toEqual([...new Set(inFolders)].sort())
})

test('require of the root loads no folder until a name is used', () => {
  const script = `
    const before = Object.keys(require.cache).length
    const troupe = require('troupe')
    const loaded = Object.keys(require.cache).filter(file => /dist.(runtime|backends|entries|actors|kernels|messages|sandbox|recipes|replay)/.test(file))
    console.log(JSON.stringify({ loaded, names: Object.keys(troupe).length }))`
  const { loaded, names } = JSON.parse(run(process.execPath, ['-e', script]).stdout)
  expect(loaded).toEqual([])
  expect(names).toBeGreaterThan(0)
})

test('every entry has types, for CommonJS and for ES modules', () => {
  const lines = entries.map((entry, i) => `import * as e${i} from '${entry}'\nvoid e${i}`)
  const wrong = "import { noSuchName } from 'troupe/messages'\nvoid noSuchName"
  const files = ['cjs.ts', 'esm.mts', 'wrong-cjs.ts', 'wrong-esm.mts']
  for (const file of files) writeFileSync(join(project, file), file.startsWith('wrong') ? wrong : lines.join('\n'))
  const tsc = join(root, 'node_modules/typescript7/bin/tsc')
  const target = ['--strict', '--target', 'es2023', '--module', 'node16', '--types', 'node']
  // One program for all four files, since each program parses the package's declarations anew.
  let reported = ''
  try {
    run(process.execPath, [tsc, '--noEmit', ...target, '--skipLibCheck', ...files])
  } catch (thrown) {
    reported = asError(thrown).message
  }
  const faults = reported.split('\n').filter(line => /\berror TS\d+:/.test(line))
  expect(faults).toEqual([
    expect.stringMatching(/^wrong-cjs\.ts\(.*no exported member.*noSuchName/),
    expect.stringMatching(/^wrong-esm\.mts\(.*no exported member.*noSuchName/),
  ])
})

test('the command runs from the package, and set-up finds what to install', () => {
  const bin = join(project, 'node_modules/troupe/cli/bin.js')
  expect(run(process.execPath, [bin, '--version']).stdout).toContain(manifest.version)
  expect(existsSync(join(project, 'node_modules/troupe/dist/policy/requirements.txt'))).toBe(true)
  const script = "const { places } = require('troupe/cli/setup/places'); console.log(JSON.stringify(places()))"
  writeFileSync(join(project, 'places.cjs'), script.replace('troupe/', './node_modules/troupe/'))
  const where = JSON.parse(run(process.execPath, ['places.cjs']).stdout)
  expect(where.checkout).toBe(false)
  expect(existsSync(join(where.policy, 'troupe_policy/generated/policy_pb2_grpc.py'))).toBe(true)
})

test("a user's TypeScript recipe is loaded from the package, with no tsconfig.json about", () => {
  writeFileSync(
    join(project, 'recipe.ts'),
    "import { runId } from 'troupe/messages'\nexport const recipe: { id: string } = { id: runId('mine') }\n",
  )
  const script = "require('./node_modules/troupe/cli/register'); console.log(require('./recipe.ts').recipe.id)"
  expect(run(process.execPath, ['-e', script]).stdout).toBe('mine\n')
  // The compiled source with its map, and V8's code for it.
  const kept = readdirSync(join(project, 'home/ts')).map(name => name.replace(/^[0-9a-f]{32}/, 'source'))
  expect(kept.sort()).toEqual(['source.code', 'source.js', 'source.map'])
})

test('the wheel brings the command to an empty venv, which needs no checkout', () => {
  const tarball = readdirSync(project).find(name => name.endsWith('.tgz'))!
  run('python3', [
    join(root, 'python/build_wheel.py'),
    '--tarball',
    join(project, tarball),
    '--out',
    join(project, 'wheel'),
  ])
  const [wheel] = readdirSync(join(project, 'wheel'))
  run('python3', ['-m', 'venv', 'venv'])
  run('venv/bin/python', ['-m', 'pip', 'install', '--no-index', '--no-deps', join(project, 'wheel', wheel!)])
  // Packages that only development needs, or only the bundling of the dashboard's page, are left out.
  const where = `import os, troupe; print(os.path.join(os.path.dirname(troupe.__file__), 'package'))`
  const carried = run('venv/bin/python', ['-c', where]).stdout.trim()
  const packages = readdirSync(join(carried, 'node_modules'))
  expect(packages).toContain('nact')
  for (const name of ['jest', 'esbuild', 'preact', 'troupe-page']) expect(packages).not.toContain(name)
  expect(readdirSync(carried)).not.toContain('dashboard')
  expect(run('venv/bin/troupe', ['--version']).stdout).toContain(manifest.version)
  const history = join(root, 'tests/histories/quickstart.v1.jsonl.gz')
  run('venv/bin/troupe', ['replay', 'import', history, '--bus', `lmdb:${join(project, 'wheel-log')}`, '--as', 'mine'])
  const program = `import troupe; print([one.name for one in troupe.runs("lmdb:wheel-log")])`
  expect(run('venv/bin/python', ['-c', program]).stdout).toBe("['mine']\n")
})

test('the package carries no tests, no sources and no files of this machine', () => {
  const files = readdirSync(join(project, 'node_modules/troupe'), { recursive: true, encoding: 'utf8' })
  for (const file of ['docs/first-hour.md', 'examples/grouper.cjs', 'llms.txt', 'skills/troupe/SKILL.md'])
    expect(files).toContain(file)
  expect(
    files
      .filter(file => !file.startsWith('examples/'))
      .filter(file => /(^|\/)(tests|node_modules|\.venv|__pycache__|\.cache)(\/|$)|(?<!\.d)\.ts$|\.pyc$/.test(file)),
  ).toEqual([])
})
