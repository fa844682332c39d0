/**
 * Writes the log of a run of many short trajectories, as training does: every fact of each, interleaved as in a run
 * with many trajectories at once.
 *
 * in   a journal, how many steps and groups        out  the number of trajectories and facts in the log
 * Invariant: the log is sound: contexts have the digests that they were requested with, counts match the facts, and a
 * step trains on the kept rollouts, so that `replay verify` finds no fault.
 */
import { createHash, type Hash } from 'node:crypto'
import type { Fact } from '../../messages/facts'
import {
  engineId,
  epoch,
  executorId,
  type GroupId,
  groupId,
  policyVersion,
  runId,
  type TrajectoryId,
  taskId,
  trajectoryId,
} from '../../messages/ids'
import type { Journal } from '../../runtime/journal/journal'
import { pythonTool } from '../../sandbox'
import { factWriter } from './factWriter'

export interface ManyTrajectories {
  readonly steps: number
  /** Number of groups of a step; all of them are in progress together. */
  readonly groups: number
  readonly groupSize: number
}

const only = epoch(0)
const began = 1_732_200_000_000
const turnTokens = 48
const promptTokens = 40
const toolTokens = 12
/** Number of turns of a member; the last turn answers. */
const turnsOf = (member: number) => 1 + (member % 3)
const sampling = { temperature: 1, topP: 1, topK: 0, minP: 0, stopTokens: [2] }
const limits = {
  ...{ contextTokens: 512, responseTokens: 400, turns: 4, callsPerTurn: 1 },
  ...{ toolTimeoutMs: 4000, toolResponseChars: 500 },
}
const call = `<tool_call>${JSON.stringify({ name: pythonTool.name, arguments: { code: 'print(17*23)', input: '' } })}</tool_call>`
const answer = '<answer>\\boxed{391}</answer>'

interface Member {
  readonly id: TrajectoryId
  readonly group: GroupId
  readonly member: number
  /** Position of the trajectory in the order of starts; the tokens of its prompt derive from it. */
  readonly order: number
  readonly context: Hash
  contextTokens: number
}

/** Writes the log. Resolves when all facts are durable. */
export async function writeManyTrajectories(
  journal: Journal,
  run: ManyTrajectories,
): Promise<{ trajectories: number; facts: number }> {
  const { write, flush, written } = factWriter(journal)
  let count = 0
  let at = began
  let order = 0
  // The epoch of a partition is the offset of its claim (the record by which an owner takes the partition). Here each
  // claim is the first record of its partition.
  const partitions = await journal.partitionsOf('trajectories')
  for (let partition = 0; partition < partitions; partition++) {
    await journal.appendTo(partition, { type: 'partition.claimed', at, partition, owner: 'bench' })
  }
  await write(started(journal))
  await write(...published(0, at))
  for (let step = 1; step <= run.steps; step++) {
    at += 1000
    const groups = Array.from({ length: run.groups }, (_, k) => groupId(`s${pad(step)}.${pad(k)}`))
    const members = groups.flatMap(group =>
      Array.from({ length: run.groupSize }, (_, member): Member => {
        const tokens = Buffer.from(tokensFrom(order, promptTokens).buffer)
        const context = createHash('sha256').update(tokens)
        return { id: trajectoryId(group, member), group, member, order: order++, context, contextTokens: promptTokens }
      }),
    )
    for (const member of members) await write(requested(run, member, step, at))
    const last = Math.max(...members.map(m => turnsOf(m.member)))
    for (let turn = 0; turn < last; turn++) {
      const still = members.filter(m => turn < turnsOf(m.member))
      for (const member of still) await write(asked(member, turn, at))
      for (const member of still) await write(...turnFacts(member, turn, step, at))
    }
    for (const member of members) await write(...ended(member, at))
    for (const group of groups) await write(...decided(run, group, step, at))
    const trajectories = members.filter(m => isKept(run, m.member)).map(m => m.id)
    const base = { baseVersion: policyVersion(step - 1), baseCheckpoint: 'step-0' }
    await write({ type: 'step.started', at, step, epoch: epoch(-1), ...base, trajectories }, ...published(step, at))
    await write({
      ...{ type: 'step.completed', at, step, epoch: epoch(-1), version: policyVersion(step) },
      metrics: { loss: 0.1, gradNorm: 0.2 },
    })
    count += members.length
  }
  await write({
    type: 'run.finished',
    at,
    run: journal.run,
    outcome: 'done',
    reason: 'all steps are done',
    ...ends(run),
  })
  await flush()
  return { trajectories: count, facts: written() }
}

const pad = (n: number): string => String(n).padStart(4, '0')
const ends = ({ steps }: ManyTrajectories) => ({ steps, summary: {} })
const isKept = ({ groupSize }: ManyTrajectories, member: number) => member < groupSize / 2
const tokensFrom = (seed: number, count: number) =>
  Int32Array.from({ length: count }, (_, i) => (seed * 31 + i * 7919) % 49_152)

