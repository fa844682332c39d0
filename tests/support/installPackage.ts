/**
 * Installs the package into an empty project, as a user would: unpacks the tarball of `npm pack` into node_modules and
 * links the dependencies that the package declares, and no others. No registry is used.
 * Packing compiles everything, so the tarball is kept in .cache/package under the digest of the sources.
 * Invariant: one test file packs at a time, since packing rebuilds dist; a lock file whose process is dead is removed.
 */
import { type SpawnSyncReturns, spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'

const root = join(__dirname, '../..')
const kept = join(root, '.cache/package')
const { filesBelow } = require('../runner/files') as { filesBelow(root: string): string[] }

export interface InstalledPackage {
  readonly project: string
  /**
   * Runs a command in the project without this checkout's environment variables. Throws unless it exits with 0 in time.
   */
  run(command: string, args: readonly string[], timeoutMs?: number): SpawnSyncReturns<string>
  remove(): void
}

export function installPackage(): InstalledPackage {
  const project = mkdtempSync(join(tmpdir(), 'troupe-package-'))
  const modules = join(project, 'node_modules')
  mkdirSync(modules)
  const { dependencies } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as {
    readonly dependencies: Readonly<Record<string, string>>
  }
  // Only declared dependencies are linked, so that using an undeclared one fails.
  for (const name of [...Object.keys(dependencies), '@types/node', 'undici-types']) {
    mkdirSync(dirname(join(modules, name)), { recursive: true })
    symlinkSync(join(root, 'node_modules', name), join(modules, name))
  }
  const tarball = packed(project)
  const run: InstalledPackage['run'] = (command, args, timeoutMs) => runIn(project, project, command, args, timeoutMs)
  run('tar', ['-xzf', tarball])
  run('mv', ['package', 'node_modules/troupe'])
  writeFileSync(join(project, 'package.json'), '{ "name": "user", "private": true }')
  return { project, run, remove: () => rmSync(project, { recursive: true, force: true }) }
}

/** Puts the tarball of `npm pack` into the project, packed from the present sources by this test file or an earlier one. */
function packed(project: string): string {
  const folder = join(kept, digestOfSources())
  const tarballIn = (place: string) => readdirSync(place).find(name => name.endsWith('.tgz'))!
  alone(() => {
    if (existsSync(folder)) return
    runIn(root, project, 'npm', ['pack', '--pack-destination', project])
    rmSync(kept, { recursive: true, force: true })
    mkdirSync(`${folder}.new`, { recursive: true })
    copyFileSync(join(project, tarballIn(project)), join(`${folder}.new`, tarballIn(project)))
    renameSync(`${folder}.new`, folder)
  })
  const tarball = tarballIn(folder)
  copyFileSync(join(folder, tarball), join(project, tarball))
  return tarball
}

/** Digest of every file that the package can be made of. */
function digestOfSources(): string {
  const digest = createHash('sha256')
  for (const file of filesBelow(root).filter(name => !/^(tests|policy\/tests)\//.test(name)))
    digest
      .update(`${file}\0`)
      .update(readFileSync(join(root, file)))
      .update('\0')
  return digest.digest('hex').slice(0, 32)
}

function runIn(cwd: string, project: string, command: string, args: readonly string[], timeoutMs = 240_000) {
  const clean = Object.entries(process.env).filter(([name]) => !/^(TS_NODE|NODE_OPTIONS|npm_|TROUPE_)/.test(name))
  const env = { ...Object.fromEntries(clean), TROUPE_HOME: join(project, 'home') }
  const reply = spawnSync(command, args, { cwd, env, encoding: 'utf8', timeout: timeoutMs })
  if (reply.status !== 0) {
    const how = reply.status ?? reply.signal ?? reply.error?.message
    throw new Error(`${command} ${args.join(' ')} ended with ${how}\n${reply.stdout}\n${reply.stderr}`)
  }
  return reply
}

/**
 * Runs `work` while no other test file packs. Blocks the process, since a test file has nothing else to do meanwhile.
 */
function alone(work: () => void): void {
  const lock = join(tmpdir(), `troupe-pack-${createHash('sha256').update(root).digest('hex').slice(0, 16)}.lock`)
  const deadline = performance.now() + 200_000
  while (!taken(lock)) {
    if (performance.now() > deadline) throw new Error(`${lock} was not given back`)
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 100)
  }
  try {
    work()
  } finally {
    rmSync(lock, { force: true })
  }
}

function taken(lock: string): boolean {
  try {
    writeFileSync(lock, String(process.pid), { flag: 'wx' })
    return true
  } catch {
    if (!isAlive(holderOf(lock))) rmSync(lock, { force: true })
    return false
  }
}

/** Returns the pid in the lock file; 0 while the file is being written, and then `isAlive` returns true. */
function holderOf(lock: string): number {
  try {
    return Number(readFileSync(lock, 'utf8'))
  } catch {
    return 0
  }
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM'
  }
}
