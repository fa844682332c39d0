/**
 * One renderer process for several engines: decodes their tokens and encodes their texts.
 *
 * in   how to start a renderer        out  decode and encode, by the process that is alive
 * Invariant: the first call starts the process, and so does the first call after the process died or could not be
 * started. A renderer's death fails the calls under way, and no later ones.
 */

import type { Renderer } from '../../backends/renderer/renderer'
import { TroupeError } from '../../runtime/errors'

type Started = Pick<Renderer, 'decode' | 'encode'> & { readonly lost: Promise<Error>; close(): Promise<void> }

export interface SharedRenderer extends Pick<Renderer, 'decode' | 'encode'> {
  /** Resolves once a renderer process is alive; rejects if it cannot be started. */
  ready(): Promise<void>
  close(): Promise<void>
}

export function sharedRenderer(start: () => Promise<Started>): SharedRenderer {
  let current: Promise<Started> | undefined
  let isClosed = false

  async function living(): Promise<Started> {
    if (isClosed) {
      const message = 'the renderer of these engines is closed'
      throw new TroupeError('process.closed', { boundary: 'process', retriable: true, message })
    }
    if (current !== undefined) return current
    const starting = start()
    const forget = () => {
      if (current === starting) current = undefined
    }
    current = starting
    starting.then(({ lost }) => lost).then(forget, forget)
    return starting
  }

  return {
    ready: async () => void (await living()),
    decode: async tokens => (await living()).decode(tokens),
    encode: async text => (await living()).encode(text),
    async close() {
      isClosed = true
      await (await current?.catch(() => undefined))?.close()
    },
  }
}
