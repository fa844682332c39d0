/**
 * Verifies a run's files beside its log: checkpoints, published weights, the model, blobs.
 *
 * in   the facts of the topic `learner`, the run's directory
 * out  counts of what was checked, and a problem for each file that differs from its manifest or from the log
 * Invariant: reads only. A missing checkpoint or version of the weights is only counted, since retention may have
 * removed it. It is a problem if it is the newest checkpoint of a whole step, or the newest published weights, and the
 * run's directory still has the folder for them.
 */
import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { isStale } from '../../actors/ownership/fencing'
import { checkFiles, digestOf, short, weightFiles, weightsDigest } from '../../backends/weights/manifest'
import type { CheckpointSaved, LearnerFact, WeightsPublished } from '../../messages/facts'
import { pathKind, unreadable } from '../../runtime/disk/pathKind'
import { asError } from '../../runtime/errors'
import type { Entry } from '../../runtime/journal/journal'
import type { RunDirectory } from '../../runtime/runDirectory'
import { pathToday } from '../../runtime/runPaths'
import { placeText } from '../log/place'
import { checkModel, type SoundCheckpoint } from './modelOnDisk'
import type { CheckedFiles, Problem } from './verification'

interface Saved<Fact> {
  readonly fact: Fact
  readonly place: string
  /** Directory in which the checkpoint or the weights are today: the run's directory may have been moved. */
  readonly directory: string
}

/** Collects the learner's facts; `check` then reads the files. */
export function filesOnDisk(files: RunDirectory) {
  const checkpoints = new Map<string, Saved<CheckpointSaved>>()
  const weights = new Map<string, Saved<WeightsPublished>>()
  const removed = new Set<string>()
  let done = 0
  let claimed: number | undefined

  return {
    take(entry: Entry): void {
      const fact = entry.message as LearnerFact
      if (isStale(claimed, fact)) return
      const place = placeText(entry)
      switch (fact.type) {
        case 'learner.claimed':
          claimed = entry.offset
          break
        case 'checkpoint.saved':
          removed.delete(fact.name)
          checkpoints.set(fact.name, { fact, place, directory: join(files.root, 'checkpoints', fact.name) })
          break
        case 'checkpoint.removed':
          removed.add(fact.name)
          break
        case 'weights.published': {
          // The initial model (digest '') has no manifest of the run.
          if (fact.digest === '') break
          const directory = pathToday(files.root, fact.url)
          weights.set(directory, { fact, place, directory })
          break
        }
        case 'step.completed':
          done = Math.max(done, fact.step)
          break
        default:
          break
      }
    },

    async check(): Promise<{ readonly files: CheckedFiles; readonly problems: readonly Problem[] }> {
      const problems: Problem[] = []
      /** The newest checkpoint without a fault whose manifest lists a config.json. */
      let sound: SoundCheckpoint | undefined
      const counts = { checkpoints: 0, weights: 0, blobs: 0, removed: removed.size, withoutDigest: 0 }
      const compare = async <Fact extends { readonly manifest?: string; readonly digest: string }>(
        { fact, place, directory }: Saved<Fact>,
        kind: 'checkpoint' | 'weights',
      ): Promise<void> => {
        if (fact.manifest === undefined) counts.withoutDigest++
        const why = unreadable(directory, 'directory')
        if (why !== undefined) {
          problems.push({ place, kind: `${kind}-damaged`, message: `${directory} ${why}` })
          return
        }
        const checked = await checkFiles(directory, fact.manifest)
        for (const { message } of checked.faults) problems.push({ place, kind: `${kind}-damaged`, message })
        if (checked.faults.length === 0 && checked.manifest?.files === undefined && fact.digest !== '') {
          // Manifests of format 1 name no files, but the log has the digest of the weights.
          const found = await weightsDigest(directory, weightFiles(await readdir(directory)))
          if (found !== fact.digest) {
            const message = `the weights in ${directory} have the digest ${short(found)}, but the log says ${short(fact.digest)}`
            problems.push({ place, kind: `${kind}-damaged`, message })
          }
        }
        if (
          kind === 'checkpoint' &&
          checked.faults.length === 0 &&
          checked.manifest?.files?.['config.json'] !== undefined
        )
          sound = { directory, manifest: checked.manifest }
        const said = checked.manifest?.digest
        if (said !== undefined && fact.digest !== '' && said !== fact.digest) {
          const message = `${directory} has weights with the digest ${short(said)}, but the log says ${short(fact.digest)}`
          problems.push({ place, kind: `${kind}-damaged`, message })
        }
      }
      const take: typeof compare = (saved, kind) =>
        compare(saved, kind).catch(thrown => {
          const message = `${saved.directory} cannot be compared: ${asError(thrown).message}`
          problems.push({ place: saved.place, kind: `${kind}-damaged`, message })
        })
      const kept = [...checkpoints.values()].filter(({ fact }) => !removed.has(fact.name))
      const newest = kept.filter(({ fact }) => fact.updates === undefined && fact.step <= done).at(-1)
      for (const one of kept) {
        if (isThere(one.directory)) {
          counts.checkpoints++
          await take(one, 'checkpoint')
        } else if (one === newest && isThere(join(files.root, 'checkpoints'))) {
          problems.push({
            place: one.place,
            kind: 'checkpoint-missing',
            message: `the newest checkpoint of a whole step is missing: ${one.directory}`,
          })
        } else counts.removed++
      }
      const last = [...weights.values()].at(-1)
      for (const one of weights.values()) {
        if (isThere(one.directory)) {
          counts.weights++
          await take(one, 'weights')
        } else if (one === last && isThere(join(files.root, 'weights'))) {
          problems.push({
            place: one.place,
            kind: 'weights-missing',
            message: `the newest published weights are missing: ${one.directory}`,
          })
        } else counts.removed++
      }
      problems.push(...(await checkModel(files.model, sound)))
      const blobs = await checkBlobs(files.blobs)
      counts.blobs = blobs.checked
      const ofBlobs = blobs.faults.map(({ file, message }) => ({ place: file, kind: 'blob-damaged', message }))
      return { files: counts, problems: [...problems, ...ofBlobs] }
    },
  }
}

/** True if a path exists, also as something that cannot be used, such as a link that leads nowhere. */
const isThere = (path: string): boolean => pathKind(path).kind !== 'nothing'

interface BlobFault {
  readonly file: string
  readonly message: string
}

/** Compares every blob in a store of files with the digest that is its name. */
async function checkBlobs(directory: string): Promise<{ checked: number; faults: readonly BlobFault[] }> {
  const faults: BlobFault[] = []
  let checked = 0
  const fault = (file: string, why: string) => faults.push({ file, message: `${file} ${why}` })
  const list = async (path: string, named: RegExp): Promise<readonly string[]> => {
    const why = unreadable(path, 'directory')
    if (why === undefined) {
      try {
        return (await readdir(path)).filter(name => named.test(name))
      } catch (thrown) {
        fault(path, `cannot be listed: ${asError(thrown).message}`)
      }
    } else fault(path, why)
    return []
  }
  if (!isThere(directory)) return { checked, faults } // a run without large records has no blobs
  for (const folder of await list(directory, /^[0-9a-f]{2}$/)) {
    for (const name of await list(join(directory, folder), /^[0-9a-f]{62}$/)) {
      const file = join(directory, folder, name)
      const found = await digestOf(file)
      checked++
      if (found.why !== undefined) fault(file, found.why)
      else if (found.sha256 !== folder + name)
        fault(file, `has the digest ${short(found.sha256)}, not that of its name`)
    }
  }
  return { checked, faults }
}
