/**
 * Driver `docker`: containers of a Docker engine, over its HTTP API (DOCKER_HOST, or the default socket).
 *
 * in   specifications, each with an image that the Docker engine has or a snapshot        out  environments
 * Invariant: the driver never pulls an image. A container gets the same Linux capabilities as an environment of the
 * driver `oci`, Docker's own seccomp profile, and labels that name the run, the epoch and the process that own it.
 */
import { readFileSync } from 'node:fs'
import { hostname } from 'node:os'
import { withoutStorageLimit } from '../drivers/diskLimit'
import type { DriverCapabilities, Environment, EnvironmentDriver, EnvironmentSpec } from '../drivers/driver'
import { environmentError } from '../drivers/errors'
import type { DriverOptions } from '../drivers/keptDriver'
import { openStore, type Store } from '../drivers/store'
import { processStart } from '../drivers/sweep'
import { proxyVariables } from '../network/allowlist'
import { DockerEnvironment, removeContainer, waits } from './dockerEnvironment'
import { Engine, EngineError, engineAddress } from './engine'
import { canForward, type Forwarder, openForwarder } from './forwarder'
import { type DockerImage, SnapshotStore, snapshotImage } from './snapshotStore'
import { type EngineStorage, storageLimitMissing } from './storageLimit'

/**
 * Capabilities of a container, the same as in keeper/kernel.py: Docker's default without NET_RAW, MKNOD and
 * AUDIT_WRITE.
 */
const capabilities = [
  ...['CHOWN', 'DAC_OVERRIDE', 'FOWNER', 'FSETID', 'KILL', 'SETGID', 'SETUID', 'SETPCAP', 'NET_BIND_SERVICE'],
  ...['SYS_CHROOT', 'SETFCAP'],
]
const label = 'troupe.environment'

/**
 * Returns why this machine has no Docker engine to use; undefined if an address is known, whether or not an engine
 * answers there.
 */
export const dockerMissing = (address = engineAddress()): string | undefined =>
  address === undefined ? 'no Docker engine: DOCKER_HOST is not set and /var/run/docker.sock is not there' : undefined

/** Says what the driver offers. @param engine address and storage of the Docker engine; absent: none answers */
export function dockerCapabilities(engine?: {
  readonly address: string
  readonly storage: EngineStorage
}): DriverCapabilities {
  const why = engine === undefined ? 'no engine answers' : storageLimitMissing(engine.storage, engine.address)
  return {
    driver: 'docker',
    images: ['image', 'dockerfile'],
    networks: ['no-network', 'public', ...(canForward() ? ['allowlist' as const] : [])],
    limits: ['cpus', 'memoryMb', 'processes', ...(why === undefined ? ['storageMb' as const] : [])],
    ...(why === undefined ? {} : { whyNoStorageLimit: why }),
    users: true,
    snapshots: true,
  }
}

/** True if the Docker engine has the image. @throws Error if the engine does not answer */
export async function hasDockerImage(engine: Engine, name: string): Promise<boolean> {
  try {
    await engine.call('GET', `/images/${name}/json`)
    return true
  } catch (thrown) {
    if (thrown instanceof EngineError && thrown.status === 404) return false
    throw thrown
  }
}

/** Makes the driver. @throws TroupeError environment.unavailable if no engine's address is known */
export function dockerDriver(options: DriverOptions): DockerDriver {
  const address = engineAddress()
  if (address === undefined)
    throw environmentError('environment.unavailable', `the driver docker cannot run here: ${dockerMissing(address)}`, {
      hint: 'start Docker, or give its address: DOCKER_HOST=unix:///PATH',
    })
  return new DockerDriver(new Engine(address), address, options)
}

export class DockerDriver implements EnvironmentDriver {
  readonly name = 'docker'
  readonly store: Store
  private readonly environments = new Set<Environment>()
  private readonly snapshots: SnapshotStore
  private readonly owner: Readonly<Record<string, string>>
  private storage: EngineStorage | undefined
  private count = 0

