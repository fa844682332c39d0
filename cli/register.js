/**
 * Lets this process require TypeScript: the checkout's sources, and users' recipes. Use `require('./register')`, or
 * `node -r …/cli/register.js` for a child process. It does not check types; `npm run lint` does.
 *
 * ts-node compiles. Its output is cached by path, with a digest of source, options and versions in the first line, so a
 * second start neither compiles nor loads the compiler. An unwritable cache is no error.
 */
const { createHash } = require('node:crypto')
const fs = require('node:fs')
const path = require('node:path')
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

function compiled(source, file) {
  const head = `/* ${hash(source, madeBy())} */ `
  const kept = path.join(cache, `${hash(file).slice(0, 32)}.js`)
  try {
    const text = fs.readFileSync(kept, 'utf8')
    if (text.startsWith(head)) return text
  } catch {
    // the cache has no compiled form of this file yet
  }
  const text = head + compile(source, file)
  try {
    fs.mkdirSync(cache, { recursive: true })
    fs.writeFileSync(`${kept}.${process.pid}`, text)
    fs.renameSync(`${kept}.${process.pid}`, kept)
  } catch {
    // the cache is read-only or full: the next start compiles again
  }
  return text
}

// The digest stands on the first line of code, so line numbers in stack traces stay right; ts-node's source maps do the
// rest.
process.setSourceMapsEnabled(true)
require.extensions['.ts'] = (module, file) => module._compile(compiled(fs.readFileSync(file, 'utf8'), file), file)
