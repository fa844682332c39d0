/**
 * Environments of a run's rollouts in this process, opened when the first one is needed.
 *
 * in   a run, its recipe        out  environments that belong to the run and to this process
 * Invariant: opening removes the environments that dead processes, of this run or another, left on this machine. Those
 * of living processes stay, since a run's executors outlive a resume of its learner. A run is identified by its name
 * and its start time, because a run on another bus may have the same name.
 */
import { environmentSettings } from '../../../config'
import type { RolloutEnvironments } from '../../../environments'
import type { AllowedVariables } from '../../../environments/tasks/variables'
import { passedOn } from '../../../runtime/secrets/credentials'
import { saidOf } from './followed'
import type { Scope } from './scope'

export interface LazyEnvironments {
  readonly open: () => Promise<RolloutEnvironments>
  /** Variables of this process that the recipe lets environments see, by name; undefined for one that is not set. */
  readonly allowed: AllowedVariables
  close(): Promise<void>
}

export function lazyEnvironments({ troupe, options }: Pick<Scope, 'troupe' | 'options'>): LazyEnvironments {
  const { fx, log, config } = options
  const { snapshotMb, live, idleMs, env } = environmentSettings(config.environments)
  const allowed = passedOn(env)
  let opened: Promise<RolloutEnvironments> | undefined
  const open = async () => {
    const facts = await saidOf(troupe.journal, ['runs'])
    const started = facts.find(fact => fact.type === 'run.started')
    // The environments module is loaded here, because most runs have no environments.
    const { RolloutEnvironments } = require('../../../environments') as typeof import('../../../environments')
    return new RolloutEnvironments({
      run: `${troupe.journal.run}.${started?.at ?? 0}`,
      epoch: 0,
      fx,
      log,
      snapshotMb,
      live,
      idleMs,
      allowed,
    })
  }
  return {
    allowed,
    open() {
      opened ??= open()
      opened.catch(() => {
        opened = undefined
      })
      return opened
    },
    close: async () => (await opened?.catch(() => undefined))?.close(),
  }
}
