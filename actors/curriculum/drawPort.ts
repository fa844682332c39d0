/**
 * The curriculum's port to the data: turns tasks into prompts.
 *
 * in   draw requests (a draw is a batch of new groups)
 * out  rollout.requested for every member of every group; once these are durable, curriculum.advanced
 * Invariant: a group's task, its members' seeds and their start order follow from the request, the data and the options
 * (run's seed, group sizes, limits), so a draw that is made twice asks for the same rollouts. When curriculum.advanced
 * names a draw, all of its requests are in the log.
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
  /** Rollouts per group of a training step (2G: selection keeps G of them). */
  readonly groupSize: number
  readonly evaluationSamples: number
  readonly limits: RolloutLimits
  /**
   * Upper bound on the tokens of a training prompt. Default: `contextTokens` of the rollout limits less one; a larger
   * value has the same effect.
   */
  readonly promptTokens?: number | undefined
  /** For each stage of the recipe: its rollout limits, and how many rollouts measure each problem (`samples`). */
  readonly stages?: readonly { readonly limits: RolloutLimits; readonly samples: number }[]
  readonly sampling: Sampling
  readonly evaluationLimits?: RolloutLimits
  readonly evaluationTemperature: number
  readonly deadlineMs: number
  /** Names of the tools that the model may call. */
  readonly tools: readonly string[]
  /** Schemas of the tools that the prompts describe to the model. */
  readonly shownTools: readonly ToolSchema[]
  /**
   * Epoch (log offset of its claim) of the curriculum that makes the draw. Without it, the draw's requests cannot be
   * distinguished from those of a later curriculum.
   */
  readonly learnerEpoch?: Epoch
  /** Resolves with one offset for each partition of `trajectories`: the offset that its next record will get. */
  readonly begins: () => Promise<readonly number[]>
}

/**
 * Upper bound on the tasks that a training draw skips in a row because their prompts are too long. If the task after
 * them is too long as well, or all tasks of the source are, the draw fails: then the limits are too small, and the tasks
 * are not at fault.
 */
const mostPassed = 1000

/**
 * Key under which all draws run one at a time: each draw begins at the task cursor and start order that the previous
 * one left.
 */
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
    /**
     * Takes the next task. A training task whose prompt is too long is skipped; in an evaluation or measurement it is
     * kept: a rollout without room for an answer counts as not solved.
     */
    const next = async (): Promise<{ readonly task: Task; readonly tokens: Int32Array }> => {
      const passed = new Set<string>()
      for (let looks = 1; ; looks++) {
        const task = taskAt(cursor++)
        const { tokens } = await renderer.prompt(task.messages, options.shownTools)
        const most = Math.min(options.promptTokens ?? limits.contextTokens, limits.contextTokens - 1)
        if (purpose !== 'train' || tokens.length <= most) return { task, tokens }
        passed.add(task.id)
        if (passed.size === source.size || looks > mostPassed)
          throw promptTooLong(passed.size, task.id, tokens.length, most)
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
          // Rollouts of a measurement are marked 'eval' because the learner must not train on them.
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
          deadlineFrom: 'start',
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

function promptTooLong(tasks: number, task: string, tokens: number, most: number): TroupeError {
  return new TroupeError('config.prompt_too_long', {
    boundary: 'config',
    retriable: false,
    message: `the prompts of ${tasks} tasks in a row are too long: that of task ${task} has ${tokens} tokens, at most ${most} are allowed`,
    hint: 'raise limits.contextTokens (and limits.promptTokens), or shorten the text that precedes every problem: tools.inPrompt, data.system',
  })
}
