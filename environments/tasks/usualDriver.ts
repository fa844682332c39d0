/**
 * Chooses the driver of a task for which the user names none, for rollouts and for `troupe tasks` alike.
 *
 * in   a task, the images in this machine's store
 * out  local or oci; the images that are missing, the Dockerfiles that these two drivers cannot build
 * Invariant: docker is never chosen; the user names it.
 */
import { readFileSync } from 'node:fs'
import { relative } from 'node:path'
import { asError } from '../../runtime/errors'
import { ociMissing } from '../drivers/oci'
import { hasImage, type Store } from '../drivers/store'
import { type Instruction, readDockerfile } from '../images/dockerfile'
import type { Need } from './requirements'
import type { ImageSource, Task } from './task'

/** A need that the driver cannot meet. */
export type RefusedNeed = Need & { readonly refused: string }

/**
 * Returns local for a task without an image, and oci for one with an image. The exception: local stands in for a
 * Dockerfile without RUN if its base image is not in the store, or oci cannot run here.
 */
export function usualDriver({ image }: Pick<Task, 'image'>, store: Store): 'local' | 'oci' {
  if (image.kind === 'none') return 'local'
  const isHere = ociMissing() === undefined && hasImage(store, baseOf(image) ?? '')
  return !isHere && onlyCopies(image) ? 'local' : 'oci'
}

/** Lists the images that the driver oci needs for a task and that the store does not have. */
export function missingImages(task: Task, store: Store): readonly RefusedNeed[] {
  const names = new Set(
    sourcesOf(task)
      .map(baseOf)
      .filter(name => name !== undefined),
  )
  return [...names]
    .filter(name => !hasImage(store, name))
    .map(name => ({
      where: store.images,
      what: `the image ${name}`,
      refused: `the image ${name} is not on this machine: docker save ${name} -o FILE.tar, then troupe tasks image FILE.tar --name ${name}`,
    }))
}

/** Lists the Dockerfiles of a task that the drivers oci and local cannot build, each with the first reason. */
export function unbuildable(task: Task): readonly RefusedNeed[] {
  const files = new Set(sourcesOf(task).flatMap(source => (source.kind === 'dockerfile' ? [source.file] : [])))
  return [...files].flatMap(file => {
    const read = instructionsOf(file)
    if (!(read instanceof Error)) return []
    const refused = `${read.message}; the driver docker builds it: --driver docker of troupe tasks, --set environments.driver=docker of a run`
    return [{ where: relative(task.directory, file), what: 'an image that oci and local can build', refused }]
  })
}

const sourcesOf = ({ image, steps }: Task): readonly ImageSource[] => [
  image,
  ...steps.filter(({ isSeparate }) => isSeparate).map(({ verifierImage }) => verifierImage),
]

/** Name of the image, or of the one that the Dockerfile starts from; undefined if the Dockerfile cannot be built. */
function baseOf(image: ImageSource): string | undefined {
  if (image.kind === 'image') return image.name
  const read = image.kind === 'dockerfile' ? instructionsOf(image.file) : []
  const from = read instanceof Error ? undefined : read[0]
  return from?.kind === 'from' ? from.image : undefined
}

function onlyCopies(image: ImageSource): boolean {
  const read = image.kind === 'dockerfile' ? instructionsOf(image.file) : undefined
  return read !== undefined && !(read instanceof Error) && read.every(({ kind }) => kind !== 'run')
}

/** Instructions of a Dockerfile, or why it cannot be built here. */
function instructionsOf(file: string): readonly Instruction[] | Error {
  try {
    return readDockerfile(readFileSync(file, 'utf8'), file)
  } catch (thrown) {
    return asError(thrown)
  }
}
