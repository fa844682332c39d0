/**
 * Finds the tests that a change can touch, nearest first.
 *
 * in   the sources, and the files that changed     out  test files with their distance: 0 changed itself, 1 uses a changed file, …
 * A file uses another when it imports it or names its path in a string: tests start programs and read files by path.
 * Invariant: a change that no file uses, and that is not plain documentation, is reported as unknown, never as harmless.
 */
const fs = require('node:fs')
const path = require('node:path')
const { posix } = path
const { filesBelow, isPythonTest, isTest } = require('./files')

const isSource = file => /\.([cm]?[jt]s|py|c|h|yml|json)$/.test(file)
/** Files whose change can alter the result of any test. */
const decidesAll =
  /^(package(-lock)?\.json|tsconfig.*\.json|jest\.config\.cjs|\.npmrc|policy\/(pytest\.ini|requirements.*\.txt|.*conftest\.py))$/
const touchesNoTest = /(\.md|\.svg|^LICENSE|^\.gitignore|^\.dockerignore|^\.env\.example|^\.ci\/.*|^biome\.json)$/

/** Text of every file that can use another one, by path. */
function readSources(root) {
  const files = filesBelow(root)
  return new Map(files.map(file => [file, isSource(file) ? fs.readFileSync(path.join(root, file), 'utf8') : '']))
}

/** Which files use a file: the import graph, turned round. */
function usersByFile(sources) {
  const folders = filesByFolder(sources.keys())
  const users = new Map()
  for (const [file, text] of sources) {
    for (const used of file.endsWith('.py')
      ? pythonUses(sources, file, text)
      : stringUses(sources, folders, file, text)) {
      if (used === file) continue
      if (!users.has(used)) users.set(used, new Set())
      users.get(used).add(file)
    }
  }
  return users
}

function filesByFolder(files) {
  const folders = new Map()
  for (const file of files) {
    for (let folder = posix.dirname(file); folder !== '.'; folder = posix.dirname(folder)) {
      if (!folders.has(folder)) folders.set(folder, [])
      folders.get(folder).push(file)
    }
  }
  return folders
}

/** Every string that names one of our files or folders, from the file's own folder or from the root. */
function* stringUses(sources, folders, file, text) {
  for (const [, named] of text.matchAll(/__dirname,\s*['"]([\w-]+)['"]/g)) {
    yield* folders.get(posix.join(posix.dirname(file), named)) ?? []
  }
  for (const [, named] of text.matchAll(/(?<=['"`])((?:\.{0,2}\/)?[\w@-][\w./@-]*|(?:\.\.\/)+[\w./@-]+)(?=['"`])/g)) {
    const isRelative = named.startsWith('.')
    if (!isRelative && !/[./]/.test(named)) continue
    const places = isRelative ? [posix.join(posix.dirname(file), named), posix.normalize(named)] : []
    if (!isRelative) places.push(posix.join(posix.dirname(file), named), named)
    for (const place of places) {
      const candidates = [place, `${place}.ts`, `${place}.js`, `${place}/index.ts`, place.replace(/\.js$/, '.ts')]
      const found = candidates.find(candidate => sources.has(candidate))
      if (found !== undefined) yield found
      else yield* folders.get(place) ?? []
    }
  }
}

/** What `import a.b` and `from .a import b` name, among Python modules below policy/ and policy/tests/. */
function* pythonUses(sources, file, text) {
  const folder = posix.dirname(file)
  for (const [, dots, module, names] of text.matchAll(
    /^[ \t]*(?:from[ \t]+(\.*)([\w.]*)[ \t]+)?import[ \t]+(\([^)]*\)|[^\n]*)/gm,
  )) {
    const imported = names
      .replace(/[()#]|\bas\s+\w+/g, ' ')
      .split(/[\s,]+/)
      .filter(Boolean)
    const from = module === undefined ? imported : [module, ...imported.map(name => `${module}.${name}`)]
    const up = dots
      ? folder
          .split('/')
          .slice(0, folder.split('/').length - dots.length + 1)
          .join('/')
      : undefined
    const bases = up !== undefined ? [up] : ['policy', 'policy/tests', folder]
    for (const base of bases) {
      for (const name of from) {
        const place = posix.join(base, name.replace(/^\.+/, '').replaceAll('.', '/'))
        for (const candidate of [`${place}.py`, `${place}/__init__.py`]) if (sources.has(candidate)) yield candidate
      }
    }
  }
}

/**
 * @param {ReadonlyMap<string, string>} sources text by path; an empty text where a file uses none
 * @param {readonly string[]} changed paths, also of files that were deleted
 * @returns {{tests: Map<string, number>, unknown: string[]}} distance by test file; changes whose tests cannot be told
 */
function affectedTests(sources, changed) {
  const users = usersByFile(sources)
  const distance = new Map(changed.map(file => [file, 0]))
  for (const [file, steps] of distance) {
    for (const user of users.get(file) ?? []) if (!distance.has(user)) distance.set(user, steps + 1)
  }
  const tests = [...distance].filter(([file]) => sources.has(file) && (isTest(file) || isPythonTest(file)))
  const unknown = changed.filter(file => decidesAll.test(file) || (!isUsed(file) && !touchesNoTest.test(file)))
  return { tests: new Map(tests), unknown }

  function isUsed(file) {
    // A deleted file has no users left: whoever imports it still fails to compile, which `types` reports.
    return users.has(file) || isTest(file) || isPythonTest(file) || !sources.has(file)
  }
}

module.exports = { affectedTests, readSources }