const started = ({ run }: Journal): Fact => ({
  ...{ type: 'run.started', at: began, run: runId(run), recipe: {}, recipeDigest: '', codeDigest: '' },
  ...{ tokenizerDigest: '', seed: 1, versions: {}, partitions: {} },
})

const published = (step: number, at: number): Fact[] => [
  { type: 'weights.published', at, version: policyVersion(step), step, url: 'file:///w', digest: `d${step}`, bytes: 1 },
]

const requested = (run: ManyTrajectories, m: Member, step: number, at: number): Fact => ({
  ...{ type: 'rollout.requested', at, trajectory: m.id, group: m.group, member: m.member, groupSize: run.groupSize },
  ...{
    purpose: 'train',
    step,
    order: m.order,
    seed: m.order,
    minVersion: policyVersion(step - 1),
    deadlineMs: at + 1e6,
  },
  task: {
    id: taskId(`bench/${m.order % 977}`),
    messages: [{ role: 'user', content: 'How many bolts are seventeen crates of twenty-three?' }],
    ...{ truth: '391', reward: 'math' },
  },
  ...{ tokens: tokensFrom(m.order, promptTokens), tools: [pythonTool.name], limits, sampling },
})

const asked = (m: Member, turn: number, at: number): Fact => ({
  ...{ type: 'turn.asked', at, trajectory: m.id, turn, attempt: 0, epoch: only, engine: null, seed: 1, sampling },
  ...{ maxTokens: 400, contextTokens: m.contextTokens, contextDigest: m.context.copy().digest('hex') },
})

function grow(m: Member, tokens: Int32Array): void {
  m.contextTokens += tokens.length
  m.context.update(Buffer.from(tokens.buffer))
}

function turnFacts(m: Member, turn: number, step: number, at: number): Fact[] {
  const isLast = turn + 1 === turnsOf(m.member)
  const tokens = tokensFrom(m.member + turn, turnTokens)
  const logprobs = Float32Array.from(tokens, (_, i) => -i / 99)
  const sampled = policyVersion(step - 1)
  grow(m, tokens)
  const completed: Fact = {
    ...{ type: 'turn.completed', at, trajectory: m.id, turn, attempt: 0, engine: engineId('local-0') },
    ...{ tokens, logprobs, text: isLast ? answer : call, finish: 'stop' },
    segments: [{ policyVersion: sampled, start: 0, end: turnTokens }],
    ...{ cachedTokens: 0, preemptions: 0 },
    timing: { queuedAt: at, startedAt: at + 1, firstTokenAt: at + 30, endedAt: at + 400 },
  }
  if (isLast) return [completed]
  const one = { trajectory: m.id, turn, call: 0, attempt: 0, tool: pythonTool.name }
  const failed = m.member % 5 === 1
  const said = failed ? 'Tool call failure\nreason: exit code 1' : 'Tool call success\nstdout: 391'
  const result = { text: said, stdout: failed ? '' : '391\n', stderr: failed ? 'NameError' : '' }
  const appended = tokensFrom(turn, toolTokens)
  grow(m, appended)
  return [
    completed,
    { type: 'tool.asked', at, ...one, epoch: only, arguments: { code: 'print(17*23)', input: '' } },
    {
      ...{ type: 'tool.completed', at, ...one, status: failed ? 'error' : 'ok', ...result, exitCode: failed ? 1 : 0 },
      ...{ wallMs: 2, cpuMs: 2, executor: executorId('tools') },
    },
    { type: 'context.appended', at, trajectory: m.id, turn, epoch: only, text: said, tokens: appended },
  ]
}

function ended({ id, member }: Member, at: number): Fact[] {
  const turns = turnsOf(member)
  const calls = turns - 1
  const counts = { turns, sampledTokens: turns * turnTokens, toolCalls: calls }
  return [
    {
      ...{ type: 'rollout.finished', at, trajectory: id, epoch: only, outcome: 'answered', reason: 'stop' },
      ...{ ...counts, toolErrors: member % 5 === 1 ? calls : 0, answerTags: 1 },
    },
    { type: 'reward.assigned', at, trajectory: id, attempt: 0, reward: member % 2, answer: '391', how: 'integer' },
  ]
}

function decided(run: ManyTrajectories, group: GroupId, step: number, at: number): Fact[] {
  const members = Array.from({ length: run.groupSize }, (_, member) => member)
  const kept = members
    .filter(m => isKept(run, m))
    .map(m => ({ member: m, reward: m % 2, advantage: m % 2, penalty: 0 }))
  const dropped = members.filter(m => !isKept(run, m)).map(m => ({ member: m, reward: m % 2, penalty: 0 }))
  const how = { selection: 'paper', generator: 'pcg32', seed: 1, whole: false }
  return [
    { type: 'group.closed', at, group, epoch: only, reason: 'complete', rewarded: members },
    { type: 'group.selected', at, group, epoch: only, step, ...how, kept, dropped },
  ]
}
