/** Starts the agents of a run. The gateway is loaded only for a recipe that has agents. */
import type { StartAgents } from '../actors/rollouts/agents'

export const startAgents: StartAgents = parts =>
  (require('../gateway/agents/runAgents') as typeof import('../gateway/agents/runAgents')).startRunAgents(parts)
