/**
 * Writes what a step leaves on disk: the weights that engines load, and checkpoints. Most checkpoints are written while
 * training continues.
 *
 * in   the trainer after a step; the checkpoints that the log knows
 * out  weights.published; checkpoint.saved once a checkpoint is complete on disk; removes files that are no longer kept
 * Invariant: at most one checkpoint is being written. If writing it has failed when the next step begins, it is written
 * again first, while the trainer still has its state, and a second failure is thrown. If it fails only during the next
 * step, that step gets a checkpoint too, whatever its number. The third failure in a row is thrown. A full disk is no
 * failure: what did not fit is written again when there is room (writeRoom.ts). Weights whose files are shared by a
 * checkpoint that is kept or being written are not removed.
 */
import { readdir, rename, rm } from 'node:fs/promises'
import { join } from 'node:path'
import type { PartialCheckpoints, Trainer } from '../../backends/trainer/trainer'
import type { CheckpointSaved, WeightsPublished } from '../../messages/facts'
import type { Epoch, PolicyVersion } from '../../messages/ids'
import type { Effects } from '../../runtime/effects'
import { asError, TroupeError } from '../../runtime/errors'
import type { Log } from '../../runtime/log'
import { recordedPath } from '../../runtime/runPaths'
import type { KeptCheckpoint } from './retention'
import type { writeRoom } from './writeRoom'

export interface CheckpointsOptions {
  /** Root directory of checkpoints and weights. */
  readonly directory: string
  /** Maps a directory of weights to the URL under which other hosts fetch it. */
  readonly servedAt?: (directory: string) => string
  /** Number of newest published versions whose weights stay on disk. */
  readonly keepVersions: number
  /**
   * Makes a call to the trainer. At the third failure in a row of one kind of call, rejects with
   * `trainer.failed_repeatedly`, which is final.
   */
  readonly attempt: <T>(kind: 'save' | 'checkpoint', call: () => Promise<T>) => Promise<T>
  /** Appends the fact of a checkpoint that was completed while training continued. */
  readonly append: (fact: CheckpointSaved) => Promise<void>
  /** Makes writes wait for disk space. */
  readonly room: ReturnType<typeof writeRoom>
  readonly fx: Effects
  readonly log: Log
}

/** The state that a step left in the trainer. */
export interface Reached {
  readonly step: number
  readonly version: PolicyVersion
  readonly epoch: Epoch
}

interface Failed extends Reached {
  readonly weights: string
  readonly digest: string
}

