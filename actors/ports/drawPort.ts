/**
 * The data's side of the curriculum: tasks become prompts.
 *
 * in   draw requests        out  rollout.requested for every member of every group, then curriculum.advanced
 * Invariant: a group's task, its members' seeds and their start order follow from the request alone, so that a draw that
 * is made twice yields the same facts.
 */
import type { Fact, RolloutLimits, RolloutRequested, Sampling } from '../../messages/facts'
import { trajectoryId } from '../../messages/ids'
import { deriveSeed, type Effects } from '../../runtime/effects'
import type { Port } from '../../runtime/host'
import type { TaskSource } from '../../runtime/recipe'
import type { Renderer, ToolSchema } from '../../runtime/renderer'
import type { DrawRequest } from '../curriculum'

export interface DrawOptions {
  readonly seed: number
  /** 2G. */
  readonly groupSize: number
  readonly evaluationSamples: number
  readonly limits: RolloutLimits
  readonly sampling: Sampling
  readonly evaluationTemperature: number
  readonly deadlineMs: number
  /** Tools that the model may call, and those among them that its prompt describes. */
  readonly tools: readonly string[]
  readonly shownTools: readonly ToolSchema[]
  /** Where the partitions of `trajectories` end now. */
  readonly begins: () => Promise<readonly number[]>
}

/** One draw at a time: the next one begins at the cursor and the order that this one leaves. */
export const drawKey = (_request: DrawRequest): string => 'draw'

export function drawPort(source: TaskSource, renderer: Renderer, options: DrawOptions, fx: Effects): Port<DrawRequest> {
  return async request => {
    const { purpose, step, groups, minVersion } = request
    const begins = await options.begins()
    const evaluation = purpose === 'eval'
    const members = evaluation ? options.evaluationSamples : options.groupSize
    const sampling = evaluation ? { ...options.sampling, temperature: options.evaluationTemperature } : options.sampling
    const requested: RolloutRequested[] = []
    let order = request.order
    for (const [k, group] of groups.entries()) {
      const task = evaluation ? source.evaluation(request.cursor + k) : source.train(request.cursor + k)
      const { tokens } = await renderer.prompt(task.messages, options.shownTools)
      for (let member = 0; member < members; member++) {
        requested.push({
          type: 'rollout.requested',
          at: fx.now(),
          trajectory: trajectoryId(group, member),
          group,
          member,
          groupSize: members,
          purpose,
          step,
          order: order++,
          task,
          tokens,
          tools: options.tools,
          limits: options.limits,
          sampling,
          seed: deriveSeed(options.seed, group, member),
          minVersion,
          deadlineMs: options.deadlineMs,
        })
      }
    }
    const cursor = request.cursor + groups.length
    const advanced: Fact = { type: 'curriculum.advanced', at: fx.now(), step, purpose, groups, cursor, order, begins }
    return { facts: [...requested, advanced], commands: [] }
  }
}
