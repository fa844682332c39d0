/**
 * Converts the lines of an imported file to facts of a run: lines of `export --format jsonl` or of verl's dumps.
 *
 * in   parsed lines        out  the facts that a run would have had, in an order from which its state can be computed
 * Invariant: token ids and logprobs are never made up: a dump without ids gives turns without tokens. A missing reward
 * gives no `reward.assigned`; in `group.selected`, which needs a number, it stands as 0. Every line is checked before
 * any fact is returned; the error names the wrong line or trajectory.
 */
import { createHash } from 'node:crypto'
import { z } from 'zod'
import type { Fact, KeptMember, RolloutRequested } from '../../messages/facts'
import { engineId, epoch, executorId, groupId, policyVersion, taskId, trajectoryId } from '../../messages/ids'
import { deriveSeed } from '../../runtime/effects'
import { replayError } from '../replayError'
import { rowFormat } from './exportedRows'
import { exportFormat } from './exportedTrajectory'
import { badImport } from './fixture'
import { verlFacts, verlLine } from './verlFacts'

const count = z.number().int().nonnegative()
const numbers = z.array(z.number())

const turn = z.object({
  turn: count,
  start: count,
  end: count,
  engine: z.string().regex(/^[A-Za-z0-9._:-]+$/),
  finish: z.enum(['stop', 'length']),
  text: z.string(),
  appended: z.object({ text: z.string(), tokens: count }).nullable(),
})

const call = z.object({
  turn: count,
  call: count,
  tool: z.string(),
  arguments: z.record(z.string(), z.unknown()),
  status: z.enum(['ok', 'error', 'timeout', 'malformed', 'unknown-tool']),
  text: z.string(),
  stdout: z.string().default(''),
  stderr: z.string().default(''),
  exitCode: z.number().int().nullable().default(null),
  signal: z.string().optional(),
  wallMs: z.number().nonnegative().default(0),
  ran: z.boolean(),
})

const ours = z.object({
  format: z.literal(exportFormat),
  version: z.literal(1),
  group: z.string().regex(/^[A-Za-z0-9._:-]+$/),
  member: count,
  groupSize: count,
  purpose: z.enum(['train', 'eval', 'fork', 'chat']),
  step: count,
  task: z.object({
    id: z.string(),
    messages: z.array(z.object({ role: z.enum(['system', 'user', 'assistant', 'tool']), content: z.string() })),
    truth: z.string(),
    reward: z.string(),
  }),
  tools: z.array(z.string()),
  limits: z.object({
    contextTokens: count,
    responseTokens: count,
    turns: count,
    callsPerTurn: count,
    toolTimeoutMs: z.number(),
    toolResponseChars: count,
  }),
  sampling: z.object({
    temperature: z.number(),
    topP: z.number(),
    topK: count,
    minP: z.number(),
    stopTokens: z.array(z.number().int()),
  }),
  seed: count,
  turns: z.array(turn),
  toolCalls: z.array(call),
  promptTokens: count,
  tokens: numbers,
  mask: numbers,
  engineLogprobs: numbers,
  policyVersions: numbers,
  outcome: z.enum(['running', 'answered', 'truncated', 'failed']),
  reason: z.string(),
  reward: z.number().nullable(),
  answer: z.string().nullable(),
  how: z.string().nullable(),
  selection: z.enum(['kept', 'dropped', 'rejected']).nullable(),
  advantage: z.number().nullable(),
  penalty: z.number().nullable(),
  answerTags: count.nullable(),
})
type Ours = z.infer<typeof ours>

export interface ImportedLine {
  /** File and line number of the imported line, for error messages. */
  readonly where: string
  readonly value: unknown
  /** Training step that a verl dump's file is named after; absent for other files. */
  readonly fileStep?: number
}

/**
 * Converts the lines to facts; `at` is every fact's time. @throws TroupeError replay.bad_import that names the line and
 * the field, or the trajectory; replay.captured for training rows of captured sessions
 */
export function factsOfLines(lines: readonly ImportedLine[], at: number): readonly Fact[] {
  const [first] = lines
  if (first === undefined)
    throw badImport('the file has no lines, or the directory only empty files; expected one trajectory on each line')
  const { format } = first.value as { format?: unknown }
  if (format === rowFormat)
    throw replayError(
      'captured',
      `${first.where} is a training row of a captured session; an import needs all calls of the session`,
      'export the session with --format fixture, and import that file',
    )
  const isOurs = format === exportFormat
  return isOurs
    ? ourFacts(
        lines.map(l => checkedLengths(checked(ours, l), l)),
        at,
      )
    : verlFacts(
        lines.map(l => ({ ...checked(verlLine, l), fileStep: l.fileStep })),
        at,
      )
}

