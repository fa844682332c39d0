/**
 * The role `coordinator`: an owner (coordinator and grouper) for each partition of `trajectories` that is assigned to
 * this process.
 *
 * in   requested rollouts, completed turns and tool calls, rewards; calls of agents, if the recipe has agents
 * out  requests for turns, tool calls, rewards and renderings; ends of rollouts; ends of groups, and for training groups
 *      which rollouts are selected
 */

import type { Renderer } from '../../../backends/renderer/renderer'
import { selectionOf } from '../../../config'
import { type Agents, agentsOf, noAgents, ownerKey, ownerPort } from '../../rollouts/agents'
import { coordinator } from '../../rollouts/coordinator'
import { grouper } from '../../rollouts/grouper'
import { oldestOpen, owner } from '../../rollouts/owner'
import { renderPort } from '../../rollouts/renderPort'
import type { Scope } from './scope'

export async function startCoordination(scope: Scope, renderer: Renderer): Promise<void> {
  const { config, run, fx } = scope.options
  const branch = await scope.under('coordination')
  const { agent } = config
  let agents: Agents | undefined
  if (agent !== undefined) {
    const { startAgents, directory, log } = scope.options
    if (startAgents === undefined) throw noAgents(config.name)
    const { journal } = scope.troupe
    agents = await startAgents({ run, config, directory, journal, renderer, fx, log, onFailed: scope.fail })
    branch.onClose('agents', () => agents!.close())
  }
  await branch.host({
    behaviour: owner(
      coordinator({ turnTimeoutMs: config.rollout.turnTimeoutMs, ...agentsOf(config) }),
      grouper({ runSeed: config.seed, selection: selectionOf(config) }),
    ),
    feeds: [{ topic: 'trajectories', from: 'committed' }],
    owner: `${run}.${fx.unique()}`,
    perform: ownerPort(renderPort(renderer, fx), agents),
    keyOf: ownerKey,
    oldestOpen,
  })
}
