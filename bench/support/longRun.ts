/**
 * Writes the log of a long run as training does: finished steps, and one step whose groups are all in progress.
 *
 * in   a journal, how many steps, groups and turns       out  the number of turns and of facts in the log
 * Every turn of a rollout is a fact of 6 KB (512 tokens with logprobs and text). Rollouts of the open step have
 * requested their next turn. Facts that only coordinators read (requested turns, tools) are written for the open step
 * alone.
 */
import type { Fact, TurnCompleted } from '../../messages/facts'
import {
  engineId,
  epoch,
  executorId,
  type GroupId,
  groupId,
  policyVersion,
  type TrajectoryId,
  taskId,
  trajectoryId,
} from '../../messages/ids'
import type { Journal } from '../../runtime/journal/journal'
import { pythonTool } from '../../sandbox'
import { factWriter } from './factWriter'

export interface LongRun {
  /** Number of steps; the last one is open. */
  readonly steps: number
  readonly groups: number
  readonly groupSize: number
  readonly turns: number
}

const turnTokens = 512
const promptTokens = 256
const at = 1_732_200_000_000
const only = epoch(0)
const stdout = '1\n'

const code = { name: pythonTool.name, arguments: { code: 'print(1)', input: '' } }
const text = `${'So the sum of the squares is to be divided by it. '.repeat(38)}<tool_call>${JSON.stringify(code)}</tool_call>`
const tokens = Int32Array.from({ length: turnTokens }, (_, i) => (i * 7919) % 49_152)
const logprobs = Float32Array.from({ length: turnTokens }, (_, i) => -i / 99)
const sampling = { temperature: 1, topP: 1, topK: 0, minP: 0, stopTokens: [2] }
const limits = {
  ...{ contextTokens: 32_768, responseTokens: 30_000, turns: 30, callsPerTurn: 1 },
  ...{ toolTimeoutMs: 4000, toolResponseChars: 2000 },
}

/** Writes the log. Resolves with the number of turns (facts of 6 KB) and of all facts. */
export async function writeLongRun(journal: Journal, run: LongRun): Promise<{ turns: number; facts: number }> {
  const { write, flush, written } = factWriter(journal)
  let turns = 0
  await write({ type: 'partition.claimed', at, partition: 0, owner: 'bench' }, ...published(0), saved(0))
  let order = 0
  for (let step = 1; step <= run.steps; step++) {
    await flush()
    const begins = [(await journal.offsets('trajectories', 0)).next]
    const ids = Array.from({ length: run.groups }, (_, k) => groupId(`s${String(step).padStart(4, '0')}.${k}`))
    const members = ids.flatMap(group => Array.from({ length: run.groupSize }, (_, member) => ({ group, member })))
    for (const { group, member } of members) await write(requested(run, step, group, member, order++))
    const cursor = step * run.groups
    await write({ type: 'curriculum.advanced', at, step, purpose: 'train', groups: ids, cursor, order, begins })
    const open = step === run.steps
    for (let turn = 0; turn < run.turns; turn++) {
      for (const { group, member } of members) await write(...turnOf(trajectoryId(group, member), turn, open))
      turns += members.length
    }
    for (const { group, member } of members) {
      if (open) await write(asked(trajectoryId(group, member), run.turns))
      else await write(...ended(run, trajectoryId(group, member), member))
    }
    if (open) break
    for (const group of ids) await write(...decided(run, step, group))
    const trajectories = members.map(({ group, member }) => trajectoryId(group, member))
    const base = { baseVersion: policyVersion(step - 1), baseCheckpoint: `step-${step - 1}` }
    await write({ type: 'step.started', at, step, epoch: only, ...base, trajectories }, saved(step), ...published(step))
    await write({ type: 'step.completed', at, step, epoch: only, version: policyVersion(step), metrics: { loss: 0.1 } })
  }
  await flush()
  return { turns, facts: written() }
}

