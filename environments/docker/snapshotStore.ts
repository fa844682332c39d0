/**
 * Stores snapshots of containers: the files as an image in the engine, the list of changed paths as a manifest on this
 * machine.
 *
 * in   containers        out  images `troupe-snapshot:<digest>`; `<TROUPE_HOME>/environments/docker/<digest>.json`
 * Invariant: a manifest is written after its image is there, and a snapshot counts only with both.
 */
import { existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { troupeHome } from '../../runtime/home'
import { environmentError } from '../drivers/errors'
import type { Entry, Manifest } from './changes'
import { type Engine, EngineError } from './engine'

/** The image below an environment and its snapshots, with the user and the directory that it sets for commands. */
export interface DockerImage {
  readonly id: string
  readonly user: string
  readonly workdir: string
}

export interface KeptSnapshot {
  readonly image: DockerImage
  readonly manifest: Manifest
}

export class SnapshotStore {
  private readonly directory: string

  constructor(
    private readonly engine: Engine,
    directory = join(troupeHome(), 'environments'),
  ) {
    this.directory = join(directory, 'docker')
    mkdirSync(this.directory, { recursive: true, mode: 0o700 })
  }

  /** Commits the container as the snapshot `digest`, unless this snapshot exists. */
  async keep(
    container: string,
    digest: string,
    image: DockerImage,
    manifest: Manifest,
    deadlineMs: number,
  ): Promise<void> {
    if (await this.has(digest)) return
    await this.engine.call('POST', '/commit', {
      query: { container, repo: repository, tag: digest, pause: 'false' },
      json: { User: image.user, WorkingDir: image.workdir },
      deadlineMs,
    })
    const file = this.file(digest)
    writeFileSync(`${file}.new`, JSON.stringify({ image, manifest: [...manifest] }))
    renameSync(`${file}.new`, file)
  }

  /**
   * Finds a snapshot by its digest. @throws TroupeError environment.no_image if its image or its manifest is missing
   */
  async find(digest: string): Promise<KeptSnapshot> {
    if (/^[0-9a-f]{64}$/.test(digest) && (await this.has(digest))) {
      const { image, manifest } = JSON.parse(readFileSync(this.file(digest), 'utf8'))
      return { image, manifest: new Map(manifest as [string, Entry][]) }
    }
    throw environmentError('environment.no_image', `no snapshot ${digest} in the engine and ${this.directory}`, {
      hint: 'it was made on another machine, or removed',
    })
  }

  private async has(digest: string): Promise<boolean> {
    if (!existsSync(this.file(digest))) return false
    try {
      await this.engine.call('GET', `/images/${snapshotImage(digest)}/json`)
      return true
    } catch (thrown) {
      if (thrown instanceof EngineError && thrown.status === 404) return false
      throw thrown
    }
  }

  private file(digest: string): string {
    return this.place(`${digest}.json`)
  }

  /** Path of a file or directory beside the manifests. */
  place(name: string): string {
    return join(this.directory, name)
  }
}

const repository = 'troupe-snapshot'
export const snapshotImage = (digest: string): string => `${repository}:${digest}`
