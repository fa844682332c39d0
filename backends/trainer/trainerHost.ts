/**
 * Starts the trainer's ranks of one further host: a torchrun that joins the ranks of the learner's host.
 *
 * in   the trainer's options, as the learner's host has them; the number of this host
 * out  a process that is up when all ranks of all hosts are; its end
 * Invariant: the ranks follow the calls that rank 0 receives, and receive none themselves. When a rank of any host
 * ends, the ranks of all hosts end.
 */
import { type PolicyProcess, startPolicyProcess } from '../policyProcess'
import type { TrainerSettings } from './recipeOptions'
import { commandLineOf, type TrainerProcessOptions } from './trainerProcess'

export type TrainerHostOptions = Pick<
  TrainerProcessOptions,
  'modelDirectory' | 'log' | 'signal' | 'env' | 'python' | 'startTimeoutMs' | 'rankTimeoutMs'
> &
  TrainerSettings & {
    /** Number of this host: 1 or more; the learner's host is 0. */
    readonly node: number
  }

/**
 * Starts the ranks of host `node` and waits until the ranks of every host have met.
 * @throws TroupeError process.start_failed, process.start_timeout
 */
export async function startTrainerHost(options: TrainerHostOptions): Promise<Pick<PolicyProcess, 'lost' | 'close'>> {
  const { node, ...rest } = options
  return startPolicyProcess({ ...rest, serve: 'trainer', options: { ...commandLineOf(options), nodeNumber: node } })
}
