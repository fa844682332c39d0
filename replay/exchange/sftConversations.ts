/**
 * The best trajectories of each task as conversations for supervised fine-tuning.
 *
 * in   trajectories, what is good enough        out  conversations in the words that the model was shown and wrote
 * Invariant: calls stay in the assistant's text. Evaluation problems are never among them, and no conversation is there twice.
 */
import { toolCallsOf } from '../trajectories/toolCalls'
import type { Trajectory } from '../trajectories/trajectory'
import { withoutEnd } from './exportedTrajectory'

export interface SftOptions {
  readonly minReward: number
  /** Largest number of failed tool calls. */
  readonly maxToolErrors: number
  /** Largest number of conversations of one task: the shortest are taken, by sampled tokens. */
  readonly perTask: number
}

export interface SftConversation {
  readonly messages: readonly { readonly role: string; readonly content: string }[]
  readonly trajectory: string
  readonly task: string
  readonly reward: number
}

export function sftConversations(all: readonly Trajectory[], options: SftOptions): readonly SftConversation[] {
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
  ({ minReward, maxToolErrors }: SftOptions) =>
  ({ request, finished, reward }: Trajectory): boolean =>
    // Problems that are held out for evaluation are not learned from.
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
