/**
 * Measures how unsure the model was at each sampled token, by the best available measure.
 *
 * in   trajectories; a model, when entropies are to be computed        out  sampled tokens with a value in nats each
 * The measure is `entropy` when a model is given or the engine recorded the entropies of all trajectories, else
 * `surprisal`.
 * Invariant: all trajectories of one call of `measuredTokens` have the same measure.
 */
import { existsSync } from 'node:fs'
import { join, resolve } from 'node:path'
import type { CallLabel } from '../../messages/facts'
import { nearestWeights } from '../learning/publishedWeights'
import { configOf } from '../log/recordedConfig'
import type { RecordedRun } from '../log/recordedRun'
import { replayError } from '../replayError'
import { isCaptured, type Trajectory } from '../trajectories/trajectory'
import { modelEntropies } from './modelEntropies'
import { type LeftOut, leftOutOf, type SampledSequence, sampledPieces, sampledSequences } from './sampledPieces'
import { type Measure, recordedEntropies, type SampledToken, sampledTokens } from './topTokens'

export interface EntropyModel {
  /** Directory of the model that computes the entropies; true: the run's own weights that are still on this machine. */
  readonly model: string | true
  /** Torch device that computes the entropies. Default: cuda when torch finds it, else cpu. */
  readonly device?: string
}

export interface MeasuredTokens {
  readonly measure: Measure
  /** Sampled tokens of each trajectory, in the order of the trajectories; of a captured session, those trained on. */
  readonly tokens: readonly (readonly SampledToken[])[]
  /** Sampled tokens of captured sessions that are not in `tokens`. */
  readonly leftOut: LeftOut
}

/**
 * Measures all sampled tokens. Without `by`, no model is run and recorded values are used.
 * @throws TroupeError replay.bad_entropy when a trajectory was sampled greedily or `by.model` is no model directory;
 * replay.no_weights when no weights of the run are on disk; replay.no_entropies when the model's process fails;
 * config.invalid
 */
export async function measuredTokens(
  recorded: RecordedRun,
  all: readonly Trajectory[],
  by?: EntropyModel,
): Promise<MeasuredTokens> {
  const labels = all.some(isCaptured) ? (await configOf(recorded)).agent?.trains : undefined
  const pieces = all.map(one => sampledPieces(one, labels))
  const values =
    by === undefined ? recordedByAll(pieces.map(recordedEntropies)) : await computedEntropies(recorded, all, by, labels)
  const leftOut = all.map((one, i) => leftOutOf(one, pieces[i]!))
  return {
    measure: values === undefined ? 'surprisal' : 'entropy',
    tokens: pieces.map((own, i) => sampledTokens(own, values?.[i])),
    leftOut: {
      untrained: leftOut.reduce((sum, { untrained }) => sum + untrained, 0),
      copied: leftOut.reduce((sum, { copied }) => sum + copied, 0),
    },
  }
}

type Values = readonly (readonly number[])[]

/** Entropies that the engine recorded for each trajectory; undefined when at least one trajectory lacks them. */
function recordedByAll(recorded: readonly (readonly number[] | undefined)[]): Values | undefined {
  const known = recorded.filter(one => one !== undefined)
  return known.length === recorded.length ? known : undefined
}

async function computedEntropies(
  recorded: RecordedRun,
  all: readonly Trajectory[],
  { model, device }: EntropyModel,
  labels?: readonly CallLabel[],
): Promise<Values> {
  const { temperature } = (await configOf(recorded)).rollout.sampling
  const sequences = all.map(one => sampledSequences(one, temperature, labels))
  const greedy = sequences.flat().find(one => one.temperature <= 0)
  if (greedy !== undefined)
    throw badEntropy(
      `${greedy.trajectory} was sampled greedily, so its token distributions have no entropy`,
      'leave --with-model out, or name trajectories that were sampled at a temperature above 0',
    )
  const values = await entropiesOf(recorded, sequences.flat(), model, device)
  let next = 0
  return sequences.map(own => own.flatMap(() => values[next++]!))
}

function entropiesOf(
  recorded: RecordedRun,
  sequences: readonly SampledSequence[],
  model: string | true,
  device: string | undefined,
): Promise<Values> {
  if (model === true) return entropiesByOwnWeights(recorded, sequences, device)
  const directory = resolve(model)
  if (!existsSync(join(directory, 'config.json')))
    throw badEntropy(`${directory} holds no config.json`, 'name a model directory: --with-model DIR')
  return modelEntropies(sequences, directory, device)
}

/** Computes each token's entropy by the weights on disk that are the nearest to those that sampled it. */
async function entropiesByOwnWeights(
  recorded: RecordedRun,
  sequences: readonly SampledSequence[],
  device: string | undefined,
): Promise<Values> {
  const values = sequences.map((): number[] => [])
  const sampledBy = new Set(sequences.flatMap(({ versions }) => versions))
  for (const [directory, versions] of await directoriesOf(recorded, sampledBy)) {
    const some = [...sequences.keys()].filter(at => sequences[at]!.versions.some(version => versions.has(version)))
    const computed = await modelEntropies(
      some.map(at => sequences[at]!),
      directory,
      device,
    )
    some.forEach((at, k) => {
      sequences[at]!.versions.forEach((version, i) => {
        if (versions.has(version)) values[at]![i] = computed[k]![i]!
      })
    })
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
