/**
 * Drivers `oci` and `local`: for each environment a keeper (the process that holds it, keeper/keeper.py), and overlayfs
 * for its files.
 *
 * in   specifications        out  environments
 * Invariant: an environment's files are three layers of an overlay: at the bottom the image (for `local`: the machine's
 * programs, read-only), then the layer of a snapshot or of an image built here, if any, and on top the environment's
 * own changes. Two environments never share a directory that they can write.
 */
import { existsSync, lstatSync, mkdirSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Effects } from '../../runtime/effects'
import { AllowlistProxy, proxyVariables } from '../network/allowlist'
import { withoutStorageLimit } from './diskLimit'
import type { DriverCapabilities, DriverName, Environment, EnvironmentDriver, EnvironmentSpec } from './driver'
import { environmentError } from './errors'
import { ForkServer } from './forkServer'
import { type ImageDefaults, KeptEnvironment } from './keptEnvironment'
import { findLayer, hasSnapshot, openStore, type Store } from './store'
import { type Owner, processStart, removeEmpty, sweep } from './sweep'

export interface DriverOptions {
  /** Run and epoch that own the environments; a later epoch's sweep removes those of an earlier one. */
  readonly run: string
  readonly epoch?: number
  readonly fx: Effects
  /** Directory of images, snapshots and environments. Default: `<TROUPE_HOME>/environments`. */
  readonly directory?: string
}

/** Parts that differ between the drivers `oci` and `local`. */
export interface Kind {
  readonly name: DriverName & ('oci' | 'local')
  readonly capabilities: () => Promise<DriverCapabilities>
  /** Returns the lowest layer of the overlay and the defaults that the image sets for commands. */
  readonly prepare: (
    spec: EnvironmentSpec,
    store: Store,
  ) => {
    readonly lower: string
    /** Digest of an image's own layer over `lower`; a snapshot of the environment holds the layer's files too. */
    readonly layer?: string
    readonly defaults: ImageDefaults
  }
}

export class KeptDriver implements EnvironmentDriver {
  readonly name: DriverName
  readonly store: Store
  private readonly environments = new Set<Environment>()
  private readonly server = new ForkServer()
  private count = 0
  private readonly me: Owner

  constructor(
    private readonly kind: Kind,
    private readonly options: DriverOptions,
  ) {
    this.name = kind.name
    this.store = openStore(options.directory)
    const { run, epoch = 0 } = options
    this.me = { pid: process.pid, startedAt: processStart(process.pid) ?? '', run, epoch }
  }

  capabilities(): Promise<DriverCapabilities> {
    return this.kind.capabilities()
  }

  async start(spec: EnvironmentSpec, signal?: AbortSignal): Promise<Environment> {
    signal?.throwIfAborted()
    const capabilities = await this.kind.capabilities()
    if (!capabilities.networks.includes(spec.network))
      throw environmentError(
        'environment.refused',
        `the driver ${this.name} offers only the networks ${capabilities.networks.join(', ')}, not ${spec.network}`,
      )
    if (spec.limits.storageMb !== undefined && !capabilities.limits.includes('storageMb'))
      throw environmentError(
        'environment.refused',
        `the driver ${this.name} cannot limit disk space here (storageMb): it needs root, loop devices and mkfs.ext4`,
        { hint: withoutStorageLimit },
      )
    const id = `${process.pid}-${this.count++}-${this.options.fx.unique().slice(0, 8)}`
    const directory = join(this.store.live, encodeURIComponent(this.me.run), String(this.me.epoch), id)
    mkdirSync(directory, { recursive: true, mode: 0o700 })
    try {
      return await this.startIn(directory, id, spec)
    } catch (thrown) {
      // Once a keeper has made cgroups, it removes the directory itself; if it cannot, the sweeper reads there what to end.
      if (!existsSync(join(directory, 'cgroups'))) rmSync(directory, { recursive: true, force: true })
      removeEmpty(this.store, this.me.run, this.me.epoch)
      throw thrown
    }
  }

  private async startIn(directory: string, id: string, spec: EnvironmentSpec): Promise<Environment> {
    writeFileSync(join(directory, 'owner.json'), JSON.stringify(this.me))
    const name = `troupe-${id}`
    const { lower, layer, defaults } = this.kind.prepare(spec, this.store)
    const top = spec.snapshot ?? layer
    const layers = top === undefined ? [] : [findLayer(this.store, top)]
    const isListed = spec.network === 'allowlist'
    const proxy = isListed ? await AllowlistProxy.open(directory, spec.allowedHosts ?? []) : undefined
    const config = {
      ...{ kind: this.kind.name, name, directory, store: this.store.root, limits: spec.limits, proxy: isListed },
      lower: [...layers, lower],
    }
    const keeper = await this.server.start(config).catch(thrown => {
      proxy?.close()
      throw thrown
    })
    writeFileSync(join(directory, 'keeper.pid'), `${keeper.pid} ${processStart(keeper.pid)}`)
    const env = isListed ? { ...proxyVariables(), ...spec.env } : spec.env
    const withProxy = env === undefined ? spec : { ...spec, env }
    const environment: Environment = new KeptEnvironment(id, withProxy, keeper, defaults, () => {
      proxy?.close()
      this.environments.delete(environment)
      removeEmpty(this.store, this.me.run, this.me.epoch)
    })
    this.environments.add(environment)
    return environment
  }

  /** True if an environment can start from this snapshot. */
  async hasSnapshot(digest: string): Promise<boolean> {
    return hasSnapshot(this.store, digest)
  }

  /** Does nothing: these drivers have their snapshots only in the store. */
  async prune(): Promise<void> {}

  /** Returns a function that says whether the lowest layer of an environment (its base image) has a path. */
  inImage(environment: Environment): (path: string) => boolean {
    const root = environment instanceof KeptEnvironment ? environment.imageRoot : undefined
    return path => root !== undefined && lstatSync(join(root, path), { throwIfNoEntry: false }) !== undefined
  }

  async fork(environment: Environment): Promise<Environment> {
    if (!(environment instanceof KeptEnvironment))
      throw environmentError(
        'environment.refused',
        `the driver ${this.name} can fork only environments that it started`,
      )
    const { digest } = await environment.snapshot()
    return this.start({ ...environment.spec, snapshot: digest })
  }

  sweep(): Promise<readonly string[]> {
    return sweep(this.store, this.me)
  }

  async close(): Promise<void> {
    const stopped = await Promise.allSettled([...this.environments].map(environment => environment.stop()))
    await this.server.close()
    for (const result of stopped) if (result.status === 'rejected') throw result.reason
  }
}
