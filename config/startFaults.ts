/**
 * Refuses recipes that a new run must not start with although the schema accepts them: the schema must still read such
 * recipes in the logs of earlier versions.
 *
 * in   a resolved recipe        out  its faults, each with the field and the reason
 * Invariant: pure. A resume makes no such check, since it continues with the recipe that its run was started with.
 */
import { TroupeError } from '../runtime/errors'
import type { RecipeConfig } from './schema'
import { correctionOf } from './sections/correction'
import { lossDefaults } from './sections/train'

type Fault = readonly [field: string, why: string]

/** Throws if `train.nodes` is above 1 without `train.rendezvous`. @throws TroupeError config.invalid */
export function refuseWithoutRendezvous({ name, train: { nodes, rendezvous } }: RecipeConfig): void {
  if (nodes === 1 || rendezvous !== undefined) return
  throw new TroupeError('config.invalid', {
    boundary: 'config',
    retriable: false,
    message: `recipe ${name}: train.rendezvous is missing although train.nodes is ${nodes}: the trainer's ranks on ${nodes} hosts have no address at which to meet`,
    hint: "give an address of the learner's host: --set train.rendezvous=HOST:29400",
  })
}

/**
 * Lists fields of the recipe that a new run that trains could not obey, with the reasons; empty if `train.steps` is 0.
 */
export function startFaults({ rollout, train, hardware }: RecipeConfig): readonly Fault[] {
  if (train.steps === 0) return []
  const correction = correctionOf(train)
  const faults: Fault[] = []
  const { maxStaleness } = rollout
  if (maxStaleness > 0 && correction === undefined && !train.uncorrected)
    faults.push([
      'train.correction',
      `rollout.maxStaleness ${maxStaleness} lets a step train on tokens that were sampled up to ${maxStaleness} policy versions before it, and the recipe names no correction (train.tisCap 0, no train.icepop): each of these tokens would count as if the newest policy had sampled it. Name one, such as --set 'train.correction={kind: truncated}', or say --set train.uncorrected=true, or set rollout.maxStaleness to 0`,
    ])
  if (maxStaleness > 0 && hardware?.plan?.kind === 'colocated')
    faults.push([
      'rollout.maxStaleness',
      `${maxStaleness} asks for rollouts of later steps while a step is trained, but with hardware.plan colocated the engines sleep during the step. Set rollout.maxStaleness to 0, or give the trainer GPUs of its own: --set 'hardware.plan={kind: split}'`,
    ])
  const masksTokens = correction?.kind === 'masked' || correction?.kind === 'icepop'
  if (lossDefaults[train.loss].objective === 'gspo' && masksTokens)
    faults.push([
      train.correction === undefined ? 'train.icepop' : 'train.correction',
      `gspo has one ratio per sequence, whose gradient reaches every token of the sequence, also those that '${correction.kind}' gives the weight 0: a mask of tokens would only shrink the sequence's weight. Use geometric-mask, which leaves out whole sequences, or truncated`,
    ])
  return faults
}

/** Refuses a recipe with faults (`startFaults`). @throws TroupeError config.invalid, which lists all of them */
export function refuseAtStart(config: RecipeConfig): void {
  const faults = startFaults(config)
  if (faults.length === 0) return
  throw new TroupeError('config.invalid', {
    boundary: 'config',
    retriable: false,
    message: [
      `recipe ${config.name}: ${faults.length === 1 ? 'a problem' : `${faults.length} problems`}`,
      ...faults.map(([field, why]) => `  ${field}: ${why}`),
    ].join('\n'),
    hint: 'docs/training.md lists the corrections, the losses that each works with, and the plans of the GPUs',
  })
}
