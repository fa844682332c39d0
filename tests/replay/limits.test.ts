/** `replay limits`: what the record says about other limits, and where it says nothing. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Command } from 'commander'
import * as graders from '../../actors/verification/graders'
import { registerLimits } from '../../cli/replay/limits'
import type { Fact } from '../../messages/facts'
import { engineId, epoch, executorId, policyVersion, trajectoryId } from '../../messages/ids'
import { openLog } from '../../replay/log/recordedRun'
import { readTrajectories, type Trajectory } from '../../replay/trajectories/trajectory'
import { limitOutcome } from '../../replay/whatIf/limitOutcome'
import type { LimitedLine } from '../../replay/whatIf/whatIfLimits'
import type { Entry } from '../../runtime/journal/journal'
import { requested, toolCall, toolName } from '../support/facts'
import { quickstartHistory, saveHistory } from '../support/histories'
import { troupeHere } from '../support/troupeHere'

jest.setTimeout(60_000)

const directory = mkdtempSync(join(tmpdir(), 'troupe-limits-'))
afterAll(() => rmSync(directory, { recursive: true, force: true }))
const history = quickstartHistory()
let all: readonly Trajectory[] = []
beforeAll(async () => {
  await saveHistory(directory, history)
  const recorded = await openLog({ bus: `lmdb:${directory}`, run: history.run })
  all = await readTrajectories(recorded, () => true)
  await recorded.close()
})
const unknown = () => undefined

async function limits(...args: readonly string[]) {
  const { code, stdout, stderr } = await troupeHere(['replay', 'limits', ...args, '--bus', `lmdb:${directory}`])
  return {
    code,
    stdout,
    stderr,
    lines: () =>
      stdout
        .trim()
        .split('\n')
        .map(l => JSON.parse(l) as LimitedLine),
  }
}

/** Turns of five tokens `abcde`, all but the last with a call; the tool says `said`. */
function trajectory(
  turns: number,
  finish: 'stop' | 'length',
  said = 'ok',
  outcome: 'answered' | 'truncated' = 'answered',
) {
  const request = { ...requested('g', 0), limits: { ...requested('g', 0).limits, turns: 4, toolResponseChars: 500 } }
  const id = trajectoryId('g' as never, 0)
  const facts: Fact[] = [request]
  const texts: string[] = []
  for (let turn = 0; turn < turns; turn++) {
    const last = turn + 1 === turns
    const text = last && outcome === 'answered' ? 'abcde' : toolCall('1')
    const base = { at: 0, trajectory: id, turn, attempt: 0, epoch: epoch(-1) }
    const sampling = request.sampling
    texts.push(text)
    facts.push(
      {
        type: 'turn.asked',
        ...base,
        engine: null,
        seed: 1,
        sampling,
        maxTokens: 9,
        contextTokens: 3,
        contextDigest: '',
      },
      {
        ...{ type: 'turn.completed', ...base, engine: engineId('e'), tokens: Int32Array.of(1, 2, 3, 4, 5) },
        ...{ logprobs: new Float32Array(5), text, finish: last ? finish : 'stop', cachedTokens: 0, preemptions: 0 },
        segments: [{ policyVersion: policyVersion(0), start: 0, end: 5 }],
        timing: { queuedAt: 0, startedAt: 0, firstTokenAt: 0, endedAt: 0 },
      },
    )
    if (last) break
    const call = { ...base, call: 0, tool: toolName }
    facts.push(
      { type: 'tool.asked', ...call, arguments: { code: '1', input: '' } },
      {
        ...{ type: 'tool.completed', ...call, status: 'ok', text: said, stdout: '', stderr: '', exitCode: 0 },
        ...{ wallMs: 20, cpuMs: 1, executor: executorId('x') },
      },
      { type: 'context.appended', ...base, text: said, tokens: Int32Array.of(9) },
    )
  }
  const counts = { turns, sampledTokens: 5 * turns, toolCalls: turns - 1, toolErrors: 0, answerTags: 0 }
  const reason = outcome === 'answered' ? 'stop' : finish === 'length' ? 'tokens' : 'turns'
  const finished = {
    type: 'rollout.finished',
    at: 0,
    trajectory: id,
    epoch: epoch(-1),
    outcome,
    reason,
    ...counts,
  } as const
  const place = { topic: 'trajectories', partition: 0, offset: 0, timestamp: 0 } as const
  const entries = [...facts, finished].map((message): Entry => ({ message, ...place }))
  const none = { reward: null, closed: null, decision: null }
  return { id: id, partition: 0, request, entries, finished, texts, ...none } satisfies Trajectory
}

test('under the limits that it had, every recorded trajectory ends as recorded', () => {
  expect(all).toHaveLength(88)
  for (const counted of all) expect(limitOutcome(counted, {}, unknown)).toEqual({ kind: 'same' })
})

test('fewer turns end a trajectory at the call that they do not allow, with what it had by then', () => {
  for (const counted of all) {
    const now = limitOutcome(counted, { turns: 2 }, unknown)
    if (counted.finished!.turns <= 2) expect(now).toEqual({ kind: 'same' })
    else {
      expect(now).toMatchObject({
        kind: 'cut',
        finished: { outcome: 'truncated', reason: 'turns', turns: 2, toolCalls: 1 },
      })
      expect(now).toMatchObject({ texts: counted.texts.slice(0, 2), textKnown: true })
    }
  }
})

