/**
 * The parent process of a renderer and an engine, which a test kills. Prints their pids, then generates for ever.
 * Usage: engineParent.ts MODEL_DIRECTORY
 */

import { startLocalEngine } from '../../backends/engines/local/local'
import { startRenderer } from '../../backends/renderer/rendererProcess'
import { engineId, groupId, trajectoryId } from '../../messages/ids'

async function main(modelDirectory: string): Promise<void> {
  const renderer = await startRenderer({ modelDirectory })
  const engine = await startLocalEngine({ id: engineId('e'), modelDirectory, device: 'cpu', threads: 1 })
  const sampling = { temperature: 1, topP: 1, topK: 0, minP: 0, stopTokens: [] }
  const context = Int32Array.from([5, 6, 7])
  const trajectory = trajectoryId(groupId('g'), 0)
  const common = { trajectory, context, resumedTokens: 0, maxTokens: 100, sampling, seed: 1, priority: 0, keep: false }
  process.stdout.write(`${JSON.stringify([renderer.pid, engine.pid])}\n`)
  for (let n = 0; ; n++) await engine.generate({ ...common, requestId: `r${n}` })
}

void main(process.argv[2]!)
