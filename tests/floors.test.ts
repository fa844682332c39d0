/**
 * The house's rules that no compiler checks: imports never point up, files do not import in a circle, nact is behind
 * one file, and time, randomness and ids come from runtime/effects.ts. A pure function over a map of sources, so that
 * the check itself is tested with planted violations.
 */
import { readdirSync, readFileSync } from 'node:fs'
import { join, posix } from 'node:path'
import ts from 'typescript'

const root = join(__dirname, '..')

/** What a folder may import of ours, besides itself. Files in the root (index.ts) and the package's entries stand on top of all. */
const floors = [
  'messages',
  'kernels',
  'sandbox',
  'runtime',
  'config',
  'environments',
  'backends',
  'actors',
  'gateway',
  'recipes',
  'replay',
]
const below = (house: string) => floors.slice(0, floors.indexOf(house))
const mayImport: Readonly<Record<string, readonly string[]>> = {
  messages: [],
  kernels: ['messages'],
  sandbox: [],
  ...Object.fromEntries(floors.slice(3).map(house => [house, below(house)])),
  // One server and one page over replay: a consumer of the log like any other.
  dashboard: floors,
  // `troupe bench` runs what stands in bench/, which a package does not carry.
  cli: [...floors, 'dashboard', 'bench'],
}
const unruled = new Set(['tests', 'bench', 'examples', 'entries'])

/** Where wall time and chance may be asked for directly: at the edges, where nothing is replayed. */
const mayAskTheWorld = new Set(['sandbox', 'dashboard', 'cli'])
const chance = ['Date.now', 'Math.random', 'crypto.randomUUID', 'randomUUID', 'randomBytes', 'randomInt', 'new Date()']
const timing = [
  'performance.now',
  'process.hrtime',
  'setTimeout',
  'setInterval',
  'setImmediate',
  'fetch',
  'process.env',
]
const pure = new Set(['messages', 'kernels'])
const pureModules = new Set(['node:crypto', 'node:buffer', 'node:util', 'node:assert'])

type Sources = ReadonlyMap<string, string>

function violations(sources: Sources): readonly string[] {
  return [...importFaults(sources), ...cycles(sources), ...worldFaults(sources), ...nactFaults(sources)]
}

function imports(source: string): readonly string[] {
  return ts.preProcessFile(source, true, true).importedFiles.map(imported => imported.fileName)
}

/** The file that a relative import means, or undefined for a package, a JSON file or a file that is not there. */
function resolveImport(sources: Sources, from: string, specifier: string): string | undefined {
  if (!specifier.startsWith('.')) return undefined
  const base = posix.join(posix.dirname(from), specifier)
  const candidates = [base, `${base}.ts`, `${base}/index.ts`, base.replace(/\.js$/, '.ts'), `${base}.js`]
  return candidates.find(file => sources.has(file))
}

const houseOf = (file: string) => (file.includes('/') ? file.slice(0, file.indexOf('/')) : '')

function importFaults(sources: Sources): readonly string[] {
  return [...sources].flatMap(([file, source]) => {
    const house = houseOf(file)
    if (unruled.has(house) || house === '') return []
    const allowed = mayImport[house]
    if (!allowed) return [`${file}: the folder ${house} stands on no floor`]
    return imports(source).flatMap(specifier => {
      if (pure.has(house) && specifier.startsWith('node:') && !pureModules.has(specifier)) {
        return [`${file}: ${house} does no I/O, but imports ${specifier}`]
      }
      if (!specifier.startsWith('.') || /(^|\/)\.\.\/package\.json$/.test(specifier)) return []
      const target = houseOf(posix.join(posix.dirname(file), specifier).replace(/^([^/.]+)$/, '$1/'))
      return target === house || allowed.includes(target)
        ? []
        : [`${file}: ${house} imports ${specifier}, which is not below it`]
    })
  })
}

/** Edges of a graph by name of their origin. */
type Graph = ReadonlyMap<string, ReadonlySet<string>>

/** The circles that a walk along the edges meets, each as the names on it. */
function circlesOf(graph: Graph): readonly (readonly string[])[] {
  const found: (readonly string[])[] = []
  const state = new Map<string, 'open' | 'done'>()
  const visit = (name: string, trail: readonly string[]) => {
    if (state.get(name) === 'done') return
    if (state.get(name) === 'open') {
      found.push([...trail.slice(trail.indexOf(name)), name])
      return
    }
    state.set(name, 'open')
    for (const next of graph.get(name) ?? []) visit(next, [...trail, name])
    state.set(name, 'done')
  }
  for (const name of graph.keys()) visit(name, [])
  return found
}