test('fewer tokens cut the turn that exceeds them; its text is known where its tokens say it', () => {
  const spelled = trajectory(2, 'stop')
  const letters = (token: number) => 'abcde'[token - 1]
  // 3 prompt tokens; 5 + 1 behind them before the second turn.
  const now = limitOutcome(spelled, { responseTokens: 9 }, letters)
  expect(now).toMatchObject({ kind: 'cut', textKnown: true, finished: { outcome: 'truncated', reason: 'tokens' } })
  expect(now).toMatchObject({ texts: [spelled.texts[0], 'abc'], finished: { sampledTokens: 8, toolCalls: 1 } })
  expect(limitOutcome(spelled, { contextTokens: 12 }, unknown)).toMatchObject({ kind: 'cut', textKnown: false })
  // The tool's answer fits exactly: no token is left for a second turn.
  expect(limitOutcome(spelled, { responseTokens: 6 }, letters)).toMatchObject({
    kind: 'cut',
    finished: { turns: 1, sampledTokens: 5 },
  })
  expect(limitOutcome(spelled, { responseTokens: 11 }, letters)).toEqual({ kind: 'same' })
})

test('what the model would have been shown otherwise, or would have gone on with, needs a new generation', () => {
  const long = trajectory(3, 'stop', 'x'.repeat(40))
  expect(limitOutcome(long, { toolResponseChars: 40 }, unknown)).toEqual({ kind: 'same' })
  expect(limitOutcome(long, { toolResponseChars: 39 }, unknown)).toMatchObject({ kind: 'generate', fromTurn: 1 })
  expect(limitOutcome(long, { toolTimeoutMs: 10 }, unknown)).toMatchObject({
    kind: 'generate',
    why: 'a call took 20 ms, over the new deadline',
  })
  expect(limitOutcome(long, { toolTimeoutMs: 30 }, unknown)).toEqual({ kind: 'same' })
  const byTurns = trajectory(4, 'stop', 'ok', 'truncated')
  expect(limitOutcome(byTurns, {}, unknown)).toEqual({ kind: 'same' })
  expect(limitOutcome(byTurns, { turns: 5 }, unknown)).toMatchObject({ kind: 'generate', fromTurn: 4 })
  const cutOff = trajectory(2, 'length', 'ok', 'truncated')
  const tight = { ...cutOff.request.limits, responseTokens: 11 }
  const byTokens = { ...cutOff, request: { ...cutOff.request, limits: tight } }
  expect(limitOutcome(byTokens, {}, unknown)).toEqual({ kind: 'same' })
  expect(limitOutcome(byTokens, { contextTokens: 600 }, unknown)).toEqual({ kind: 'same' })
  expect(limitOutcome(byTokens, { contextTokens: 600, responseTokens: 500 }, unknown)).toMatchObject({
    kind: 'generate',
  })
})

test('rewards are judged again, and groups selected again, down to the advantages', async () => {
  const said = (await limits('--all', '--turns', '2', '--json')).lines()
  const summary = said.at(-1) as unknown as Record<string, unknown>
  const lines = said.slice(0, -1)
  expect(lines).toHaveLength(88)
  const cut = lines.filter(l => l.kind === 'cut')
  expect(cut.length).toBe(all.filter(c => c.finished!.turns > 2).length)
  for (const line of cut) expect(line.reward[1]).toBe(0)
  for (const group of new Set(lines.map(l => l.group))) {
    const kept = lines.filter(l => l.group === group && l.selection[1] === 'kept')
    const sum = kept.reduce((total, l) => total + l.advantage[1]!, 0)
    expect(Math.abs(sum)).toBeLessThan(1e-5)
  }
  expect(summary).toMatchObject({ trajectories: 88, cut: cut.length, generate: 0, groups: 10, groupsNotKnown: 0 })
  expect(Number(summary.groupsOtherwise)).toBeGreaterThan(0)
})

test('however many are judged at once, one grader is opened for them', async () => {
  const opened = jest.spyOn(graders, 'openGraders')
  const written = jest.spyOn(process.stdout, 'write').mockReturnValue(true)
  const program = new Command()
  registerLimits(program)
  try {
    await program.parseAsync(['limits', '--all', '--turns', '2', '--bus', `lmdb:${directory}`], { from: 'user' })
    expect(written.mock.calls.join('')).toContain('88 trajectories')
    expect(opened).toHaveBeenCalledTimes(1)
  } finally {
    written.mockRestore()
    opened.mockRestore()
  }
})

test('a group with a member that needs a new generation is said not to be known', async () => {
  const { stdout } = await limits('s0001.0000', '--tool-response-chars', '30')
  expect(stdout).toMatch(
    /s0001\.0000\/0 +needs a new generation from turn 1: a tool's answer of \d+ characters would be cut/,
  )
  expect(stdout).toContain('1 groups decided: 0 as recorded, 0 otherwise, 1 not known')
})

test('no limit, no target and no number are refused', async () => {
  expect(await limits('--all')).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('no limit to change was given'),
  })
  expect(await limits('--turns', '3')).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('no trajectory, group or step was named'),
  })
  expect(await limits('--all', '--turns', 'five')).toMatchObject({ code: 2, stderr: expect.stringContaining('4K') })
})
