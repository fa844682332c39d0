/**
 * Copies files into and out of a container, as tar streams: the Docker engine unpacks an upload in the container, and
 * packs a download there.
 *
 * in   paths of this machine and of the container        out  copies; TroupeError environment.transfer_failed
 * Invariant: the engine resolves paths and links with the container's root as the root directory. A download leaves
 * only files, directories and links on this machine: pipes, sockets and devices are removed before it returns.
 */
import { spawn } from 'node:child_process'
import { createWriteStream, type Dirent, existsSync, mkdirSync, readdirSync, rmSync, statSync } from 'node:fs'
import { basename, dirname, posix } from 'node:path'
import type { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { asError } from '../../runtime/errors'
import { environmentError } from '../drivers/errors'
import { feedTar, tarEnded } from '../drivers/tarProcess'
import { type Engine, EngineError } from './engine'

interface PathStat {
  readonly name: string
  readonly size: number
  /** Go's file mode: the kind in the upper bits, the permissions in the lower nine. */
  readonly mode: number
  readonly linkTarget: string
}

const transferMs = 600_000
const isDirectory = ({ mode }: PathStat) => Math.floor(mode / 2 ** 31) % 2 === 1
const isLink = ({ mode }: PathStat) => Math.floor(mode / 2 ** 27) % 2 === 1
const isPlain = ({ mode }: PathStat) => Math.floor(mode / 2 ** 18) === 0

/**
 * Copies a file, or the contents of a directory. Links of this machine are followed: the container lacks their targets.
 */
export async function upload(engine: Engine, container: string, source: string, target: string): Promise<void> {
  const from = statSync(source)
  const [directory, names, rename] = from.isDirectory()
    ? [source, readdirSync(source, { encoding: 'buffer' }), []]
    : [
        dirname(source),
        [Buffer.from(basename(source))],
        [`--transform=flags=r;s|.*|${quoted(posix.basename(target))}|`],
      ]
  const where = from.isDirectory() ? target : posix.dirname(target)
  const list = Buffer.concat(names.flatMap(name => [Buffer.from('./'), name, Buffer.from([0])]))
  const words = [
    ...['-C', directory, '--create', '--dereference', '--format=pax', '--owner=0', '--group=0', '--numeric-owner'],
    ...[...rename, '--null', '--verbatim-files-from', '--files-from=-'],
  ]
  const tar = spawn('tar', words, { stdio: ['pipe', 'pipe', 'pipe'] })
  tar.stdin.on('error', () => {}) // an error is ignored: tar's exit code reports it
  tar.stdin.end(list)
  const request = { query: { path: where }, stream: tar.stdout as Readable, deadlineMs: transferMs }
  try {
    const sent = engine.call('PUT', `/containers/${container}/archive`, request)
    await Promise.all([sent, tarEnded(tar)])
  } catch (thrown) {
    throw notCopied(source, `${container.slice(0, 12)}:${target}`, thrown)
  }
}

/** Copies a file or a directory to a path of this machine that does not exist yet. */
export async function download(engine: Engine, container: string, source: string, target: string): Promise<void> {
  if (existsSync(target))
    throw environmentError('environment.transfer_failed', `${target} exists already; a download makes its target`)
  try {
    const [path, stat] = await resolved(engine, container, source)
    const stream = await engine.raw('GET', `/containers/${container}/archive`, {
      query: { path },
      deadlineMs: transferMs,
    })
    mkdirSync(dirname(target), { recursive: true })
    if (isDirectory(stat)) return await unpack(stream, target)
    if (!isPlain(stat)) throw new Error(`${source} is neither a file nor a directory`)
    const tar = spawn('tar', ['--extract', '--to-stdout'], { stdio: ['pipe', 'pipe', 'pipe'] })
    const written = pipeline(tar.stdout, createWriteStream(target, { mode: 0o600, flags: 'wx' }))
    await Promise.all([feedTar(stream, tar), written, tarEnded(tar)])
    const { size } = statSync(target)
    if (size !== stat.size) throw new Error(`only ${size} of ${stat.size} bytes arrived`)
  } catch (thrown) {
    rmSync(target, { recursive: true, force: true })
    throw notCopied(`${container.slice(0, 12)}:${source}`, target, thrown)
  }
}

/** Follows links at the end of a path inside the container. @throws Error at the 40th link */
async function resolved(engine: Engine, container: string, path: string): Promise<readonly [string, PathStat]> {
  let at = path
  for (let links = 0; links < 40; links++) {
    const stat = await statOf(engine, container, at)
    if (!isLink(stat)) return [at, stat]
    at = posix.resolve(posix.dirname(at), stat.linkTarget)
  }
  throw new Error(`${path}: too many links`)
}

async function statOf(engine: Engine, container: string, path: string): Promise<PathStat> {
  let answer: Awaited<ReturnType<Engine['raw']>>
  try {
    answer = await engine.raw('HEAD', `/containers/${container}/archive`, { query: { path } })
  } catch (thrown) {
    // A HEAD has no body, so the engine's reason is lost.
    if (thrown instanceof EngineError && thrown.status === 404) throw new Error(`${path}: No such file or directory`)
    throw thrown
  }
  answer.resume()
  return JSON.parse(Buffer.from(String(answer.headers['x-docker-container-path-stat']), 'base64').toString())
}

async function unpack(stream: Readable, target: string): Promise<void> {
  mkdirSync(target)
  const words = ['-C', target, '--extract', '--strip-components=1', '--no-same-owner', '--no-same-permissions']
  const tar = spawn('tar', [...words, '--delay-directory-restore'], { stdio: ['pipe', 'ignore', 'pipe'] })
  await Promise.all([feedTar(stream, tar), tarEnded(tar)])
  removeSpecial(Buffer.from(target))
}

/** Removes pipes, sockets and devices: a program that opened a pipe which the agent made would wait forever. */
function removeSpecial(directory: Buffer): void {
  for (const { name, ...kind } of entriesOf(directory)) {
    const path = Buffer.concat([directory, Buffer.from('/'), name])
    if (kind.isDirectory) removeSpecial(path)
    else if (kind.isSpecial) rmSync(path as never)
  }
}

/**
 * Lists a directory with names as bytes, since they need not be UTF-8. Node's types lack this form, hence the casts.
 */
function entriesOf(directory: Buffer) {
  const options = { withFileTypes: true, encoding: 'buffer' } as never
  const entries = readdirSync(directory, options) as unknown as readonly (Omit<Dirent, 'name'> & { name: Buffer })[]
  return entries.map(entry => ({
    name: entry.name,
    isDirectory: entry.isDirectory(),
    isSpecial: !(entry.isDirectory() || entry.isFile() || entry.isSymbolicLink()),
  }))
}

const quoted = (name: string) => name.replaceAll(/[\\|&]/g, word => `\\${word}`)

function notCopied(from: string, to: string, thrown: unknown) {
  const cause = asError(thrown)
  return environmentError('environment.transfer_failed', `${from} was not copied to ${to}: ${cause.message}`, { cause })
}
