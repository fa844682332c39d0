/**
 * Picks the trajectories of each task that serve as conversations for supervised fine-tuning: those that were answered,
 * have a reward and meet the thresholds, and of these at most `perTask`, the ones with the fewest sampled tokens.
 *
 * in   trajectories, the thresholds that they must meet
 * out  conversations in the words that the model was shown and wrote
 * Invariant: tool calls stay in the assistant's text. Rollouts of evaluations are left out, and no conversation occurs
 * twice.
 */
import { toolCallsOf } from '../trajectories/toolCalls'
import type { Trajectory } from '../trajectories/trajectory'
import { refuseCapturedExport, withoutEnd } from './exportedTrajectory'

export interface SftSelection {
  readonly minReward: number
  /** Upper bound on a trajectory's failed tool calls. */
  readonly maxToolErrors: number
  /** Upper bound on the conversations of one task; those with the fewest sampled tokens are taken. */
  readonly perTask: number
}

export interface SftConversation {
  readonly messages: readonly { readonly role: string; readonly content: string }[]
  readonly trajectory: string
  readonly task: string
  readonly reward: number
}

/** @throws TroupeError replay.captured if one of the trajectories is a captured session */
export function sftConversations(all: readonly Trajectory[], options: SftSelection): readonly SftConversation[] {
  refuseCapturedExport(all)
  const byTask = new Map<string, Trajectory[]>()
  for (const one of all.filter(isGood(options))) {
    const { id } = one.request.task
    byTask.set(id, [...(byTask.get(id) ?? []), one])
  }
  const seen = new Set<string>()
  return [...byTask].flatMap(([task, members]) =>
    members
      .sort((a, b) => a.finished!.sampledTokens - b.finished!.sampledTokens)
      .map(one => ({ messages: conversation(one), trajectory: one.id, task, reward: one.reward!.reward }))
      .filter(({ messages }) => {
        const text = JSON.stringify(messages)
        if (seen.has(text)) return false
        seen.add(text)
        return true
      })
      .slice(0, options.perTask),
  )
}

const isGood =
  ({ minReward, maxToolErrors }: SftSelection) =>
  ({ request, finished, reward }: Trajectory): boolean =>
    // Problems held out for evaluation must not become training data.
    request.purpose !== 'eval' &&
    finished?.outcome === 'answered' &&
    (reward?.reward ?? Number.NEGATIVE_INFINITY) >= minReward &&
    finished.toolErrors <= maxToolErrors

function conversation(trajectory: Trajectory) {
  const calls = toolCallsOf(trajectory)
  const turns = trajectory.texts.flatMap((text, turn) => [
    { role: 'assistant', content: withoutEnd(text) },
    ...calls.filter(c => c.turn === turn).map(c => ({ role: 'tool', content: c.text })),
  ])
  return [...trajectory.request.task.messages, ...turns]
}
