/**
 * Runs one training step whose rollouts are made by agents (outside programs that call the model through the gateway):
 * the real coordinator, scheduler, learner and gateway over a bus in memory, a scripted engine, and a trainer that
 * records its batches.
 *
 * in   the recipe's section `agent`, an engine        out  the log's facts, the batches
 */
import { join } from 'node:path'
import { joinEngine } from '../../../actors/inference/joinEngine'
import { scheduler } from '../../../actors/scheduling/scheduler'
import type { Renderer } from '../../../backends/renderer/renderer'
import type { TrainSequence } from '../../../backends/trainer/trainer'
import { type RecipeConfig, recipeSchema } from '../../../config'
import { startRunAgents } from '../../../gateway/agents/runAgents'
import type { Fact } from '../../../messages/facts'
import { openMemoryBus } from '../../../runtime/bus/memory/memoryBus'
import { openTroupe } from '../../../runtime/embed'
import { createLog } from '../../../runtime/log'
import { pythonPath } from '../../../runtime/python'
import { everything } from '../audit'
import { hostScripted } from '../scriptedRun'
import { charRenderer } from './charRenderer'
import { limits } from './openTestGateway'
import { scriptedEngine } from './scriptedEngine'

const support = __dirname

type AgentInput = Partial<NonNullable<RecipeConfig['agent']>>

const configOf = (agent: AgentInput): RecipeConfig =>
  recipeSchema.parse({
    name: 'agents',
    model: { from: 'directory', path: '/m' },
    limits: { turns: 4 },
    agent: {
      ...(agent.file === undefined ? { command: [pythonPath(), join(support, 'runAgent.py')] } : {}),
      ...{ rights: 'user', deadlineMs: 20_000 },
      ...agent,
    },
  })

const selection = {
  ...{ keep: 2, minPositive: 0, minNegative: 0, positiveAbove: 0.5, rejectEqual: false, variant: 'all' },
} as never

/** Runs one step over a group of four rollouts, until the trainer has got its batch. */
export async function agentRun(
  directory: string,
  agent: AgentInput,
  { groupSize = 4, engine = scriptedEngine((_c, turn) => `answer ${turn}`), bus = openMemoryBus() } = {},
) {
  const troupe = await openTroupe({ bus, run: 'agents' })
  const { journal, fx } = troupe
  const config = configOf(agent)
  const log = createLog('agents', { level: 'silent' })
  await troupe.host({
    behaviour: scheduler('kv-headroom'),
    feeds: [
      { topic: 'runs', from: 'oldest' },
      { topic: 'trajectories', from: 'latest' },
      { topic: 'turns', from: 'latest' },
      { topic: 'telemetry', from: 'latest' },
    ],
  })
  await joinEngine(troupe, await engine.start())
  const agents = await startRunAgents({
    ...{ run: journal.run, config, directory, journal, fx, log, renderer: charRenderer() as unknown as Renderer },
    onFailed: error => {
      throw error
    },
  })
  const batches: (readonly TrainSequence[])[] = []
  await hostScripted(
    troupe,
    {
      plan: { steps: 1, groupsPerStep: 1, refillShare: 0, maxStaleness: 0 },
      ...{ groupSize, selection, limits: { ...limits, turns: 4 } },
      grader: async ({ response }) => ({ reward: response.includes('answer') ? 1 : 0, answer: response, how: 'test' }),
      agents: { ...agents, isGraded: config.agent!.reward === 'grader' },
    },
    {
      async step(sequences) {
        batches.push(sequences)
        return { loss: 0.5 }
      },
    },
  )
  const facts = async () => (await everything(journal, 'trajectories', 0)).map(entry => entry.message as Fact)
  const close = async () => {
    await agents.close()
    await troupe.close()
  }
  return { troupe, engine, agents, batches, facts, close }
}
