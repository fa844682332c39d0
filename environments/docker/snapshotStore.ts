/**
 * Stores snapshots of containers: the files as an image in the Docker engine, from which environments start; the
 * changed files and their manifest as a layer of the store on this machine, where `replay` finds them.
 *
 * in   containers
 * out  images `troupe-snapshot:<digest>`; in the store `layers/<digest>`, its manifest, and `docker/<digest>.json`
 * Invariant: a snapshot counts as stored only if its image, its layer and its `docker/<digest>.json` exist.
 * SnapshotBound (snapshots/bound.ts) removes layers; `prune` removes the images whose layers are gone.
 */
import {
  closeSync,
  existsSync,
  linkSync,
  mkdirSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
  writeSync,
} from 'node:fs'
import { dirname, join } from 'node:path'
import { environmentError } from '../drivers/errors'
import { hasSnapshot, type Store } from '../drivers/store'
import type { Contents, Entry, Manifest } from './changes'
import { type Engine, EngineError } from './engine'

/** Image that an environment and its snapshots are based on, with the user and directory that it sets for commands. */
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
    private readonly store: Store,
  ) {
    this.directory = join(store.root, 'docker')
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
      json: { User: image.user, WorkingDir: image.workdir, Labels: { [label]: this.store.root } },
      deadlineMs,
    })
    this.keepLayer(digest, manifest)
    const file = this.file(digest)
    writeFileSync(`${file}.new`, JSON.stringify({ image, manifest: [...manifest] }))
    renameSync(`${file}.new`, file)
  }

  /**
   * Finds a snapshot by its digest. @throws TroupeError environment.no_image if its image, its layer or its
   * `docker/<digest>.json` is missing
   */
  async find(digest: string): Promise<KeptSnapshot> {
    if (await this.has(digest)) {
      const { image, manifest } = JSON.parse(readFileSync(this.file(digest), 'utf8'))
      return { image, manifest: new Map(manifest as [string, Entry][]) }
    }
    throw environmentError('environment.no_image', `no snapshot ${digest} in the engine and ${this.directory}`, {
      hint: 'it was made on another machine, or removed',
    })
  }

  /**
   * Returns a writer of files' contents to the store, which stores equal contents once. @param name name of the
   * temporary file; no other writer may use it at the same time
   */
  contents(name: string): Contents & { close(): void } {
    const beside = join(this.store.root, 'objects', `.${name}`)
    let fd: number | undefined
    const close = () => {
      if (fd !== undefined) closeSync(fd)
      fd = undefined
    }
    return {
      part(bytes) {
        fd ??= openSync(beside, 'w', 0o600)
        writeSync(fd, bytes)
      },
      end: digest => {
        fd ??= openSync(beside, 'w', 0o600)
        close()
        renameSync(beside, this.object(digest))
      },
      close() {
        close()
        rmSync(beside, { force: true })
      },
    }
  }

  /**
   * Writes the layer: the changed files whose contents the store has, and the manifest. Links and devices, and files
   * whose names are not UTF-8, are only in the manifest.
   */
  private keepLayer(digest: string, manifest: Manifest): void {
    const layer = join(this.store.root, 'layers', digest)
    const fresh = join(this.store.root, 'layers', `.docker-${process.pid}-${digest}`)
    rmSync(fresh, { recursive: true, force: true })
    mkdirSync(fresh)
    for (const { entry } of manifest.values()) {
      if (entry.kind !== 'file' || entry.sha256 === undefined || /\p{Surrogate}/u.test(entry.path)) continue
      const target = join(fresh, entry.path)
      mkdirSync(dirname(target), { recursive: true })
      // The store may have lost the content of a file that only the snapshot below this one changed.
      if (existsSync(this.object(entry.sha256))) linkSync(this.object(entry.sha256), target)
    }
    const lines = [...manifest.keys()].sort().map(path => JSON.stringify(manifest.get(path)!.entry))
    writeFileSync(`${fresh}.manifest`, lines.join('\n'))
    rmSync(layer, { recursive: true, force: true })
    renameSync(`${fresh}.manifest`, `${layer}.manifest`)
    renameSync(fresh, layer)
  }

  /**
   * Removes the Docker images whose layers have left the store. An image that a container uses stays until a later
   * call.
   */
  async prune(): Promise<void> {
    const filters = JSON.stringify({ reference: [repository], label: [`${label}=${this.store.root}`] })
    const images = await this.engine.call<{ RepoTags: string[] | null }[]>('GET', '/images/json', {
      query: { filters },
    })
    for (const tag of images.flatMap(({ RepoTags }) => RepoTags ?? [])) {
      const digest = tag.slice(repository.length + 1)
      if (hasSnapshot(this.store, digest)) continue
      rmSync(this.file(digest), { force: true })
      await this.engine.call('DELETE', `/images/${tag}`).catch((thrown: unknown) => {
        if (!(thrown instanceof EngineError) || ![404, 409].includes(thrown.status)) throw thrown
      })
    }
  }

  async has(digest: string): Promise<boolean> {
    if (!hasSnapshot(this.store, digest) || !existsSync(this.file(digest))) return false
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

  private object(digest: string): string {
    return join(this.store.root, 'objects', digest)
  }

  /** Path of a file or directory in the store's directory `docker`. */
  place(name: string): string {
    return join(this.directory, name)
  }
}

const repository = 'troupe-snapshot'
/** Name of a snapshot image's label whose value is the directory of the store that has its layer. */
const label = 'troupe.store'
export const snapshotImage = (digest: string): string => `${repository}:${digest}`
