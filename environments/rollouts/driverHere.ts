/**
 * Finds out what a driver offers on this machine. `troupe tasks check` and the start of a run use it, so that both
 * check the same.
 *
 * in   a driver's name, the store of images
 * out  why the driver cannot run here, its capabilities, the images that a task needs and the driver neither has nor can
 *      build
 * Invariant: no environment is started and no image fetched. For docker, the Docker engine is asked; an engine that
 * does not answer is a reason.
 */

import { asError } from '../../runtime/errors'
import { dockerCapabilities, dockerMissing, hasDockerImage } from '../docker/dockerDriver'
import { Engine, engineAddress } from '../docker/engine'
import type { EngineStorage } from '../docker/storageLimit'
import type { DriverCapabilities, DriverName } from '../drivers/driver'
import { localCapabilities } from '../drivers/local'
import { ociCapabilities, ociMissing } from '../drivers/oci'
import { machineMissing } from '../drivers/probe'
import type { Store } from '../drivers/store'
import type { Task } from '../tasks/task'
import { missingImages, type RefusedNeed, unbuildable } from '../tasks/usualDriver'

export interface DriverHere {
  /** Reason why the driver cannot run on this machine; absent: it can. */
  readonly missing?: string
  readonly capabilities: DriverCapabilities
  /** Lists the images that a task needs and that the driver neither has nor can build. */
  missingImages(task: Task): Promise<readonly RefusedNeed[]>
}

export async function driverHere(name: DriverName, store: Store): Promise<DriverHere> {
  if (name === 'docker') return dockerHere()
  const missing = name === 'local' ? machineMissing() : ociMissing()
  if (name === 'local')
    return {
      ...(missing === undefined ? {} : { missing }),
      capabilities: localCapabilities(),
      missingImages: async task => unbuildable(task),
    }
  return {
    ...(missing === undefined ? {} : { missing }),
    capabilities: ociCapabilities(),
    missingImages: async task => [...unbuildable(task), ...missingImages(task, store)],
  }
}

async function dockerHere(): Promise<DriverHere> {
  const address = engineAddress()
  const unusable = (missing: string | undefined): DriverHere => ({
    ...(missing === undefined ? {} : { missing }),
    capabilities: dockerCapabilities(),
    missingImages: async () => [],
  })
  if (address === undefined) return unusable(dockerMissing(address))
  try {
    const storage = await withEngine(address, engine =>
      engine.call<EngineStorage>('GET', '/info', { deadlineMs: 20_000 }),
    )
    return { capabilities: dockerCapabilities({ address, storage }), missingImages: imagesLacking(address) }
  } catch (thrown) {
    return unusable(`no Docker engine answers at ${address}: ${asError(thrown).message}`)
  }
}

const imagesLacking =
  (address: string) =>
  ({ image, steps }: Task): Promise<readonly RefusedNeed[]> =>
    withEngine(address, async engine => {
      const sources = [image, ...steps.filter(({ isSeparate }) => isSeparate).map(({ verifierImage }) => verifierImage)]
      const names = new Set(sources.flatMap(source => (source.kind === 'image' ? [source.name] : [])))
      const lacking: RefusedNeed[] = []
      for (const name of names)
        if (!(await hasDockerImage(engine, name)))
          lacking.push({
            where: address,
            what: `the image ${name}`,
            refused: `the Docker engine has no image ${name}: docker pull ${name}`,
          })
      return lacking
    })

async function withEngine<T>(address: string, use: (engine: Engine) => Promise<T>): Promise<T> {
  const engine = new Engine(address)
  try {
    return await use(engine)
  } finally {
    engine.close()
  }
}
