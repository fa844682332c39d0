/** cli/register.js in a checkout of its own, so that its cache is too. */
import { spawnSync } from 'node:child_process'
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

jest.setTimeout(60_000)

const root = join(__dirname, '../..')
let home: string

beforeEach(() => {
  home = mkdtempSync(join(tmpdir(), 'troupe-register-'))
  mkdirSync(join(home, 'cli'))
  cpSync(join(root, 'cli/register.js'), join(home, 'cli/register.js'))
  cpSync(join(root, 'cli/setup'), join(home, 'cli/setup'), { recursive: true })
  cpSync(join(root, 'tsconfig.json'), join(home, 'tsconfig.json'))
  cpSync(join(root, 'package.json'), join(home, 'package.json'))
  symlinkSync(join(root, 'node_modules'), join(home, 'node_modules'))
})
afterEach(() => rmSync(home, { recursive: true, force: true }))

/** What `script` prints, and whether the TypeScript compiler was loaded for it. */
function run(script: string): { readonly out: string; readonly compiled: boolean } {
  const last = "console.log(Object.keys(require.cache).some(f => f.endsWith('typescript.js')))"
  const flags = ['-r', join(home, 'cli/register.js'), '-e', `${script}\n${last}`]
  const { stdout, stderr } = spawnSync(process.execPath, flags, { cwd: home, encoding: 'utf8', timeout: 25_000 })
  const lines = stdout.trimEnd().split('\n')
  if (lines.length < 2) throw new Error(stderr)
  return { out: lines.slice(0, -1).join('\n'), compiled: lines.at(-1) === 'true' }
}

const source = (text: string) => writeFileSync(join(home, 'a.ts'), text)

test('a source is compiled once, and again when it changes', () => {
  source('export const said: string = "one"')
  const print = "console.log(require('./a').said)"
  expect(run(print)).toEqual({ out: 'one', compiled: true })
  expect(run(print)).toEqual({ out: 'one', compiled: false })
  source('export const said: string = "two"')
  expect(run(print)).toEqual({ out: 'two', compiled: true })
})

test('other compiler options make what was kept stale', () => {
  source('export const said: string = "one"')
  run("console.log(require('./a').said)")
  writeFileSync(join(home, 'tsconfig.json'), '{ "compilerOptions": { "module": "node16", "target": "es2022" } }')
  expect(run("console.log(require('./a').said)").compiled).toBe(true)
})

test('a stack trace names the line of the source, compiled or kept', () => {
  source(
    'interface A {\n  readonly x: number\n}\n\nexport const boom = (a: A) => {\n  throw new Error(String(a.x))\n}\n',
  )
  const trace = "try { require('./a').boom({ x: 1 }) } catch (error) { console.log(error.stack.split('\\n')[1]) }"
  for (const compiled of [true, false]) {
    const reply = run(trace)
    expect(reply.out).toContain('a.ts:6:')
    expect(reply.compiled).toBe(compiled)
  }
})

test('what was kept and cut off is compiled again', () => {
  source('export const said: string = "one"')
  run("console.log(require('./a').said)")
  const cache = join(home, '.cache/ts')
  for (const file of readdirSync(cache)) writeFileSync(join(cache, file), '/* ')
  expect(run("console.log(require('./a').said)").out).toBe('one')
})

test("V8's code with a wrong byte is not run, and is written anew", () => {
  source('export const said: string = [1, 2, 3].map(n => String(n)).join()')
  const print = "console.log(require('./a').said)"
  run(print)
  const cache = join(home, '.cache/ts')
  const code = join(cache, readdirSync(cache).find(file => file.endsWith('.code'))!)
  const sound = readFileSync(code)
  writeFileSync(code, Buffer.concat([sound.subarray(0, 512), Buffer.alloc(sound.length - 512)]))
  expect(run(print).out).toBe('1,2,3')
  const anew = readFileSync(code).subarray(512)
  expect(anew.some(byte => byte !== 0)).toBe(true)
})

test('a program knows that it is the main one, finds its packages, and imports what only import loads', () => {
  mkdirSync(join(home, 'esm'))
  writeFileSync(join(home, 'esm/own.mjs'), 'export const said = import.meta.url.slice(-11)')
  const program = [
    'const isMain: boolean = require.main === module',
    "const zod: string = require.resolve('zod').slice(0, __dirname.length)",
    "import('./esm/own.mjs').then(({ said }) => console.log(isMain, zod !== '', said))",
  ].join('\n')
  source(program)
  for (const _ of ['compiled', 'kept']) {
    const flags = ['-r', join(home, 'cli/register.js'), join(home, 'a.ts')]
    const { stdout, stderr } = spawnSync(process.execPath, flags, { cwd: home, encoding: 'utf8', timeout: 25_000 })
    expect({ stdout, stderr }).toEqual({ stdout: 'true true esm/own.mjs\n', stderr: '' })
  }
})

test("V8's code is written once a source, and what is left of another source is not used", () => {
  const cache = join(home, '.cache/ts')
  const codes = () => readdirSync(cache).filter(name => name.endsWith('.code'))
  const print = "console.log(require('./a').said())"
  source('export const said = (): string => "one"')
  run(print)
  const [code] = codes()
  const first = readFileSync(join(cache, code!))
  run(print)
  expect(readFileSync(join(cache, code!)).equals(first)).toBe(true)
  // Of the same length: V8 itself tells sources apart by no more than that.
  source('export const said = (): string => "two"')
  expect(run(print).out).toBe('two')
  expect(run(print).out).toBe('two')
  expect(codes()).toEqual([code])
  expect(readFileSync(join(cache, code!)).equals(first)).toBe(false)
})