export function checkpoints(options: CheckpointsOptions) {
  const { directory, fx, log, room } = options
  /**
   * Latest checkpoint that `saveBeside` began. `ended` resolves when it is complete or has failed, and never rejects.
   */
  let writing: { readonly version: PolicyVersion; readonly ended: Promise<void> } | undefined
  /** Latest state whose checkpoint failed; undefined once a checkpoint of it or of a later state is written. */
  let failed: Failed | undefined
  /** Error of the third failure in a row, after which no further checkpoint is begun while training continues. */
  let final: Error | undefined

  // File names carry the epoch (offset of the learner's claim): a learner that does not know that it was replaced
  // cannot overwrite its successor's files.
  const under = (name: string, epoch: Epoch) => (epoch > 0 ? `${name}-e${epoch}` : name)
  const stepName = (step: number) => `step-${String(step).padStart(6, '0')}`
  const versionName = (version: number) => `v${String(version).padStart(6, '0')}`
  const pathOf = (name: string) => join(directory, 'checkpoints', name)

  async function removeVersion(version: number): Promise<void> {
    const folder = join(directory, 'weights')
    const names = await readdir(folder).catch(() => []) // the folder is missing until the first weights are published
    const gone = names.filter(name => name === versionName(version) || name.startsWith(`${versionName(version)}-`))
    for (const name of gone) await rm(join(folder, name), { recursive: true, force: true })
  }

  /**
   * Begins a checkpoint. Resolves once the trainer may begin the next step, or the checkpoint has failed. `fact` of the
   * result resolves when the checkpoint is complete, and rejects if it fails.
   */
  async function begin(trainer: Trainer, { step, version, epoch, weights, digest }: Failed) {
    const name = under(stepName(step), epoch)
    let begun: () => void = () => {}
    const mayGoOn = new Promise<void>(resolve => {
      begun = resolve
    })
    const fact = options.attempt('checkpoint', async (): Promise<CheckpointSaved> => {
      const { saved } = await trainer.checkpoint(pathOf(name), weights)
      begun()
      const { manifest, bytes } = await saved
      room.wrote('checkpoint', bytes)
      return { type: 'checkpoint.saved', at: fx.now(), step, version, name, digest, manifest, bytes, epoch }
    })
    fact.catch(() => {}) // the caller that awaits `fact` handles the error
    await Promise.race([mayGoOn, fact.then(begun, begun)])
    return { fact }
  }

  return {
    pathOf,

    /**
     * Returns the options with which the trainer resumes a call from the checkpoint `from`, which was saved in the
     * middle of that call; no options if `from` is undefined.
     */
    resumeOf(from: KeptCheckpoint | undefined): Pick<PartialCheckpoints, 'resume' | 'resumeManifest'> {
      if (from === undefined) return {}
      const { name, manifest } = from
      return { resume: pathOf(name), ...(manifest === undefined ? {} : { resumeManifest: manifest }) }
    },

    /**
     * Publishes the trainer's weights. Removes the weights of the version that is older by `keepVersions`, unless a
     * checkpoint that is kept or being written shares their files. `kept`: the checkpoints that are kept.
     */
    async publish(trainer: Trainer, reached: Reached, kept: readonly KeptCheckpoint[]) {
      const { step, version, epoch } = reached
      const weights = join(directory, 'weights', under(versionName(version), epoch))
      const saved = await room.attempt('weights', () => options.attempt('save', () => trainer.save(weights, false)))
      room.wrote('weights', saved.bytes)
      const { digest, manifest, bytes, dtype, adapter } = saved
      const checked = manifest === undefined ? {} : { manifest }
      const served = options.servedAt === undefined ? {} : { served: options.servedAt(weights) }
      const adapters = adapter === undefined ? {} : { adapter }
      const url = recordedPath(directory, weights)
      const said = { version, step, url, ...served, digest, ...checked, bytes, dtype, ...adapters, epoch }
      const published: WeightsPublished = { type: 'weights.published', at: fx.now(), ...said }
      const old = version - options.keepVersions
      const shared = writing?.version === old || kept.some(checkpoint => checkpoint.version === old)
      if (old >= 0 && !shared) await removeVersion(old)
      return { published, weights, digest }
    },

    /** Writes a checkpoint, waits until it is complete on disk, and resolves with its fact for the caller to append. */
    async save(trainer: Trainer, state: Failed): Promise<CheckpointSaved> {
      await writing?.ended
      return room.attempt('checkpoint', async () => (await begin(trainer, state)).fact)
    },

    /**
     * Waits until the previous checkpoint has ended, then begins one that is written while training continues. Resolves
     * once the next step may begin, also if the checkpoint fails. @throws the error of an earlier checkpoint that was
     * the third failure in a row
     */
    async saveBeside(trainer: Trainer, state: Failed): Promise<void> {
      await writing?.ended
      if (final !== undefined) throw final
      const { fact } = await begin(trainer, state)
      const ended = fact.then(options.append).then(
        () => {
          failed = undefined
        },
        thrown => {
          const error = asError(thrown)
          log.warn({ err: error, step: state.step }, 'a checkpoint could not be written; it is tried again')
          failed = state
          if (error instanceof TroupeError && error.code === 'trainer.failed_repeatedly') final = error
        },
      )
      writing = { version: state.version, ended }
    },

    /** True if the latest checkpoint could not be written, so that the next step needs one, whatever its number. */
    isOwed: (): boolean => failed !== undefined,

    /**
     * Writes the checkpoint of `step` again and waits for it, if the latest checkpoint that failed is that of `step`;
     * else does nothing. The caller makes sure that the trainer still holds the state after `step` and runs no call.
     */
    async retry(trainer: Trainer, step: number): Promise<void> {
      if (failed?.step !== step) return
      await writing?.ended
      const state = failed
      const fact = await room.attempt('checkpoint', async () => (await begin(trainer, state)).fact)
      await options.append(fact)
      failed = undefined
    },

    /**
     * Prefix of the paths of checkpoints in the middle of a cold start (step 0) or a step; the trainer appends the
     * number of updates.
     */
    partialPrefix: (step: number, epoch: Epoch) =>
      pathOf(`${under(step === 0 ? 'sft' : stepName(step), epoch)}-${step === 0 ? '' : 'u'}`),

    /** Resolves once the latest checkpoint that `saveBeside` began has ended; at once if there is none. */
    ended: async (): Promise<void> => writing?.ended,

    /** Removes a checkpoint, and the weights of its version unless they are among the newest `keepVersions`. */
    async remove({ name, version }: KeptCheckpoint, newest: PolicyVersion): Promise<void> {
      const aside = pathOf(`.${name}.removed`)
      // The directory is renamed first: a directory that was removed only in part would be taken for a whole
      // checkpoint.
      await rename(pathOf(name), aside).catch(unlessMissing)
      await rm(aside, { recursive: true, force: true })
      if (version !== null && version <= newest - options.keepVersions) await removeVersion(version)
    },
  }
}

function unlessMissing(error: { readonly code?: string }): void {
  if (error.code !== 'ENOENT') throw error
}
