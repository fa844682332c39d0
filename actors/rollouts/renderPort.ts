/**
 * The coordinator's port to the renderer: turns the tool responses of a turn into tokens.
 *
 * in   render requests
 * out  context.appended, under the epoch (offset of its claim) of the coordinator that asked
 * Invariant: all responses of a turn are rendered in one call, with the next generation prompt after them.
 */

import type { Renderer } from '../../backends/renderer/renderer'
import type { Effects } from '../../runtime/effects'
import type { Port } from '../../runtime/host/host'
import type { RenderRequest } from './nextActions'

export const renderKey = (request: RenderRequest): string => `${request.trajectory}#${request.turn}#${request.epoch}`

export function renderPort(renderer: Renderer, fx: Effects): Port<RenderRequest> {
  return async ({ trajectory, turn, epoch, responses }) => {
    const { text, tokens } = await renderer.toolResponses(responses)
    return {
      facts: [{ type: 'context.appended', at: fx.now(), trajectory, turn, epoch, text, tokens }],
      commands: [],
    }
  }
}
