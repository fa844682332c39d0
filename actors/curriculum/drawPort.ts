/**
 * The data's side of the curriculum: tasks become prompts.
 *
 * in   draw requests        out  rollout.requested for every member of every group; once these are durable, curriculum.advanced
 * Invariant: a group's task, its members' seeds and their start order follow from the request alone, so that a draw that
 * is made twice yields the same facts. A draw that is told is one whose requests are all in the log.
 */

import type { Renderer } from '../../backends/renderer/renderer'
import type { TaskSource } from '../../config'
import type { ToolSchema } from '../../config/toolSchema'
import type { Fact, RolloutLimits, RolloutRequested, Sampling, Task } from '../../messages/facts'
import { type Epoch, trajectoryId } from '../../messages/ids'
import { deriveSeed, type Effects } from '../../runtime/effects'
import { TroupeError } from '../../runtime/errors'
import type { Port } from '../../runtime/host/host'
import type { DrawRequest } from './curriculum'

export interface DrawOptions {
  readonly seed: number
  /** 2G. */
  readonly groupSize: number
  readonly evaluationSamples: number
  readonly limits: RolloutLimits
  /** The longest prompt that is wanted. Default: what the context holds. */
  readonly promptTokens?: number | undefined
  /** Of the recipe's stages, with the rollouts that each measures of a problem. */
  readonly stages?: readonly { readonly limits: RolloutLimits; readonly samples: number }[]
  readonly sampling: Sampling
  readonly evaluationLimits?: RolloutLimits
  readonly evaluationTemperature: number
  readonly deadlineMs: number
  /** Tools that the model may call, and those among them that its prompt describes. */
  readonly tools: readonly string[]
  readonly shownTools: readonly ToolSchema[]
  /** Of the curriculum that draws; without, its requests cannot be told from those of a later one. */
  readonly learnerEpoch?: Epoch
  /** Where the partitions of `trajectories` end now. */
  readonly begins: () => Promise<readonly number[]>
}

/** Tasks in a row whose prompts are too long, after which it is not the tasks that are wrong. */
const mostPassed = 1000

/** One draw at a time: the next one begins at the cursor and the order that this one leaves. */
export const drawKey = (_request: DrawRequest): string => 'draw'

export function drawPort(source: TaskSource, renderer: Renderer, options: DrawOptions, fx: Effects): Port<DrawRequest> {
  return async request => {
    const { purpose, step, groups, minVersion } = request
    const begins = [...(await options.begins())]
    for (const { partition, offset } of request.began ?? [])
      begins[partition] = Math.min(begins[partition] ?? offset, offset)
    const evaluation = purpose === 'eval'
    const stage = request.stage === undefined ? undefined : options.stages?.[request.stage]
    const limits = evaluation ? (options.evaluationLimits ?? options.limits) : (stage?.limits ?? options.limits)
    const members = { train: options.groupSize, eval: options.evaluationSamples, measure: stage?.samples ?? 0 }[purpose]
    const taskAt = (index: number): Task => {
      if (evaluation) return source.evaluation(index)
      const { tasks } = request
      return source.train(tasks === undefined ? index : tasks[index % tasks.length]!)
    }
    const sampling = evaluation ? { ...options.sampling, temperature: options.evaluationTemperature } : options.sampling
    const under = options.learnerEpoch === undefined ? {} : { learnerEpoch: options.learnerEpoch }
    const requested: RolloutRequested[] = []
    let order = request.order
    let cursor = request.cursor
    /** The next task. One whose prompt is too long is not trained on; elsewhere it counts as not solved. */
    const next = async (): Promise<{ readonly task: Task; readonly tokens: Int32Array }> => {
      for (let passed = 0; ; passed++) {
        const task = taskAt(cursor++)
        const { tokens } = await renderer.prompt(task.messages, options.shownTools)
        const most = Math.min(options.promptTokens ?? limits.contextTokens, limits.contextTokens - 1)
        if (purpose !== 'train' || tokens.length <= most) return { task, tokens }
        if (passed >= Math.min(source.size ?? mostPassed, mostPassed)) throw promptTooLong(task.id, tokens.length, most)
      }
    }
    for (const group of groups) {
      const { task, tokens } = await next()
      for (let member = 0; member < members; member++) {
        requested.push({
          type: 'rollout.requested',
          at: fx.now(),
          trajectory: trajectoryId(group, member),
          group,
          member,
          groupSize: members,
          // A measurement trains on nothing, as an evaluation.
          purpose: purpose === 'measure' ? 'eval' : purpose,
          step,
          order: order++,
          task,
          tokens,
          tools: options.tools,
          limits,
          sampling,
          seed: deriveSeed(options.seed, group, member),
          minVersion,
          deadlineMs: options.deadlineMs,
          ...under,
        })
      }
    }
    const advanced: Fact = {
      ...{ type: 'curriculum.advanced', at: fx.now(), step, purpose, groups, cursor, order, begins, ...under },
    }
    return { facts: requested, commands: [], after: [advanced] }
  }
}

function promptTooLong(task: string, tokens: number, most: number): TroupeError {
  return new TroupeError('config.prompt_too_long', {
    boundary: 'config',
    retriable: false,
    message: `no prompt fits: that of task ${task} has ${tokens} tokens, and ${most} are the most`,
    hint: 'raise limits.contextTokens (and limits.promptTokens), or shorten what stands before every problem: tools.inPrompt, data.system',
  })
}
