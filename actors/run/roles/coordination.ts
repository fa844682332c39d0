/**
 * The role `coordinator`: an owner (coordinator and grouper) for each partition of `trajectories` that this process
 * has.
 *
 * in   requested rollouts, completed turns and tool calls, rewards
 * out  requests for turns, tool calls and rewards; closed and decided groups
 */

import type { Renderer } from '../../../backends/renderer/renderer'
import { selectionOf } from '../../../config'
import { coordinator } from '../../rollouts/coordinator'
import { grouper } from '../../rollouts/grouper'
import { oldestOpen, owner } from '../../rollouts/owner'
import { renderKey, renderPort } from '../../rollouts/renderPort'
import type { Scope } from './scope'

export async function startCoordination(scope: Scope, renderer: Renderer): Promise<void> {
  const { config, run, fx } = scope.options
  const branch = await scope.under('coordination')
  await branch.host({
    behaviour: owner(
      coordinator({ turnTimeoutMs: config.rollout.turnTimeoutMs }),
      grouper({ runSeed: config.seed, selection: selectionOf(config) }),
    ),
    feeds: [{ topic: 'trajectories', from: 'committed' }],
    owner: `${run}.${fx.unique()}`,
    perform: renderPort(renderer, fx),
    keyOf: renderKey,
    oldestOpen,
  })
}
