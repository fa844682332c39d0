/**
 * A user's empty project with the package in it: the tarball of `npm pack`, unpacked where `npm install` would put it,
 * beside the dependencies that it declares and no others, without a registry.
 * Invariant: packing rebuilds dist, so one test file packs at a time; a lock whose process is gone is nobody's.
 */
import { type SpawnSyncReturns, spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'

const root = join(__dirname, '../..')

export interface InstalledPackage {
  readonly project: string
  /** Runs in the project, in an environment without this checkout's variables. Throws unless it exits with 0 in time. */
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
  // The declared dependencies and no others: one that is used but not declared cannot be found from here.
  for (const name of [...Object.keys(dependencies), '@types/node', 'undici-types']) {
    mkdirSync(dirname(join(modules, name)), { recursive: true })
    symlinkSync(join(root, 'node_modules', name), join(modules, name))
  }
  alone(() => runIn(root, project, 'npm', ['pack', '--pack-destination', project]))
  const tarball = readdirSync(project).find(name => name.endsWith('.tgz'))!
  const run: InstalledPackage['run'] = (command, args, timeoutMs) => runIn(project, project, command, args, timeoutMs)
  run('tar', ['-xzf', tarball])
  run('mv', ['package', 'node_modules/troupe'])
  writeFileSync(join(project, 'package.json'), '{ "name": "user", "private": true }')
  return { project, run, remove: () => rmSync(project, { recursive: true, force: true }) }
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

/** Waits for the test file that packs now. Synchronous: a test file has nothing else to do meanwhile. */
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

/** The pid, or 0 for a lock that is being written, which every process may signal: it counts as alive. */
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