function checked<T>(schema: z.ZodType<T>, { where, value }: ImportedLine): T {
  const result = schema.safeParse(value)
  if (result.success) return result.data
  const [issue] = result.error.issues
  throw badImport(`${where}: ${issue?.path.join('.') || 'the line'}: ${issue?.message}`)
}

function checkedLengths(line: Ours, { where }: ImportedLine): Ours {
  const { tokens, mask, engineLogprobs, policyVersions, turns, promptTokens } = line
  for (const [name, array] of Object.entries({ mask, engineLogprobs, policyVersions })) {
    if (array.length !== tokens.length)
      throw badImport(`${where}: ${name} has ${array.length} numbers; expected ${tokens.length}, one for each token`)
  }
  if (line.member >= 2 ** 31) throw badImport(`${where}: member ${line.member} is too large; expected below 2^31`)
  if (tokens.some(t => !Number.isInteger(t) || t < 0 || t >= 2 ** 31))
    throw badImport(`${where}: tokens contains a value that is not a token id; expected integers from 0 to 2^31 - 1`)
  let end = promptTokens
  turns.forEach((one, k) => {
    if (one.turn !== k) throw badImport(`${where}: turns are out of order: found turn ${one.turn}, expected turn ${k}`)
    if (one.start !== end || one.end < one.start)
      throw badImport(
        `${where}: turn ${k} covers tokens ${one.start} to ${one.end}; expected start ${end} and an end from there on`,
      )
    end = one.end + (one.appended?.tokens ?? 0)
  })
  if (end > tokens.length)
    throw badImport(`${where}: the turns cover ${end} tokens, but the trajectory has only ${tokens.length}`)
  return line
}

const only = epoch(0)
const claim = (at: number): Fact => ({ type: 'partition.claimed', at, partition: 0, owner: 'import' })

function ourFacts(lines: readonly Ours[], at: number): readonly Fact[] {
  const facts: Fact[] = [claim(at)]
  const seen = new Set<string>()
  lines.forEach((line, order) => {
    const id = `${line.group}/${line.member}`
    if (seen.has(id)) throw badImport(`trajectory ${id} occurs twice; expected one line for each trajectory`)
    seen.add(id)
    facts.push(requestOf(line, order, at))
  })
  for (const line of lines) facts.push(...rolloutFacts(line, at))
  const groups = new Map<string, Ours[]>()
  for (const line of lines) groups.set(line.group, [...(groups.get(line.group) ?? []), line])
  for (const members of groups.values()) facts.push(...groupFacts(members, at))
  return facts
}

function requestOf(line: Ours, order: number, at: number): RolloutRequested {
  const { member, groupSize, purpose, step, tools, limits, sampling, seed } = line
  const group = groupId(line.group)
  return {
    type: 'rollout.requested',
    at,
    trajectory: trajectoryId(group, member),
    group,
    ...{ member, groupSize, purpose, step, order, tools, limits, sampling, seed },
    task: { ...line.task, id: taskId(line.task.id) },
    tokens: Int32Array.from(line.tokens.slice(0, line.promptTokens)),
    minVersion: policyVersion(Math.max(0, ...line.policyVersions.slice(0, 1))),
    deadlineMs: 0,
  }
}

