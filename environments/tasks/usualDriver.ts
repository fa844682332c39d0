/**
 * Chooses the driver of a task for which the user names none, for rollouts and for `troupe tasks` alike.
 *
 * in   a task, the images in this machine's store        out  local or oci
 * Invariant: docker is never chosen; the user names it.
 */
import { readFileSync } from 'node:fs'
import { ociMissing } from '../drivers/oci'
import { hasImage, type Store } from '../drivers/store'
import { readDockerfile } from '../images/dockerfile'
import type { Need } from './requirements'
import type { ImageSource, Task } from './task'

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
export function missingImages({ image, steps }: Task, store: Store): readonly (Need & { readonly refused: string })[] {
  const sources = [image, ...steps.filter(({ isSeparate }) => isSeparate).map(({ verifierImage }) => verifierImage)]
  const names = new Set(sources.map(baseOf).filter(name => name !== undefined))
  return [...names]
    .filter(name => !hasImage(store, name))
    .map(name => ({
      where: store.images,
      what: `the image ${name}`,
      refused: `the image ${name} is not on this machine: docker save ${name} -o FILE.tar, then troupe tasks image FILE.tar --name ${name}`,
    }))
}

/** Name of the image, or of the one that the Dockerfile starts from. */
function baseOf(image: ImageSource): string | undefined {
  if (image.kind === 'image') return image.name
  const [from] = image.kind === 'dockerfile' ? instructionsOf(image.file) : []
  return from?.kind === 'from' ? from.image : undefined
}

const onlyCopies = (image: ImageSource): boolean =>
  image.kind === 'dockerfile' && instructionsOf(image.file).every(({ kind }) => kind !== 'run')

const instructionsOf = (file: string) => readDockerfile(readFileSync(file, 'utf8'), file)