const published = (step: number): Fact[] => [
  { type: 'weights.published', at, version: policyVersion(step), step, url: 'file:///w', digest: 'd', bytes: 1 },
]
const saved = (step: number): Fact => ({
  ...{ type: 'checkpoint.saved', at, step, version: policyVersion(step), name: `step-${step}`, digest: 'd' },
})

const requested = (run: LongRun, step: number, group: GroupId, member: number, order: number): Fact => ({
  type: 'rollout.requested',
  ...{
    at,
    trajectory: trajectoryId(group, member),
    group,
    member,
    groupSize: run.groupSize,
    purpose: 'train',
    step,
    order,
  },
  task: { id: taskId('bench/1'), messages: [{ role: 'user', content: 'How much is it?' }], truth: '4', reward: 'math' },
  tokens: tokens.subarray(0, promptTokens),
  ...{ tools: [pythonTool.name], limits, sampling, seed: 7, minVersion: policyVersion(0), deadlineMs: 1e12 },
})

const asked = (trajectory: TrajectoryId, turn: number): Fact => ({
  ...{ type: 'turn.asked', at, trajectory, turn, attempt: 0, epoch: only, engine: null, seed: 1, sampling },
  ...{ maxTokens: turnTokens, contextTokens: promptTokens + turn * (turnTokens + 16), contextDigest: 'd' },
})

function turnOf(trajectory: TrajectoryId, turn: number, open: boolean): Fact[] {
  const completed: TurnCompleted = {
    ...{
      type: 'turn.completed',
      at,
      trajectory,
      turn,
      attempt: 0,
      engine: engineId('local-0'),
      tokens,
      logprobs,
      text,
    },
    ...{ finish: 'stop', segments: [{ policyVersion: policyVersion(0), start: 0, end: turnTokens }] },
    ...{ cachedTokens: 256, preemptions: 0 },
    timing: { queuedAt: at, startedAt: at + 1, firstTokenAt: at + 30, endedAt: at + 4000 },
  }
  if (!open) return [completed]
  const call = { trajectory, turn, call: 0, attempt: 0, tool: pythonTool.name }
  const result = { text: 'Tool call success\nstdout: 1', stdout, stderr: '', exitCode: 0, wallMs: 2, cpuMs: 2 }
  return [
    asked(trajectory, turn),
    completed,
    { type: 'tool.asked', at, ...call, epoch: only, arguments: code.arguments },
    { type: 'tool.completed', at, ...call, status: 'ok', ...result, executor: executorId('tools') },
    { type: 'context.appended', at, trajectory, turn, epoch: only, text: stdout, tokens: tokens.subarray(0, 16) },
  ]
}

function ended(run: LongRun, trajectory: TrajectoryId, member: number): Fact[] {
  const counts = { turns: run.turns, sampledTokens: run.turns * turnTokens, toolCalls: run.turns, toolErrors: 0 }
  return [
    {
      type: 'rollout.finished',
      at,
      trajectory,
      epoch: only,
      outcome: 'answered',
      reason: 'stop',
      ...counts,
      answerTags: 1,
    },
    { type: 'reward.assigned', at, trajectory, attempt: 0, reward: member % 2, answer: '4', how: 'integer' },
  ]
}

function decided(run: LongRun, step: number, group: GroupId): Fact[] {
  const members = Array.from({ length: run.groupSize }, (_, member) => member)
  const kept = members
    .slice(0, run.groupSize / 2)
    .map(member => ({ member, reward: member % 2, advantage: 1, penalty: 0 }))
  const dropped = members.slice(run.groupSize / 2).map(member => ({ member, reward: member % 2, penalty: 0 }))
  const how = { selection: 'paper', generator: 'pcg32', seed: 1, whole: false } as const
  return [
    { type: 'group.closed', at, group, epoch: only, reason: 'complete', rewarded: members },
    { type: 'group.selected', at, group, epoch: only, step, ...how, kept, dropped },
  ]
}
