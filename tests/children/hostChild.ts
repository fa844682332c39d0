/**
 * One of the two hosts of a run: `far` has engines and tools, `near` everything else. Usage: hostChild.ts near|far BUS DIR
 *
 * `near` prints the type of each fact that a test waits for, and at the end the audit of the log, as JSON. Both processes end
 * when the run is over.
 */
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { joinRun } from '../../actors/run/joinRun'
import type { RunOptions } from '../../actors/run/run'
import { scheduler } from '../../actors/scheduling/scheduler'
import { dispatcher } from '../../actors/tools/dispatcher'
import { runId } from '../../messages/ids'
import { loadRecipe } from '../../recipes/load/loadRecipe'
import { openBus } from '../../runtime/bus'
import { memoryBlobs } from '../../runtime/bus/blobs'
import { systemEffects } from '../../runtime/effects'
import { openTroupe } from '../../runtime/embed'
import { createLog } from '../../runtime/log'
import { audit } from '../support/audit'
import { toolName } from '../support/facts'
import { drawAt } from '../support/hashModel'
import { hostScripted, scriptedTool } from '../support/scriptedRun'
import { steppedEngine, turnOf } from '../support/steppedEngines'

const run = 'hosts'
const partitions = 2
/** Milliseconds between two steps of an engine; a step gives each running sequence one token. */
const stepMs = 5
/** Milliseconds without a status, on near's clock, after which the scheduler removes an engine. */
const silentMs = 3000
const toolMs = 50

async function near(address: string): Promise<void> {
  const say = (text: string) => process.stdout.write(`${text}\n`)
  const bus = await openBus(address)
  const onFailed = (error: Error) => {
    console.error(error)
    process.exit(1)
  }
  const troupe = await openTroupe({ bus, run, partitions, blobs: memoryBlobs(), onFailed })
  await troupe.host({
    behaviour: scheduler('kv-headroom', { silentMs }),
    feeds: [
      { topic: 'runs', from: 'oldest' },
      { topic: 'trajectories', from: 'latest' },
      { topic: 'turns', from: 'latest' },
      { topic: 'telemetry', from: 'latest' },
    ],
  })
  await troupe.host({ behaviour: dispatcher(), feeds: [{ topic: 'tool-calls', from: 'latest' }] })
  await hostScripted(
    troupe,
    {
      plan: { steps: 8, groupsPerStep: 2, refillShare: 0, maxStaleness: 1 },
      groupSize: 6,
      selection: { variant: 'none', keep: 6, rejectEqual: false },
      limits: {
        ...{ contextTokens: 2048, responseTokens: 600, turns: 3, callsPerTurn: 1 },
        ...{ toolTimeoutMs: 1000, toolResponseChars: 100 },
      },
      grader: async ({ response }) => ({ reward: response.includes('boxed{4}') ? 1 : 0, answer: '', how: 'test' }),
    },
    { step: async () => sleep(300, { loss: 0.5 }) },
  )
  for await (const { message } of troupe.entries(['runs', 'learner', 'trajectories'])) {
    say(message.type)
    if (message.type === 'run.finished') break
  }
  say(JSON.stringify(await audit(troupe.journal)))
  await troupe.close()
  await bus.close()
}

async function far(address: string, directory: string): Promise<void> {
  const modelDirectory = join(directory, 'model')
  mkdirSync(modelDirectory, { recursive: true })
  writeFileSync(join(modelDirectory, 'config.json'), '{}')
  const {
    recipe,
    config: { value: config },
  } = loadRecipe('quickstart', ['engine.count=2'])
  const common: Omit<RunOptions, 'bus'> = {
    ...{ run: runId(run), recipe, config, partitions, directory, modelDirectory },
    ...{ blobs: memoryBlobs(), resume: false, learns: true, acceptCode: true, versions: {} },
    ...{ fx: systemEffects, log: createLog('far', { level: 'error' }) },
    tools: new Map([[toolName, (...asked) => sleep(toolMs).then(() => scriptedTool(...asked))]]),
    startEngine: async id => {
      const engine = steppedEngine(id, 6, seed => turnOf(seed, 20 + Math.floor(100 * drawAt(seed, 0))))
      setInterval(() => engine.step(), stepMs)
      return engine
    },
  }
  const bus = await openBus(address)
  const joined = [
    await joinRun({ ...common, bus, role: 'inference' }),
    await joinRun({ ...common, bus, role: 'tools' }),
  ]
  await Promise.race(joined.map(({ finished }) => finished))
  for (const one of joined) await one.close()
  await bus.close()
  process.exit(0)
}

const [, , which, address, directory] = process.argv as string[]
const ended = which === 'near' ? near(address!) : far(address!, directory!)
ended.catch(thrown => {
  console.error(thrown)
  process.exit(1)
})
