/**
 * Measures how unsure the model was at each sampled token, by the best available measure.
 *
 * in   trajectories; a model, when entropies are to be computed        out  sampled tokens with a value in nats each
 * The measure is `entropy` when a model is given or the engine recorded the entropies of all trajectories, else
 * `surprisal`.
 * Invariant: all trajectories of one answer have the same measure.
 */
import { existsSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { nearestWeights, sampledVersions } from '../learning/publishedWeights'
import { configOf } from '../log/recordedConfig'
import type { RecordedRun } from '../log/recordedRun'
import { replayError } from '../replayError'
import type { Trajectory } from '../trajectories/trajectory'
import { modelEntropies } from './modelEntropies'
import { type Measure, recordedEntropies, type SampledToken, sampledTokens } from './topTokens'

export interface EntropyModel {
  /** Directory of the model that computes the entropies; true: the run's own weights that are still on this machine. */
  readonly model: string | true
  /** Torch device that computes the entropies. Default: cuda when torch finds it, else cpu. */
  readonly device?: string
}

export interface MeasuredTokens {
  readonly measure: Measure
  /** Sampled tokens of each trajectory, in the order of the trajectories. */
  readonly tokens: readonly (readonly SampledToken[])[]
}

/**
 * Measures all sampled tokens. Without `by`, no model is run and recorded values are used.
 * @throws TroupeError replay.bad_entropy when the run sampled greedily or `by.model` is no model directory;
 * replay.no_weights when no weights of the run are on disk; replay.no_entropies when the model's process fails;
 * config.invalid
 */
export async function measuredTokens(
  recorded: RecordedRun,
  all: readonly Trajectory[],
  by?: EntropyModel,
): Promise<MeasuredTokens> {
  const values = by === undefined ? recordedByAll(all) : await computedEntropies(recorded, all, by)
  return {
    measure: values === undefined ? 'surprisal' : 'entropy',
    tokens: all.map(one => sampledTokens(one, values?.get(one.id))),
  }
}

/** Entropies that the engine recorded, by trajectory; undefined when at least one trajectory lacks them. */
function recordedByAll(all: readonly Trajectory[]): ReadonlyMap<string, readonly number[]> | undefined {
  const values = all.map(one => [one.id, recordedEntropies(one)] as const)
  const known = values.flatMap(([id, entropies]) => (entropies === undefined ? [] : [[id, entropies] as const]))
  return known.length === all.length ? new Map(known) : undefined
}

async function computedEntropies(recorded: RecordedRun, all: readonly Trajectory[], { model, device }: EntropyModel) {
  const { temperature } = (await configOf(recorded)).rollout.sampling
  if (temperature <= 0)
    throw badEntropy('the run sampled greedily, so its token distributions have no entropy', 'leave --with-model out')
  if (typeof model === 'string') {
    const directory = resolve(model)
    if (!existsSync(join(directory, 'config.json')))
      throw badEntropy(`${directory} holds no config.json`, 'name a model directory: --with-model DIR')
    return modelEntropies(all, directory, temperature, device)
  }
  const values = new Map<string, number[]>(all.map(one => [one.id, []]))
  const sampledBy = new Map(all.map(one => [one.id as string, sampledVersions(one)]))
  for (const [directory, versions] of await directoriesOf(recorded, new Set([...sampledBy.values()].flat()))) {
    const some = all.filter(one => sampledBy.get(one.id)!.some(version => versions.has(version)))
    for (const [id, entropies] of await modelEntropies(some, directory, temperature, device)) {
      sampledBy.get(id)!.forEach((version, i) => {
        if (versions.has(version)) values.get(id)![i] = entropies[i]!
      })
    }
  }
  return values
}

/** Maps each weights directory on disk to the policy versions that it is the nearest to. */
async function directoriesOf(recorded: RecordedRun, versions: ReadonlySet<number>) {
  const directories = new Map<string, Set<number>>()
  for (const version of versions) {
    const { directory } = await nearestWeights(recorded, version)
    directories.set(directory, (directories.get(directory) ?? new Set()).add(version))
  }
  return directories
}

export const badEntropy = (message: string, hint: string) => replayError('bad_entropy', message, hint)