  constructor(
    readonly engine: Engine,
    private readonly address: string,
    private readonly options: DriverOptions,
  ) {
    this.store = openStore(options.directory)
    this.snapshots = new SnapshotStore(engine, this.store)
    const { run, epoch = 0 } = options
    this.owner = {
      ...{ 'troupe.run': run, 'troupe.epoch': String(epoch), 'troupe.pid': String(process.pid) },
      ...{ 'troupe.started': processStart(process.pid) ?? '', 'troupe.boot': bootId() },
    }
  }

  async capabilities(): Promise<DriverCapabilities> {
    this.storage ??= await this.engine.call<EngineStorage>('GET', '/info')
    return dockerCapabilities({ address: this.address, storage: this.storage })
  }

  async start(spec: EnvironmentSpec, signal?: AbortSignal): Promise<Environment> {
    signal?.throwIfAborted()
    const { networks, whyNoStorageLimit } = await this.capabilities().catch(thrown => {
      throw failed(thrown, 'the driver docker')
    })
    if (!networks.includes(spec.network))
      throw environmentError(
        'environment.refused',
        `the driver docker offers only the networks ${networks.join(', ')} here, not ${spec.network}`,
        { hint: 'an allowlist needs Linux, root, and a Docker engine behind a Unix socket' },
      )
    const { cpus, memoryMb, processes, storageMb } = spec.limits
    if (storageMb !== undefined && whyNoStorageLimit !== undefined) throw noStorageLimit(whyNoStorageLimit)
    const { engine, snapshots } = this
    const kept = spec.snapshot === undefined ? undefined : await snapshots.find(spec.snapshot)
    const image = kept?.image ?? (await this.image(spec.image))
    const id = `${process.pid}-${this.count++}-${this.options.fx.unique().slice(0, 8)}`
    const bytes = memoryMb * 1024 * 1024
    let container: string | undefined
    let forwarder: Forwarder | undefined
    const isListed = spec.network === 'allowlist'
    try {
      const created = await engine.call<{ Id: string }>('POST', '/containers/create', {
        query: { name: `troupe-${id}` },
        json: {
          Image: spec.snapshot === undefined ? image.id : snapshotImage(spec.snapshot),
          ...{ Hostname: 'environment', User: '0:0', WorkingDir: '/', Entrypoint: ['/bin/sh', '-c', waits], Cmd: [] },
          ...{ OpenStdin: true, StdinOnce: true, AttachStdin: true, Healthcheck: { Test: ['NONE'] } },
          Labels: { ...this.owner, [label]: id },
          HostConfig: {
            AutoRemove: true,
            NetworkMode: spec.network === 'public' ? 'bridge' : 'none',
            ...{ Memory: bytes, MemorySwap: bytes, PidsLimit: processes + firstProcesses },
            ...(cpus === undefined ? {} : { NanoCpus: Math.round(cpus * 1e9) }),
            ...(storageMb === undefined ? {} : { StorageOpt: { size: `${storageMb}M` } }),
            ...{ CapDrop: ['ALL'], CapAdd: capabilities, ShmSize: 64 * 1024 * 1024 },
          },
        },
        signal,
      })
      container = created.Id
      const lifeline = await engine.hijack(`/containers/${container}/attach`, { query: { stream: 1, stdin: 1 } })
      await engine.call('POST', `/containers/${container}/start`)
      if (isListed)
        forwarder = await openForwarder(engine, container, snapshots.place(`proxy-${id}`), spec.allowedHosts ?? [])
      const onStop = () => {
        forwarder?.close()
        this.environments.delete(environment)
      }
      const withProxy = isListed ? { ...spec, env: { ...proxyVariables(), ...spec.env } } : spec
      const environment: Environment = new DockerEnvironment(id, withProxy, {
        ...{ engine, container, lifeline, image, snapshots, onStop },
        below: kept?.manifest ?? new Map(),
      })
      this.environments.add(environment)
      return environment
    } catch (thrown) {
      forwarder?.close()
      if (container !== undefined) await removeContainer(engine, container).catch(() => {})
      if (thrown instanceof EngineError && thrown.message.includes('storage-opt'))
        throw noStorageLimit(`the Docker engine says: ${thrown.message}`)
      throw failed(thrown, id)
    }
  }

