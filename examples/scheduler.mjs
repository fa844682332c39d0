/** Runs the scheduler with engines of your own: it assigns six turns to two engines, each of which runs two at once. */
import { setTimeout as sleep } from 'node:timers/promises'
import { joinEngine, scheduler } from 'troupe/actors'
import { engineId, groupId, trajectoryId } from 'troupe/messages'
import { customEngine, openTroupe } from 'troupe/runtime'

const sizes = { kvTokens: 4096, blockTokens: 16, maxSequences: 2, contextTokens: 512, vocabulary: 128 }
async function generate({ context, maxTokens }) {
  await sleep(50) // stands for the time in which your model generates
  const tokens = context.slice(-maxTokens)
  return { tokens, logprobs: new Float32Array(maxTokens), text: String.fromCharCode(...tokens), finish: 'stop' }
}

const troupe = await openTroupe({ bus: 'memory:', run: 'turns', topics: { turns: 'acme.turns' } })
const commands = ['turns', 'telemetry', 'trajectories'].map(topic => ({ topic, from: 'latest' }))
const feeds = [{ topic: 'runs', from: 'oldest' }, ...commands]
await (await troupe.host({ behaviour: scheduler('kv-headroom'), feeds })).live
for (const name of ['a', 'b']) {
  await joinEngine(troupe, customEngine({ id: engineId(name), model: 'echo', ...sizes, generate }), { version: 0 })
}

const sampling = { temperature: 1, topP: 1, topK: 0, minP: 0, stopTokens: [] }
const start = { turn: 0, attempt: 0, epoch: 0, engine: null, seed: 1, resumedTokens: 0, minVersion: 0, sampling }
const lengths = { maxTokens: 4, promptTokens: 11, boundTokens: 15 }
for (let order = 0; order < 6; order++) {
  const context = Int32Array.from(Buffer.from(`repeat abc${order}`))
  const trajectory = trajectoryId(groupId(`task-${order}`), 0)
  await troupe.journal.append([{ type: 'turn.generate', trajectory, context, order, ...start, ...lengths }])
}
let open = 6
for await (const { message: fact } of troupe.entries(['trajectories'])) {
  if (fact.type !== 'turn.completed') continue
  console.log(`${fact.trajectory} on ${fact.engine}: ${fact.text}`)
  await troupe.journal.append([{ type: 'trajectory.release', trajectory: fact.trajectory }])
  if (--open === 0) break
}
await troupe.close()
