/**
 * Environment of the drivers `oci` and `local`: a keeper (keeper/keeper.py), a process, holds it.
 *
 * in   calls of the Environment interface        out  requests to the keeper
 * Invariant: a second `stop` has no effect. A file travels as raw bytes, a directory as a tar stream, so memory does
 * not bound their size, and names inside a directory may be any bytes. An upload or a snapshot takes at most 10 min
 * (`transferMs`).
 */
import { spawn } from 'node:child_process'
import { createReadStream, createWriteStream, existsSync, mkdirSync, rmSync, statSync } from 'node:fs'
import type { Socket } from 'node:net'
import { dirname } from 'node:path'
import type { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { asError } from '../../runtime/errors'
import type { Environment, EnvironmentSpec, ExecRequest, ExecResult, ExecStatus, Snapshot } from './driver'
import { environmentError } from './errors'
import type { Keeper, RequestOptions } from './keeper'
import { feedTar, tarEnded } from './tarProcess'

/** Defaults that an image sets for the commands that run in it. */
export interface ImageDefaults {
  readonly env: Readonly<Record<string, string>>
  readonly workdir: string
  readonly user?: string
}

const usualOutputBytes = 64 * 1024
const mostOutputBytes = 16 * 1024 * 1024
/** Time in ms for the keeper's answer: to a command, after its deadline; to a kill. A restart has twice this time. */
const graceMs = 30_000
const transferMs = 600_000

export class KeptEnvironment implements Environment {
  private stopped: Promise<void> | undefined
  private snapshots = 0

  constructor(
    readonly id: string,
    readonly spec: EnvironmentSpec,
    private readonly keeper: Keeper,
    private readonly image: ImageDefaults,
    private readonly onStop: () => void,
  ) {}

  get workdir(): string {
    return this.spec.workdir ?? this.image.workdir
  }

  /** Directory of the image's files on this machine. */
  get imageRoot(): string | undefined {
    return this.keeper.config.lower.at(-1)
  }

  async exec(request: ExecRequest, signal?: AbortSignal): Promise<ExecResult> {
    const { timeoutMs, maxOutputBytes = usualOutputBytes } = request
    const stdin = Buffer.from(request.stdin ?? '')
    const header = {
      op: 'exec',
      command: request.command,
      user: request.user ?? this.image.user,
      cwd: request.cwd ?? this.workdir,
      env: { ...this.image.env, ...this.spec.env, ...request.env },
      stdinBytes: stdin.length,
      timeoutMs,
      maxOutputBytes: Math.min(maxOutputBytes, mostOutputBytes),
    }
    const { header: answer, body } = await this.ask(header, { bytes: stdin, deadlineMs: timeoutMs + graceMs, signal })
    const [out = 0, err = 0] = answer.lengths as number[]
    return {
      status: answer.status as ExecStatus,
      exitCode: answer.exitCode as number | null,
      signal: answer.signal as number | null,
      stdout: body.subarray(0, out),
      stderr: body.subarray(out, out + err),
      stdoutBytes: answer.stdoutBytes as number,
      stderrBytes: answer.stderrBytes as number,
      wallMs: answer.wallMs as number,
      ...(answer.reason === undefined ? {} : { reason: answer.reason as string }),
    }
  }

  private async ask(header: Readonly<Record<string, unknown>>, options: RequestOptions) {
    const answer = await this.keeper.request(header, options)
    if (answer.header.failed !== undefined)
      throw environmentError('environment.refused', `environment ${this.id}: ${answer.header.failed}`, {
        retriable: true,
      })
    return answer
  }

  async upload(source: string, target: string): Promise<void> {
    const info = statSync(source)
    const header = info.isDirectory()
      ? { op: 'put', path: target }
      : { op: 'putFile', path: target, size: info.size, mode: info.mode & 0o7777 }
    // Links are followed, as in Harbor: they lead to files of the task, which the environment does not have.
    const bytes = info.isDirectory()
      ? tarOf(source)
      : { stream: createReadStream(source) as Readable, done: Promise.resolve() }
    try {
      const [answer] = await Promise.all([
        this.keeper.request(header, { stream: bytes.stream, deadlineMs: transferMs }),
        bytes.done,
      ])
      if (answer.header.failed !== undefined) throw new Error(String(answer.header.failed))
    } catch (thrown) {
      throw this.notCopied(source, `${this.id}:${target}`, thrown)
    }
  }

  async download(source: string, target: string): Promise<void> {
    if (existsSync(target))
      throw environmentError('environment.transfer_failed', `${target} exists already; a download makes its target`)
    const socket = this.keeper.open({ op: 'get', path: source })
    socket.end()
    try {
      const header = await headerOf(socket)
      if (header === undefined) throw this.keeper.lost()
      if (header.failed !== undefined) throw new Error(String(header.failed))
      mkdirSync(dirname(target), { recursive: true })
      if (header.kind === 'file') {
        await pipeline(socket, createWriteStream(target, { mode: 0o600, flags: 'wx' }))
        const { size } = statSync(target)
        if (size !== header.size) throw new Error(`only ${size} of ${header.size} bytes arrived`)
      } else await untar(socket, target)
    } catch (thrown) {
      rmSync(target, { recursive: true, force: true })
      throw this.notCopied(`${this.id}:${source}`, target, thrown)
    } finally {
      socket.destroy()
    }
  }

  private notCopied(from: string, to: string, thrown: unknown) {
    const cause = asError(thrown)
    return environmentError('environment.transfer_failed', `${from} was not copied to ${to}: ${cause.message}`, {
      cause,
    })
  }

  async snapshot(): Promise<Snapshot> {
    const request = { op: 'snapshot', name: `${this.id}-${this.snapshots++}` }
    const { header } = await this.keeper.request(request, { deadlineMs: transferMs })
    if (header.failed !== undefined)
      throw environmentError('environment.snapshot_failed', `environment ${this.id}: ${header.failed}`, {
        retriable: header.retriable !== false,
      })
    return header as unknown as Snapshot
  }

  async kill(): Promise<void> {
    await this.ask({ op: 'kill' }, { deadlineMs: graceMs })
  }

  async restart(): Promise<void> {
    await this.ask({ op: 'restart' }, { deadlineMs: 2 * graceMs })
  }

  stop(): Promise<void> {
    this.stopped ??= this.keeper.stop().finally(this.onStop)
    return this.stopped
  }
}

/** Packs a directory as a tar stream. tar(1) does it, because it accepts names of any bytes. */
function tarOf(directory: string): { readonly stream: Readable; readonly done: Promise<void> } {
  const words = [
    '-C',
    directory,
    '--create',
    '--dereference',
    '--format=pax',
    '--owner=0',
    '--group=0',
    '--numeric-owner',
    '.',
  ]
  const tar = spawn('tar', words, { stdio: ['ignore', 'pipe', 'pipe'] })
  return { stream: tar.stdout, done: tarEnded(tar) }
}

/** Unpacks a tar stream of files, directories and links; links that lead out of `target` are made last, by tar(1). */
async function untar(stream: Readable, target: string): Promise<void> {
  mkdirSync(target)
  const words = ['-C', target, '--extract', '--no-same-owner', '--no-same-permissions', '--delay-directory-restore']
  const tar = spawn('tar', words, { stdio: ['pipe', 'ignore', 'pipe'] })
  await Promise.all([feedTar(stream, tar), tarEnded(tar)])
}

async function headerOf(socket: Socket): Promise<Record<string, unknown> | undefined> {
  const size = (await take(socket, 4))?.readUInt32LE(0)
  const text = size === undefined ? undefined : await take(socket, size)
  return text === undefined ? undefined : JSON.parse(text.toString())
}

/** Reads exactly `size` bytes; undefined if the stream ends earlier. */
async function take(socket: Socket, size: number): Promise<Buffer | undefined> {
  for (;;) {
    const found = socket.read(size) as Buffer | null
    if (found !== null) return found.length === size ? found : undefined
    if (socket.readableEnded || socket.destroyed) return undefined
    await new Promise<void>((resolve, reject) => {
      const done = () => {
        socket.off('readable', done).off('end', done).off('error', reject).off('close', done)
        resolve()
      }
      socket.once('readable', done).once('end', done).once('error', reject).once('close', done)
    })
  }
}