function fileGraph(sources: Sources): Graph {
  return new Map(
    [...sources].map(([file, source]) => {
      const targets = imports(source).map(specifier => resolveImport(sources, file, specifier))
      return [file, new Set(targets.filter(target => target !== undefined))]
    }),
  )
}

/**
 * Folders that stand beside each other, joined where a file below one imports a file below the other. Files of their
 * common parent do not count: an index stands on its folders, and they stand on what the parent shares.
 */
function siblingGraph(files: Graph): Graph {
  const folders = new Map<string, Set<string>>()
  for (const [file, targets] of files) {
    for (const target of targets) {
      const from = posix.dirname(file).split('/')
      const to = posix.dirname(target).split('/')
      const fork = from.findIndex((part, i) => part !== to[i])
      if (fork <= 0 || fork >= to.length) continue
      const sibling = from.slice(0, fork + 1).join('/')
      folders.set(sibling, (folders.get(sibling) ?? new Set()).add(to.slice(0, fork + 1).join('/')))
    }
  }
  return folders
}

function cycles(sources: Sources): readonly string[] {
  const files = fileGraph(sources)
  const production = new Map([...files].filter(([file]) => !unruled.has(houseOf(file))))
  return [
    ...circlesOf(files).map(names => `a circle of imports: ${names.join(' → ')}`),
    ...circlesOf(siblingGraph(production)).map(names => `a circle of folders: ${names.join(' → ')}`),
  ]
}

function worldFaults(sources: Sources): readonly string[] {
  return [...sources].flatMap(([file, source]) => {
    const house = houseOf(file)
    if (unruled.has(house) || mayAskTheWorld.has(house) || file === 'runtime/effects.ts') return []
    const forbidden = new Set(pure.has(house) ? [...chance, ...timing] : chance)
    const used = new Set([...asksOf(file, source)].filter(name => forbidden.has(name)))
    return [...used].map(name => `${file}: ${name} is asked for outside runtime/effects.ts`)
  })
}

/** Names that are used as values: `a.b`, calls and imports of a bare name, `new Date()`; comments and strings do not count. */
function* asksOf(file: string, source: string): Generator<string> {
  const nodes: ts.Node[] = [ts.createSourceFile(file, source, ts.ScriptTarget.Latest)]
  for (let node = nodes.pop(); node; node = nodes.pop()) {
    if (ts.isPropertyAccessExpression(node) && ts.isIdentifier(node.expression)) {
      const base = node.expression.text === 'globalThis' ? '' : `${node.expression.text}.`
      yield `${base}${node.name.text}`
    } else if (ts.isNewExpression(node) && ts.isIdentifier(node.expression)) {
      if (node.expression.text === 'Date' && !node.arguments?.length) yield 'new Date()'
    } else if (ts.isCallExpression(node) && ts.isIdentifier(node.expression)) yield node.expression.text
    else if (ts.isImportSpecifier(node)) yield (node.propertyName ?? node.name).text
    node.forEachChild(child => {
      nodes.push(child)
    })
  }
}

function nactFaults(sources: Sources): readonly string[] {
  const users = [...sources]
    .filter(([file, source]) => !unruled.has(houseOf(file)) && imports(source).includes('nact'))
    .map(([file]) => file)
  const astray = users
    .filter(file => !/^runtime\/actor[^/]*(\/|\.ts$)/.test(file))
    .map(file => `${file}: nact is imported outside runtime/actor`)
  return users.length > 1 ? [...astray, `nact is imported by ${users.length} files: ${users.join(', ')}`] : astray
}

function ourSources(): Sources {
  const entries = readdirSync(root, { withFileTypes: true }).filter(
    ({ name }) => !/^(\..*|node_modules|dist|coverage)$/.test(name),
  )
  const files = entries.flatMap(entry =>
    entry.isDirectory()
      ? readdirSync(join(root, entry.name), { recursive: true }).map(file => `${entry.name}/${file}`)
      : [entry.name],
  )
  const ours = files.filter(file => /\.[jt]s$/.test(file) && !file.includes('node_modules/'))
  return new Map(ours.sort().map(file => [file, readFileSync(join(root, file), 'utf8')]))
}