  /**
   * Looks up the image's id, user and directory. @throws TroupeError environment.no_image if the task names no image,
   * the Docker engine lacks it, or it declares volumes; environment.start_failed for other answers of the engine
   */
  private async image(name: string | undefined): Promise<DockerImage> {
    if (name === undefined)
      throw environmentError('environment.no_image', 'the driver docker needs an image, and the task names none')
    try {
      const { Id, Config } = await this.engine.call<{
        Id: string
        Config: { User?: string; WorkingDir?: string; Volumes?: object | null } | null
      }>('GET', `/images/${name}/json`)
      const volumes = Object.keys(Config?.Volumes ?? {})
      if (volumes.length > 0)
        throw environmentError(
          'environment.no_image',
          `the image '${name}' declares volumes (${volumes.join(', ')}), whose files no snapshot would hold`,
          { hint: 'build it without VOLUME' },
        )
      return { id: Id, user: Config?.User ?? '', workdir: Config?.WorkingDir || '/' }
    } catch (thrown) {
      if (!(thrown instanceof EngineError) || thrown.status !== 404) throw failed(thrown, name)
      throw environmentError('environment.no_image', `the Docker engine has no image '${name}'`, {
        hint: `docker pull ${name}; nothing is fetched by itself, so that the image is the one that you chose`,
      })
    }
  }

  /** True if an environment can start from this snapshot. */
  hasSnapshot(digest: string): Promise<boolean> {
    return this.snapshots.has(digest)
  }

  /** Removes the Docker images, and the manifests, of snapshots whose layers have left the store. */
  prune(): Promise<void> {
    return this.snapshots.prune()
  }

  /** Returns a function that says whether the image below an environment has a path that the environment changed. */
  inImage(environment: Environment): (path: string) => boolean {
    return path => environment instanceof DockerEnvironment && environment.inImage(path)
  }

  async fork(environment: Environment): Promise<Environment> {
    if (!(environment instanceof DockerEnvironment))
      throw environmentError('environment.refused', 'the driver docker can fork only environments that it started')
    const { digest } = await environment.snapshot()
    return this.start({ ...environment.spec, snapshot: digest })
  }

  /**
   * Removes containers of dead processes of this machine, and of earlier epochs of this run. It cannot see processes of
   * other machines, so their containers are removed only if they belong to an earlier epoch of this run.
   */
  async sweep(): Promise<readonly string[]> {
    const found = await this.engine.call<{ Id: string; Labels: Record<string, string> }[]>('GET', '/containers/json', {
      query: { all: 1, filters: JSON.stringify({ label: [label] }) },
    })
    const { run, epoch = 0 } = this.options
    const removed: string[] = []
    for (const { Id, Labels } of found) {
      const isReplaced = Labels['troupe.run'] === run && Number(Labels['troupe.epoch']) < epoch
      const isDead =
        Labels['troupe.boot'] === bootId() && processStart(Number(Labels['troupe.pid'])) !== Labels['troupe.started']
      if (!isReplaced && !isDead) continue
      await removeContainer(this.engine, Id)
      removed.push(Labels[label] as string)
    }
    return removed
  }

  async close(): Promise<void> {
    await Promise.all([...this.environments].map(environment => environment.stop()))
    this.engine.close()
  }
}

/** Number of processes that keep the container alive, beyond the task's limit: the shell and `cat`. */
const firstProcesses = 2

/**
 * Returns an id of this machine's present boot, by which a recorded pid is distinguished from one of another machine or
 * boot.
 */
function bootId(): string {
  try {
    return readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim()
  } catch {
    return hostname()
  }
}

const noStorageLimit = (why: string) =>
  environmentError('environment.refused', `the driver docker cannot limit disk space here (storageMb): ${why}`, {
    hint: `the limit needs a Docker engine on this machine, with the storage driver overlay2 over xfs mounted with pquota; ${withoutStorageLimit}`,
  })

function failed(thrown: unknown, what: string) {
  if (thrown instanceof EngineError)
    return environmentError('environment.start_failed', `${what}: the Docker engine says: ${thrown.message}`)
  if (thrown instanceof Error && 'syscall' in thrown)
    return environmentError(
      'environment.unavailable',
      `${what}: the Docker engine does not answer, or a file cannot be used: ${thrown.message}`,
      { cause: thrown, retriable: true },
    )
  return thrown
}
