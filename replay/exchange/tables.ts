/**
 * Tables of a run for data frames: `trajectories` has one row for each trajectory, `turns` one for each finished turn.
 *
 * in   trajectories, and their exported form        out  rows by the columns below, which keep names, types and order
 * Invariant: columns are only ever added. Times are milliseconds since 1970; a value that the log lacks is null.
 */
import type { TurnCompleted } from '../../messages/facts'
import type { Trajectory } from '../trajectories/trajectory'
import { factsIn } from '../trajectories/trajectory'
import type { ExportedTrajectory } from './exportedTrajectory'

export type ColumnType = 'string' | 'int' | 'double' | 'time' | 'ints' | 'floats'
export type Value = string | number | readonly number[] | null

/** Types of the columns of a table by name, in order. */
export type Columns = Readonly<Record<string, ColumnType>>
export type Row = Readonly<Record<string, Value>>

const trajectories = {
  run: 'string',
  trajectory: 'string',
  group: 'string',
  member: 'int',
  purpose: 'string',
  /** Optimizer step that the rollout was requested for. */
  step: 'int',
  /** Optimizer step that trained on the trajectory; null when none did. */
  trained_in: 'int',
  task: 'string',
  /** running, answered, truncated or failed. */
  status: 'string',
  reason: 'string',
  reward: 'double',
  answer: 'string',
  /** kept, dropped or rejected (the whole group); null if the run has not decided the group. */
  selection: 'string',
  advantage: 'double',
  turns: 'int',
  tool_calls: 'int',
  tool_errors: 'int',
  prompt_tokens: 'int',
  sampled_tokens: 'int',
  requested_at: 'time',
  finished_at: 'time',
  /** Conversation in OpenAI's shape, as JSON. */
  messages: 'string',
  /** Token ids of prompt, turns and tool results; `mask`, `logprobs` and `policy_versions` have the same length. */
  tokens: 'ints',
  /** 1 if the model sampled the token, else 0. */
  mask: 'ints',
  logprobs: 'floats',
  policy_versions: 'ints',
} as const satisfies Columns

const turns = {
  run: 'string',
  trajectory: 'string',
  step: 'int',
  turn: 'int',
  attempt: 'int',
  engine: 'string',
  /** Policy version that sampled the turn's last token. */
  policy_version: 'int',
  /** stop or length. */
  finish: 'string',
  tokens: 'int',
  mean_logprob: 'double',
  cached_tokens: 'int',
  completed_at: 'time',
  tool_calls: 'int',
  tool_errors: 'int',
  text: 'string',
  /** Text that was put into the context after the turn, such as tool results. */
  appended: 'string',
} as const satisfies Columns

export const tables = { trajectories, turns } as const satisfies Readonly<Record<string, Columns>>
export type TableName = keyof typeof tables

type RowOf<C extends Columns> = { readonly [K in keyof C]: Value }

export function trajectoryRow(one: ExportedTrajectory, { request, finished }: Trajectory): RowOf<typeof trajectories> {
  return {
    ...{ run: one.run, trajectory: one.trajectory, group: one.group, member: one.member, purpose: one.purpose },
    ...{ step: one.step, trained_in: one.trainedIn?.step ?? null, task: one.task.id },
    ...{ status: one.outcome, reason: one.reason, reward: one.reward, answer: one.answer },
    ...{ selection: one.selection, advantage: one.advantage, turns: one.turns.length },
    tool_calls: one.toolCalls.length,
    tool_errors: one.toolCalls.filter(({ status }) => status !== 'ok').length,
    prompt_tokens: one.promptTokens,
    sampled_tokens: one.mask.reduce((sum, sampled) => sum + sampled, 0),
    ...{ requested_at: request.at, finished_at: finished?.at ?? null },
    messages: JSON.stringify(one.messages),
    ...{ tokens: one.tokens, mask: one.mask, logprobs: one.engineLogprobs, policy_versions: one.policyVersions },
  }
}

export function turnRows(one: ExportedTrajectory, trajectory: Trajectory): readonly RowOf<typeof turns>[] {
  const completed = factsIn(trajectory).filter((fact): fact is TurnCompleted => fact.type === 'turn.completed')
  return one.turns.map(exported => {
    const fact = completed.find(({ turn }) => turn === exported.turn)!
    const calls = one.toolCalls.filter(({ turn }) => turn === exported.turn)
    const logprobs = one.engineLogprobs.slice(exported.start, exported.end)
    return {
      ...{ run: one.run, trajectory: one.trajectory, step: one.step, turn: exported.turn, attempt: fact.attempt },
      ...{ engine: exported.engine, policy_version: exported.policyVersions.at(-1) ?? null, finish: exported.finish },
      tokens: logprobs.length,
      mean_logprob: logprobs.length === 0 ? null : logprobs.reduce((sum, p) => sum + p, 0) / logprobs.length,
      ...{ cached_tokens: fact.cachedTokens, completed_at: fact.at, tool_calls: calls.length },
      tool_errors: calls.filter(({ status }) => status !== 'ok').length,
      ...{ text: exported.text, appended: exported.appended?.text ?? null },
    }
  })
}