test('no import points up, no files import in a circle, and time and chance come from effects', () => {
  const sources = ourSources()
  expect(sources.has('messages/ids.ts')).toBe(true)
  expect(sources.has('runtime/effects.ts')).toBe(true)
  expect(violations(sources)).toEqual([])
})

test.each<[string, Record<string, string>, RegExp]>([
  [
    'an import that points up',
    { 'runtime/a.ts': "import type { B } from '../actors/b'" },
    /runtime imports \.\.\/actors\/b/,
  ],
  ['a kernel that imports the runtime', { 'kernels/a.ts': "export * from '../runtime/x'" }, /kernels imports/],
  [
    'a sandbox that knows messages',
    { 'sandbox/a.ts': "import { b } from '../messages'" },
    /sandbox imports \.\.\/messages/,
  ],
  ['a replay that imports the cli', { 'replay/a.ts': "const x = require('../cli/x')" }, /replay imports/],
  ['an import of the root', { 'actors/a.ts': "import { b } from '../index'" }, /actors imports \.\.\/index/],
  ['an import by import()', { 'messages/a.ts': "await import('../kernels/roc')" }, /messages imports/],
  ['a folder without a floor', { 'utils/a.ts': '' }, /stands on no floor/],
  [
    'two files in a circle',
    { 'actors/a.ts': "import './b'", 'actors/b.ts': "import type { A } from './a'" },
    /a → |a\.ts → actors\/b\.ts/,
  ],
  [
    'three files in a circle through an index',
    { 'actors/a.ts': "import './b'", 'actors/b.ts': "import './d'", 'actors/d/index.ts': "import '../a'" },
    /circle/,
  ],
  [
    'two folders in a circle',
    {
      'actors/a/one.ts': "import '../b/deep/two'",
      'actors/b/deep/two.ts': '',
      'actors/b/three.ts': "import '../a/four'",
      'actors/a/four.ts': '',
    },
    /a circle of folders: actors\/a → actors\/b → actors\/a/,
  ],
  ['a kernel that reads files', { 'kernels/a.ts': "import fs from 'node:fs'" }, /does no I\/O/],
  ['a kernel that waits', { 'kernels/a.ts': 'setTimeout(f, 1)' }, /setTimeout/],
  ['an actor that asks the clock', { 'actors/a.ts': 'const t = Date.now()' }, /Date\.now/],
  ['a clock passed on as a function', { 'actors/a.ts': 'const now = Date.now' }, /Date\.now/],
  ['today', { 'actors/a.ts': 'const t = new Date()' }, /new Date\(\)/],
  ['chance', { 'recipes/a.ts': 'const t = Math.random()' }, /Math\.random/],
  ['an id by another name', { 'runtime/a.ts': "import { randomUUID as id } from 'node:crypto'" }, /randomUUID/],
  ['nact beside the actor file', { 'actors/a.ts': "import { spawn } from 'nact'" }, /nact is imported outside/],
  [
    'nact in two files',
    { 'runtime/actor/system.ts': "import 'nact'", 'runtime/actor/b.ts': "import 'nact'" },
    /by 2 files/,
  ],
])('the check catches %s', (_title, files, expected) => {
  expect(violations(new Map(Object.entries(files))).join('\n')).toMatch(expected)
})

test('what is allowed is not reported', () => {
  const files = {
    'messages/index.ts': "import { pack } from 'msgpackr'",
    'kernels/a.ts':
      "import { createHash } from 'node:crypto'\nimport type { Id } from '../messages'\n// Date.now() in a comment\nconst s = 'Math.random()'",
    'runtime/effects.ts': 'export const now = () => Date.now()',
    'runtime/actor/system.ts': "import { start } from 'nact'\nsetTimeout(f, 1)",
    'cli/main.ts': "import '../replay/run'\nDate.now()",
    'index.ts': "export * from './messages'",
    'tests/a.test.ts': "import '../cli/main'\nMath.random()",
    'actors/a.ts': 'const at = new Date(fact.at)',
    'kernels/index.ts': "export * from './part/one'",
    'kernels/part/one.ts': "import '../shared'",
    'kernels/shared.ts': '',
  }
  expect(violations(new Map(Object.entries(files)))).toEqual([])
})
