/**
 * Starts the hosts of a training run except engines, tools and scheduler, on any bus: verifier, owner, curriculum,
 * learner.
 *
 * in   an open embedding, a plan, the test's grader and trainer
 * out  the hosts, whose facts go to the embedding's log
 * Invariant: behaviours and ports are those of a real run. Prompts, rendered tool responses, tasks and checkpoints are
 * fixed.
 */

import { type CurriculumPlan, curriculum } from '../../actors/curriculum/curriculum'
import { drawKey, drawPort } from '../../actors/curriculum/drawPort'
import { learner } from '../../actors/learning/learner'
import { learnerKey, learnerPort } from '../../actors/learning/learnerPort'
import { claimLearning } from '../../actors/ownership/claimLearning'
import { fenced } from '../../actors/ownership/fencing'
import { type Agents, ownerKey, ownerPort } from '../../actors/rollouts/agents'
import { coordinator } from '../../actors/rollouts/coordinator'
import { grouper } from '../../actors/rollouts/grouper'
import { oldestOpen, owner } from '../../actors/rollouts/owner'
import { renderPort } from '../../actors/rollouts/renderPort'
import { followedFeeds } from '../../actors/run/roles/followed'
import type { Tool } from '../../actors/tools/toolPort'
import { verifier } from '../../actors/verification/verifier'
import { type Grader, verifierKey, verifierPort } from '../../actors/verification/verifierPort'
import type { Renderer } from '../../backends/renderer/renderer'
import type { Trainer } from '../../backends/trainer/trainer'
import type { SelectionOptions } from '../../kernels'
import type { RolloutLimits } from '../../messages/facts'
import { taskId } from '../../messages/ids'
import type { Embedded } from '../../runtime/embed'
import { toolName } from './facts'

export interface ScriptedRunOptions {
  readonly plan: Pick<CurriculumPlan, 'steps' | 'groupsPerStep' | 'refillShare' | 'maxStaleness'>
  readonly groupSize: number
  readonly selection: Omit<SelectionOptions, 'seed'>
  readonly limits: RolloutLimits
  readonly grader: Grader
  /** Agents that make the rollouts' calls to the model. Absent: the coordinator requests every turn. */
  readonly agents?: Agents & { readonly isGraded: boolean }
}

/** Timeout in ms that no test reaches. */
const never = 1e9

export async function hostScripted(
  { journal, fx, log, host }: Embedded,
  options: ScriptedRunOptions,
  trainer: Pick<Trainer, 'step'>,
): Promise<void> {
  const { limits, grader } = options
  await host({
    behaviour: verifier(),
    feeds: [{ topic: 'verifications', from: 'latest' }],
    perform: verifierPort(new Map([['', grader]]), fx),
    keyOf: verifierKey,
  })
  await host({
    behaviour: owner(
      coordinator({ turnTimeoutMs: never, ...(options.agents === undefined ? {} : { agents: options.agents }) }),
      grouper({ runSeed: 1, selection: options.selection }),
    ),
    feeds: [{ topic: 'trajectories', from: 'committed' }],
    owner: 'owner',
    perform: ownerPort(renderPort(renderer, fx), options.agents),
    keyOf: ownerKey,
    oldestOpen,
  })
  const learnerEpoch = await claimLearning(journal, fx)
  const plan: CurriculumPlan = {
    ...{ run: journal.run, maxRejectedSteps: 3, learns: true, evaluation: { problems: 0, every: 0 } },
    ...options.plan,
  }
  const sampling = { temperature: 1, topP: 1, topK: 0, minP: 0, stopTokens: [] }
  await host({
    behaviour: fenced(curriculum(plan)),
    feeds: followedFeeds,
    perform: drawPort(
      { train: taskOf, evaluation: taskOf, dropped: {} },
      renderer,
      {
        ...{ seed: 7, groupSize: options.groupSize, evaluationSamples: 1, limits, sampling, evaluationTemperature: 1 },
        ...{ deadlineMs: never, tools: [toolName], shownTools: [], begins: async () => [], learnerEpoch },
      },
      fx,
    ),
    keyOf: drawKey,
  })
  const checkpoint = async () => ({ saved: Promise.resolve({ manifest: 'm', bytes: 1 }) })
  const saves = {
    save: async () => ({ digest: 'd', bytes: 1, dtype: 'float32' }),
    checkpoint,
    load: async () => {},
    reset: async () => {},
  }
  const whole = { ...saves, step: trainer.step } as unknown as Trainer
  await host({
    behaviour: fenced(learner(plan)),
    feeds: followedFeeds,
    perform: learnerPort({
      ...{ trainer: async () => whole, journal, directory: '/nowhere', grpo: {} as never },
      ...{ checkpointEvery: 1, keepVersions: 3, fx, log },
    }),
    keyOf: learnerKey,
  })
}

const taskOf = (index: number) => ({ id: taskId(`t${index}`), messages: [], truth: String(index), reward: '' })

export const scriptedTool: Tool = async () => ({
  ...{ status: 'ok', exitCode: 0, signal: null, stdout: '4', stderr: '', wallMs: 0, cpuMs: 0 },
})

const renderer = {
  prompt: async () => ({ text: '', tokens: Int32Array.of(1, 2, 3) }),
  toolResponses: async () => ({ text: 'r', tokens: Int32Array.of(8, 9) }),
} as unknown as Renderer
