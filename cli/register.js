/**
 * Lets this process require TypeScript: the checkout's sources, and users' recipes. Use `require('./register')`, or
 * `node -r …/cli/register.js` for a child process. It does not check types; `npm run lint` does.
 *
 * ts-node compiles. Its output is cached by path, with a digest of source, options and versions in the first line, so a
 * second start neither compiles nor loads the compiler. The cache also has V8's compiled code, which halves the rest of
 * the loading time, and the source map, which is read only for a stack trace. An unwritable cache is no error.
 */
const { createHash } = require('node:crypto')
const fs = require('node:fs')
const { Module, SourceMap } = require('node:module')
const path = require('node:path')
const { pathToFileURL } = require('node:url')
const vm = require('node:vm')
const { crc32 } = require('node:zlib')
const { places } = require('./setup/places')

const { checkout, root, logs } = places()
const cache = path.join(logs, 'ts')
const project = path.join(root, 'tsconfig.json')
const options = checkout
  ? { project }
  : {
      skipProject: true,
      compilerOptions: { module: 'commonjs', moduleResolution: 'bundler', target: 'es2023', esModuleInterop: true },
    }
const versionOf = name => JSON.parse(fs.readFileSync(require.resolve(`${name}/package.json`), 'utf8')).version
const hash = (...parts) => createHash('sha256').update(parts.join('\0')).digest('hex')

let tools
/** Digest of everything except the source that affects the output. */
function madeBy() {
  tools ??= hash(
    process.version,
    versionOf('ts-node'),
    versionOf('typescript'),
    checkout ? fs.readFileSync(project, 'utf8') : JSON.stringify(options),
  )
  return tools
}

let service
function compile(source, file) {
  service ??= require('ts-node').create({ ...options, transpileOnly: true })
  return service.compile(source, file)
}

function read(file) {
  try {
    return fs.readFileSync(file)
  } catch {
    return undefined // not cached yet
  }
}

function keep(file, content) {
  try {
    fs.mkdirSync(cache, { recursive: true })
    fs.writeFileSync(`${file}.${process.pid}`, content)
    fs.renameSync(`${file}.${process.pid}`, file)
  } catch {
    // the cache is read-only or full: the next start compiles again
  }
}

const mapMark = '//# sourceMappingURL='
/**
 * Source maps by the source file that this process has required: the map's path, or its content once a stack trace
 * needed it.
 */
const maps = new Map()

/** JavaScript of a source; the first line holds `digest`, the last names the source map for debuggers. */
function compiled(source, file, digest, place) {
  const kept = read(`${place}.js`)?.toString()
  if (kept?.startsWith(`/* ${digest} */ `)) return kept
  const output = compile(source, file)
  const end = output.lastIndexOf(mapMark)
  const text = `/* ${digest} */ ${output.slice(0, end)}${mapMark}${pathToFileURL(place)}.map`
  // The map is written first: a process that finds the JavaScript finds its map.
  keep(`${place}.map`, Buffer.from(output.slice(output.indexOf(',', end) + 1), 'base64'))
  keep(`${place}.js`, text)
  return text
}

const uncached = []
/**
 * First line of a file of V8's code: the source's digest, and a checksum, since V8 crashes on code with a wrong byte.
 */
const headOf = (digest, code) => `${digest} ${crc32(code)}\n`

/**
 * Returns the script with V8's cached code. If the cache has no code of this digest, the process writes the code when
 * the process exits, so that it includes all functions that have run.
 */
function scriptOf(text, file, digest, place) {
  const kept = read(`${place}.code`)
  const code = kept?.subarray(kept.indexOf('\n') + 1)
  const isSound = kept !== undefined && kept.toString('latin1', 0, kept.length - code.length) === headOf(digest, code)
  const script = new vm.Script(Module.wrap(text), { filename: file, cachedData: isSound ? code : undefined })
  if (!isSound) uncached.push({ script, file: `${place}.code`, digest })
  return script
}
process.on('exit', () => {
  for (const { script, file, digest } of uncached) {
    const code = script.createCachedData()
    keep(file, Buffer.concat([Buffer.from(headOf(digest, code), 'latin1'), code]))
  }
})

function requireOf(module) {
  const own = id => module.require(id)
  own.resolve = (request, given) => Module._resolveFilename(request, module, false, given)
  own.resolve.paths = request => Module._resolveLookupPaths(request, module)
  return Object.assign(own, { main: process.mainModule, extensions: require.extensions, cache: require.cache })
}

require.extensions['.ts'] = (module, file) => {
  const source = fs.readFileSync(file, 'utf8')
  const digest = hash(source, madeBy())
  const place = path.join(cache, hash(file).slice(0, 32))
  const text = compiled(source, file, digest, place)
  maps.set(file, `${place}.map`)
  // Node's own loader compiles a source with import(): in a vm.Script import() is experimental, and prints a warning.
  if (/\bimport\s*\(/.test(text)) return module._compile(text, file)
  const run = scriptOf(text, file, digest, place).runInThisContext()
  run.call(module.exports, module.exports, requireOf(module), module, file, path.dirname(file))
}

/**
 * Resolves `troupe` and `troupe/ENTRY` to the copy that runs, also for a recipe in a directory where no package is
 * installed. Another copy's classes would differ from this copy's, and `instanceof` would fail.
 */
const resolveFilename = Module._resolveFilename
Module._resolveFilename = (request, ...rest) => resolveFilename(ownEntry(request) ?? request, ...rest)

function ownEntry(request) {
  const [, entry] = /^troupe(?:\/([\w/-]+))?$/.exec(request) ?? []
  if (entry === undefined && request !== 'troupe') return undefined
  const folder = entry === undefined ? '.' : entry === 'runtime' ? 'entries/runtime' : entry
  const file = path.join(root, checkout ? folder : path.join('dist', folder), checkout ? 'index.ts' : 'index.js')
  return fs.existsSync(file) ? file : undefined
}

function mapOf(file) {
  const found = maps.get(file)
  if (typeof found !== 'string') return found
  const text = read(found)?.toString()
  maps.set(file, text === undefined ? undefined : new SourceMap(JSON.parse(text)))
  return maps.get(file)
}

/** Formats a frame of a stack trace with its line and column in the source instead of in the JavaScript. */
function sourceFrame(frame) {
  return String(frame).replace(/(\/[^()]*\.ts):(\d+):(\d+)/, (found, file, line, column) => {
    const { originalLine, originalColumn } = mapOf(file)?.findEntry(line - 1, column - 1) ?? {}
    return originalLine === undefined ? found : `${file}:${originalLine + 1}:${originalColumn + 1}`
  })
}
Error.prepareStackTrace = (error, frames) => {
  let head
  try {
    head = Error.prototype.toString.call(error)
  } catch {
    head = '<error>' // as V8 says for an error whose message cannot be read
  }
  return [head, ...frames.map(frame => `    at ${sourceFrame(frame)}`)].join('\n')
}
