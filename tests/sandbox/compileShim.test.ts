/**
 * The C library of warm interpreters is built only where a process can load it: on a file system mounted noexec, as
 * Docker mounts `--tmpfs /tmp`, the sandbox runs without it instead of not at all.
 */
import { spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'

const sources = resolve(__dirname, '../../sandbox/zygote')
const directory = mkdtempSync(join(tmpdir(), 'troupe-shim-'))
mkdirSync(join(directory, 'noexec'))
afterAll(() => rmSync(directory, { recursive: true, force: true }))

const missing =
  process.platform === 'linux' && process.geteuid?.() === 0 ? undefined : 'only root can mount a file system'
if (missing !== undefined) console.warn(`the build on a file system mounted noexec is not tested: ${missing}`)

/** Builds the library from a copy of the sources that is mounted noexec; returns its path, or null. */
function buildWithin(home: string): string | null {
  const copy = join(directory, 'noexec')
  const build = `require('${copy}/compile.js').compileShim().then(file => console.log(JSON.stringify(file)))`
  const words = `mount -t tmpfs -o noexec tmpfs "$0" && cp -r "$1/compile.js" "$1/shim" "$0" && exec "$2" -e "$3"`
  const command = ['-m', 'sh', '-c', words, copy, sources, process.execPath, build]
  const { stdout, stderr } = spawnSync('unshare', command, {
    encoding: 'utf8',
    timeout: 60_000,
    env: { ...process.env, TROUPE_HOME: home },
  })
  if (stdout === '') throw new Error(stderr)
  return JSON.parse(stdout)
}

;(missing === undefined ? test : test.skip)(
  'a folder mounted noexec gets no library; the next folder does',
  () => {
    expect(buildWithin(join(directory, 'noexec/home'))).toBeNull()
    const home = join(directory, 'home')
    const built = buildWithin(home)
    expect(built).toMatch(/home\/sandbox\/shim-\w+-\w+\.so$/)
    expect(existsSync(built as string)).toBe(true)
  },
  90_000,
)
