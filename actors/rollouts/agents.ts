/**
 * Interface of agents, the programs that drive rollouts in place of the coordinator. The folder `gateway` implements
 * it, because actors may not import the gateway.
 *
 * in   requests to drive a rollout, or to dismiss its agent
 * out  the facts of the agent's session and calls; at the agent's end rollout.finished and trajectory.release; unless
 *      the rollout failed, also reward.assigned, reward.failed or answer.verify
 */
import type { Renderer } from '../../backends/renderer/renderer'
import type { RecipeConfig } from '../../config'
import type { RunId } from '../../messages/ids'
import type { Effects } from '../../runtime/effects'
import { TroupeError } from '../../runtime/errors'
import type { Port } from '../../runtime/host/host'
import type { Journal } from '../../runtime/journal/journal'
import type { Log } from '../../runtime/log'
import type { AgentRequest, OwnerRequest, RenderRequest } from './nextActions'
import { renderKey } from './renderPort'

export interface AgentParts {
  readonly run: RunId
  readonly config: RecipeConfig
  /** Directory of the run's files; the agents' output is kept there. */
  readonly directory: string
  readonly journal: Journal
  readonly renderer: Renderer
  readonly fx: Effects
  readonly log: Log
  /** Called with the error after which no agent can be run any more. */
  readonly onFailed: (error: Error) => void
}

export interface Agents {
  readonly perform: Port<AgentRequest>
  /** Ends the agents and the gateway; their rollouts begin again in the next process of the run. */
  close(): Promise<void>
}

export type StartAgents = (parts: AgentParts) => Promise<Agents>

export const ownerKey = (request: OwnerRequest): string => {
  switch (request.kind) {
    case 'render':
      return renderKey(request)
    case 'lead':
      return `lead ${request.request.trajectory}#${request.epoch}`
    case 'dismiss':
      return `dismiss ${request.trajectory}`
  }
}

/** Returns the coordinator's option `agents`; no option if the recipe has no section `agent`. */
export const agentsOf = ({ agent }: RecipeConfig): { readonly agents?: { readonly isGraded: boolean } } =>
  agent === undefined ? {} : { agents: { isGraded: agent.reward === 'grader' } }

/**
 * Makes the port of an owner (coordinator and grouper of a partition): passes render requests to `render` and requests
 * for agents to `agents`, which is absent if the coordinator drives the rollouts.
 */
export function ownerPort(render: Port<RenderRequest>, agents?: Agents): Port<OwnerRequest> {
  return async (request, signal) => {
    if (request.kind === 'render') return render(request, signal)
    return agents?.perform(request, signal)
  }
}

export const noAgents = (recipe: string) =>
  new TroupeError('agent.not_started', {
    boundary: 'config',
    retriable: false,
    message: `recipe ${recipe} has agents that drive its rollouts (section agent), but this command starts none`,
    hint: 'use troupe train or troupe rollout, or leave out the section agent',
  })
