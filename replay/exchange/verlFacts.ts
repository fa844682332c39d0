/**
 * Converts verl's rollout dumps (`trainer.rollout_data_dir`: a file for each step, a line for each rollout) to facts of
 * a run.
 *
 * in   prompt and response as text; optionally the score, the ground truth and the step
 * out  one trajectory of one turn for each line, in groups by step, prompt and ground truth
 * Invariant: the dump has no token ids, logprobs or tool calls, so the facts have none either.
 */
import { createHash } from 'node:crypto'
import { z } from 'zod'
import type { Fact } from '../../messages/facts'
import { engineId, epoch, groupId, policyVersion, taskId, trajectoryId } from '../../messages/ids'

const count = z.number().int().nonnegative()

export const verlLine = z.object({
  input: z.string(),
  output: z.string(),
  score: z.number().nullish(),
  step: count.nullish(),
  gts: z.unknown(),
})
type Verl = z.infer<typeof verlLine>

const only = epoch(0)
const claim = (at: number): Fact => ({ type: 'partition.claimed', at, partition: 0, owner: 'import' })
const noLimits = {
  contextTokens: 0,
  responseTokens: 0,
  turns: 1,
  callsPerTurn: 0,
  toolTimeoutMs: 0,
  toolResponseChars: 0,
}
const noSampling = { temperature: 1, topP: 1, topK: 0, minP: 0, stopTokens: [] }

/** Converts the lines; rollouts with the same prompt and ground truth in the same step form one group. */
export function verlFacts(
  lines: readonly (Verl & { readonly fileStep: number | undefined })[],
  at: number,
): readonly Fact[] {
  const groups = new Map<string, { readonly step: number; readonly lines: Verl[] }>()
  for (const line of lines) {
    const step = line.step ?? line.fileStep ?? 0
    const key = JSON.stringify([step, line.input, line.gts ?? null])
    const group = groups.get(key)
    if (group === undefined) groups.set(key, { step, lines: [line] })
    else group.lines.push(line)
  }
  const facts: Fact[] = [claim(at)]
  const indices = new Map<number, number>()
  let order = 0
  for (const { step, lines: members } of groups.values()) {
    const index = indices.get(step) ?? 0
    indices.set(step, index + 1)
    const group = groupId(`s${String(step).padStart(4, '0')}.${String(index).padStart(4, '0')}`)
    const truth = members[0]!.gts === undefined || members[0]!.gts === null ? '' : textOf(members[0]!.gts)
    members.forEach((line, member) => {
      facts.push({
        type: 'rollout.requested',
        ...{
          at,
          trajectory: trajectoryId(group, member),
          group,
          member,
          groupSize: members.length,
          purpose: 'train',
          step,
        },
        order: order++,
        task: { id: taskId(`${group}`), messages: [{ role: 'user', content: line.input }], truth, reward: 'imported' },
        tokens: new Int32Array(),
        tools: [],
        ...{ limits: noLimits, sampling: noSampling, seed: 0, minVersion: policyVersion(0), deadlineMs: 0 },
      })
    })
    facts.push(...members.flatMap((line, member) => verlRollout(line, trajectoryId(group, member), at)))
    const rewarded = members.flatMap((line, member) => (line.score == null ? [] : [member]))
    facts.push({ type: 'group.closed', at, group, epoch: only, reason: 'complete', rewarded })
  }
  return facts
}

function verlRollout(line: Verl, trajectory: ReturnType<typeof trajectoryId>, at: number): Fact[] {
  const digest = createHash('sha256').digest('hex')
  const engine = engineId('imported')
  const asked = { at, trajectory, turn: 0, attempt: 0 }
  const facts: Fact[] = [
    {
      type: 'turn.asked',
      ...asked,
      ...{
        epoch: only,
        engine: null,
        seed: 0,
        sampling: noSampling,
        maxTokens: 0,
        contextTokens: 0,
        contextDigest: digest,
      },
    },
    {
      type: 'turn.completed',
      ...asked,
      ...{
        engine,
        tokens: new Int32Array(),
        logprobs: new Float32Array(),
        text: line.output,
        finish: 'stop',
        segments: [],
      },
      ...{ cachedTokens: 0, preemptions: 0, timing: { queuedAt: at, startedAt: at, firstTokenAt: at, endedAt: at } },
    },
    {
      type: 'rollout.finished',
      ...{ at, trajectory, epoch: only, outcome: 'answered', reason: 'imported', turns: 1, sampledTokens: 0 },
      ...{ toolCalls: 0, toolErrors: 0, answerTags: 0 },
    },
  ]
  if (line.score != null) {
    facts.push({ type: 'reward.assigned', at, trajectory, attempt: 0, reward: line.score, answer: '', how: 'imported' })
  }
  return facts
}

const textOf = (value: unknown): string => (typeof value === 'string' ? value : JSON.stringify(value))
