/**
 * Exports a trajectory in ATIF (Agent Trajectory Interchange Format), which Harbor and its viewers read.
 *
 * in   an exported trajectory        out  an ATIF-v1.6 document
 * Invariant: ids and logprobs of sampled tokens are the recorded ones. Each turn of the model is one step, with its
 * tool calls and their results as the model was shown them; some of what has no field in ATIF is under `extra`.
 * Tool messages among the task's own messages are left out.
 */
import { version } from '../../package.json'
import type { ExportedTrajectory } from './exportedTrajectory'

interface AtifStep {
  readonly step_id: number
  readonly source: 'system' | 'user' | 'agent'
  readonly message: string
  readonly tool_calls?: readonly {
    readonly tool_call_id: string
    readonly function_name: string
    readonly arguments: Readonly<Record<string, unknown>>
  }[]
  readonly observation?: { readonly results: readonly { readonly source_call_id: string; readonly content: string }[] }
  readonly metrics?: {
    readonly prompt_tokens: number
    readonly completion_tokens: number
    readonly completion_token_ids: readonly number[]
    readonly logprobs: readonly number[]
    readonly extra: Readonly<Record<string, unknown>>
  }
}

export interface AtifTrajectory {
  readonly schema_version: 'ATIF-v1.6'
  readonly session_id: string
  readonly agent: { readonly name: string; readonly version: string; readonly extra: Readonly<Record<string, unknown>> }
  readonly steps: readonly AtifStep[]
  readonly final_metrics: {
    readonly total_prompt_tokens: number
    readonly total_completion_tokens: number
    readonly total_steps: number
    readonly extra: Readonly<Record<string, unknown>>
  }
  readonly extra: Readonly<Record<string, unknown>>
}

export function atifTrajectory(exported: ExportedTrajectory): AtifTrajectory {
  const steps = stepsOf(exported)
  const sampled = exported.turns.map(({ start, end }) => end - start)
  const { run, trajectory, task, outcome, reason, reward, answer, tools, sampling, seed } = exported
  return {
    schema_version: 'ATIF-v1.6',
    session_id: `${run}/${trajectory}`,
    agent: { name: 'troupe', version, extra: { tools, sampling, seed } },
    steps,
    final_metrics: {
      total_prompt_tokens: exported.turns.reduce((sum, { start }) => sum + start, 0),
      total_completion_tokens: sampled.reduce((sum, n) => sum + n, 0),
      total_steps: steps.length,
      extra: { reward },
    },
    extra: { run, trajectory, task: task.id, outcome, reason, answer },
  }
}

function stepsOf({ messages, turns, tokens, engineLogprobs }: ExportedTrajectory): readonly AtifStep[] {
  const steps: AtifStep[] = []
  // Assistant messages of the task itself, such as examples, come first and were not sampled.
  const examples = Math.max(0, messages.filter(({ role }) => role === 'assistant').length - turns.length)
  let answers = 0
  for (const { role, content, tool_calls: calls = [], tool_call_id: answered } of messages) {
    const step_id = steps.length + 1
    if (role === 'tool') {
      const asker = steps.at(-1)
      if (asker?.source !== 'agent' || answered === undefined) continue
      const results = [...(asker.observation?.results ?? []), { source_call_id: answered, content }]
      steps[steps.length - 1] = { ...asker, observation: { results } }
      continue
    }
    if (role !== 'assistant') {
      steps.push({ step_id, source: role, message: content })
      continue
    }
    const sampled = turns[answers++ - examples]
    steps.push({
      ...{ step_id, source: 'agent', message: content },
      ...(calls.length === 0
        ? {}
        : {
            tool_calls: calls.map(({ id, function: { name, arguments: text } }) => ({
              ...{ tool_call_id: id, function_name: name, arguments: objectIn(text) },
            })),
          }),
      ...(sampled === undefined
        ? {}
        : {
            metrics: {
              prompt_tokens: sampled.start,
              completion_tokens: sampled.end - sampled.start,
              completion_token_ids: tokens.slice(sampled.start, sampled.end),
              logprobs: engineLogprobs.slice(sampled.start, sampled.end),
              extra: { policy_versions: sampled.policyVersions, engine: sampled.engine, finish: sampled.finish },
            },
          }),
    })
  }
  return steps
}

/** Parses a call's arguments. Text that is not a JSON object is returned unchanged, in the field `malformed`. */
function objectIn(text: string): Readonly<Record<string, unknown>> {
  try {
    const value: unknown = JSON.parse(text)
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Record<string, unknown>
  } catch {
    // The model wrote no JSON.
  }
  return { malformed: text }
}