function rolloutFacts(line: Ours, at: number): Fact[] {
  const trajectory = trajectoryId(groupId(line.group), line.member)
  const tokens = Int32Array.from(line.tokens)
  const logprobs = Float32Array.from(line.engineLogprobs)
  const facts: Fact[] = []
  let engine = null as ReturnType<typeof engineId> | null
  for (const one of line.turns) {
    const { turn, start, end, finish, text } = one
    const context = tokens.slice(0, start)
    const used = start - line.promptTokens
    facts.push({
      type: 'turn.asked',
      ...{ at, trajectory, turn, attempt: 0, epoch: only, engine, sampling: line.sampling },
      seed: deriveSeed(line.seed, 'turn', turn),
      maxTokens: Math.min(line.limits.contextTokens - start, line.limits.responseTokens - used),
      contextTokens: start,
      contextDigest: createHash('sha256').update(new Uint8Array(context.buffer)).digest('hex'),
    })
    engine = engineId(one.engine)
    facts.push({
      type: 'turn.completed',
      ...{ at, trajectory, turn, attempt: 0, engine, text, finish },
      tokens: tokens.slice(start, end),
      logprobs: logprobs.slice(start, end),
      segments: segmentsOf(line.policyVersions.slice(start, end)),
      cachedTokens: 0,
      preemptions: 0,
      timing: { queuedAt: at, startedAt: at, firstTokenAt: at, endedAt: at },
    })
    for (const c of line.toolCalls.filter(c => c.turn === turn)) {
      const place = { at, trajectory, turn, call: c.call, attempt: 0, tool: c.tool }
      if (c.ran) facts.push({ type: 'tool.asked', ...place, epoch: only, arguments: c.arguments })
      const { status, stdout, stderr, exitCode, signal, wallMs } = c
      const executor = c.ran ? executorId('imported') : null
      facts.push({
        type: 'tool.completed',
        ...place,
        status,
        text: c.text,
        stdout,
        stderr,
        exitCode,
        ...(signal === undefined ? {} : { signal }),
        wallMs,
        cpuMs: 0,
        executor,
      })
    }
    if (one.appended !== null) {
      const appended = tokens.slice(end, end + one.appended.tokens)
      facts.push({
        type: 'context.appended',
        at,
        trajectory,
        turn,
        epoch: only,
        text: one.appended.text,
        tokens: appended,
      })
    }
  }
  if (line.outcome === 'running') return facts
  facts.push({
    type: 'rollout.finished',
    ...{ at, trajectory, epoch: only, outcome: line.outcome, reason: line.reason, turns: line.turns.length },
    sampledTokens: line.turns.reduce((sum, t) => sum + t.end - t.start, 0),
    toolCalls: line.toolCalls.length,
    toolErrors: line.toolCalls.filter(c => c.status !== 'ok').length,
    answerTags: line.answerTags ?? 0,
  })
  if (line.reward !== null) {
    const { reward, answer, how } = line
    facts.push({ type: 'reward.assigned', at, trajectory, attempt: 0, reward, answer: answer ?? '', how: how ?? '' })
  }
  return facts
}

/** Run-length encodes the tokens' policy versions: one segment for each stretch of tokens of one version. */
function segmentsOf(versions: readonly number[]) {
  const segments: { policyVersion: ReturnType<typeof policyVersion>; start: number; end: number }[] = []
  versions.forEach((version, i) => {
    const last = segments.at(-1)
    if (last?.policyVersion === version) last.end = i + 1
    else segments.push({ policyVersion: policyVersion(version), start: i, end: i + 1 })
  })
  return segments
}

function groupFacts(members: readonly Ours[], at: number): Fact[] {
  const [first] = members
  if (first === undefined || members.some(m => m.outcome === 'running')) return []
  const group = groupId(first.group)
  const rewarded = members.flatMap(m => (m.reward === null ? [] : [m.member])).sort((a, b) => a - b)
  const common = { at, group, epoch: only }
  const facts: Fact[] = [{ type: 'group.closed', ...common, reason: 'complete', rewarded }]
  const byMember = [...members].sort((a, b) => a.member - b.member)
  const kept = byMember.flatMap((m): KeptMember[] =>
    m.selection === 'kept'
      ? [{ member: m.member, reward: m.reward ?? 0, advantage: m.advantage ?? 0, penalty: m.penalty ?? 0 }]
      : [],
  )
  if (kept.length > 0) {
    const dropped = byMember
      .filter(m => m.selection === 'dropped')
      .map(m => ({ member: m.member, reward: m.reward ?? 0, penalty: m.penalty ?? 0 }))
    const how = { selection: 'imported', generator: '', seed: 0, whole: dropped.length === 0 }
    facts.push({ type: 'group.selected', ...common, step: first.step, ...how, kept, dropped })
  } else if (first.selection === 'rejected') {
    const rewards = members.flatMap(m => (m.reward === null ? [] : [m.reward]))
    const meanReward = rewards.reduce((a, b) => a + b, 0) / Math.max(1, rewards.length)
    const reason = rewards.every(r => r === rewards[0]) && rewards.length > 0 ? 'equal-rewards' : 'too-few-rewarded'
    facts.push({ type: 'group.rejected', ...common, step: first.step, reason, rewarded: rewards.length, meanReward })
  }
  return facts
}
