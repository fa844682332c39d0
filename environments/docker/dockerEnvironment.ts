/**
 * An environment that is a container of a Docker engine.
 *
 * in   calls of the Environment interface        out  requests to the Docker engine
 * Invariant: the container's first process reads its standard input, to which only Troupe's process is attached
 * (StdinOnce): when Troupe's process dies, however it dies, the input ends, the first process ends, and the engine
 * removes the container.
 */
import { statSync } from 'node:fs'
import type { Socket } from 'node:net'
import { posix } from 'node:path'
import { asError } from '../../runtime/errors'
import type { Environment, EnvironmentSpec, ExecRequest, ExecResult, Snapshot } from '../drivers/driver'
import { environmentError } from '../drivers/errors'
import { changesOf, digestOf, type Manifest } from './changes'
import { runCommand } from './command'
import { type Engine, EngineError } from './engine'
import { download, upload } from './files'
import type { DockerImage, SnapshotStore } from './snapshotStore'

/**
 * Shell command of the container's first process: waits for the end of its input, and reaps children. It starts `cat`
 * again when that is killed, so that `kill -9 -1` ends every other process and the environment lives on.
 */
export const waits = 'exec 3<&0; while :; do cat <&3 >/dev/null & wait $!; [ $? -gt 128 ] || exit 0; done'

const usualOutputBytes = 64 * 1024
const mostOutputBytes = 16 * 1024 * 1024
const snapshotMs = 600_000

export interface ContainerParts {
  readonly engine: Engine
  readonly container: string
  readonly lifeline: Socket
  /** The image that the environment and its snapshots are based on. */
  readonly image: DockerImage
  /** Changes of the snapshot that the environment began with; empty if it began from an image. */
  readonly below: Manifest
  readonly snapshots: SnapshotStore
  readonly onStop: () => void
}

export class DockerEnvironment implements Environment {
  private stopped: Promise<void> | undefined
  private isKilled = false
  /** Manifest of the latest snapshot: how its files differ from the image. Before a snapshot: `parts.below`. */
  private manifest: Manifest
  /** Number of calls of `kill` and `stop`. A command that began before one of them is `lost`, unless it succeeded. */
  private life = 0

  constructor(
    readonly id: string,
    readonly spec: EnvironmentSpec,
    private readonly parts: ContainerParts,
  ) {
    this.manifest = parts.below
    parts.lifeline.on('error', () => {}) // an error is ignored: the container has died, which its commands report
    parts.lifeline.resume().unref()
  }

  /** True if the latest snapshot has an entry for this path, and the image has the path too. */
  inImage(path: string): boolean {
    return this.manifest.get(path)?.isNew === false
  }

  async exec(request: ExecRequest, signal?: AbortSignal): Promise<ExecResult> {
    const { engine, container, image } = this.parts
    const { life } = this
    const user = request.user ?? (image.user || undefined)
    const result = this.isKilled
      ? undefined
      : await runCommand(
          engine,
          container,
          {
            ...request,
            ...(user === undefined ? {} : { user }),
            cwd: request.cwd ?? this.spec.workdir ?? image.workdir,
            env: { ...this.spec.env, ...request.env },
            maxOutputBytes: Math.min(request.maxOutputBytes ?? usualOutputBytes, mostOutputBytes),
          },
          signal,
        )
    if (result !== undefined && (life === this.life || result.status === 'ok')) return result
    return lost(result)
  }

  async upload(source: string, target: string): Promise<void> {
    const { engine, container } = this.parts
    // The engine unpacks only into a directory that exists.
    const directory = statSync(source).isDirectory() ? target : posix.dirname(target)
    const request = { command: ['mkdir', '-p', '--', directory], user: 0, cwd: '/', timeoutMs: 60_000 }
    const made = await this.exec(request)
    if (made.status !== 'ok' && made.status !== 'lost') {
      const said = made.reason ?? made.stderr.toString().trim()
      throw environmentError('environment.transfer_failed', `${this.id}:${directory} cannot be made: ${said}`)
    }
    return upload(engine, container, source, target)
  }

  download(source: string, target: string): Promise<void> {
    return download(this.parts.engine, this.parts.container, source, target)
  }

  async snapshot(): Promise<Snapshot> {
    const { engine, container, image, below, snapshots } = this.parts
    const { life } = this
    try {
      // The container is paused until the commit, so that the files that are hashed are those that are committed.
      if (!this.isKilled) await engine.call('POST', `/containers/${container}/pause`)
      const contents = snapshots.contents(this.id)
      try {
        const manifest = await changesOf(engine, container, below, contents)
        const digest = digestOf(image.id, manifest)
        await snapshots.keep(container, digest, image, manifest, snapshotMs)
        this.manifest = manifest
        const files = [...manifest.values()].filter(({ bytes }) => bytes > 0)
        return { digest, files: manifest.size, bytes: files.reduce((sum, { bytes }) => sum + bytes, 0) }
      } finally {
        contents.close()
        if (!this.isKilled && life === this.life) await engine.call('POST', `/containers/${container}/unpause`)
      }
    } catch (thrown) {
      const cause = asError(thrown)
      throw environmentError('environment.snapshot_failed', `environment ${this.id}: ${cause.message}`, {
        ...{ cause, retriable: true },
      })
    }
  }

  async kill(): Promise<void> {
    this.life++
    this.isKilled = true
    const { engine, container } = this.parts
    // With pid -1 the kernel signals every process but the sender and the first one in one step, so that no process can
    // escape by a fork.
    const command = ['/bin/sh', '-c', 'kill -9 -1']
    const { status, reason } = await runCommand(engine, container, {
      ...{ command, user: 0, cwd: '/', timeoutMs: 30_000, maxOutputBytes: 1000 },
    })
    if (status === 'timeout' || status === 'rejected')
      throw environmentError(
        'environment.refused',
        `environment ${this.id}: its processes were not killed: ${reason ?? 'the kill took more than 30 s'}`,
        {
          retriable: true,
        },
      )
  }

  async restart(): Promise<void> {
    await this.kill()
    const { engine, container } = this.parts
    const { State } = await engine.call<{ State: { Running: boolean } }>('GET', `/containers/${container}/json`)
    if (!State.Running) throw environmentError('environment.ended', `environment ${this.id} has ended`)
    this.isKilled = false
  }

  stop(): Promise<void> {
    this.stopped ??= this.remove().finally(this.parts.onStop)
    return this.stopped
  }

  private async remove(): Promise<void> {
    this.life++
    await removeContainer(this.parts.engine, this.parts.container)
    this.parts.lifeline.destroy()
  }
}

/** Removes a container with its processes and volumes. A container that is gone, or is being removed, is no error. */
export async function removeContainer(engine: Engine, container: string): Promise<void> {
  try {
    await engine.call('DELETE', `/containers/${container}`, { query: { force: 1, v: 1 } })
  } catch (thrown) {
    if (!(thrown instanceof EngineError) || (thrown.status !== 404 && thrown.status !== 409)) throw thrown
  }
}

const empty = Buffer.alloc(0)

const lost = (result: ExecResult | undefined): ExecResult => ({
  ...{ stdout: empty, stderr: empty, stdoutBytes: 0, stderrBytes: 0, wallMs: 0 },
  ...result,
  ...{ status: 'lost', exitCode: null, signal: null },
})
