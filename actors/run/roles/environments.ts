/**
 * Environments of a run's rollouts in this process, opened when the first is needed.
 *
 * in   a run, its recipe        out  environments that belong to the run and to this process
 * Invariant: opening removes what processes that are dead left on this machine, of this run or another. Environments of living
 * processes stay: a learner's resume does not replace the executors of a run. The time of
 * the run's start tells it apart from runs of the same name on another bus.
 */
import { environmentSettings } from '../../../config'
import type { RolloutEnvironments } from '../../../environments'
import { saidOf } from './followed'
import type { Scope } from './scope'

export interface LazyEnvironments {
  readonly open: () => Promise<RolloutEnvironments>
  readonly allowed: Readonly<Record<string, string | undefined>>
  close(): Promise<void>
}

export function lazyEnvironments({ troupe, options }: Pick<Scope, 'troupe' | 'options'>): LazyEnvironments {
  const { fx, log, config } = options
  const { snapshotMb, live, idleMs, env } = environmentSettings(config.environments)
  const allowed = Object.fromEntries(env.map(name => [name, process.env[name]]))
  let opened: Promise<RolloutEnvironments> | undefined
  const open = async () => {
    const facts = await saidOf(troupe.journal, ['runs'])
    const started = facts.find(fact => fact.type === 'run.started')
    // Loaded here, because most runs have no environments.
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
