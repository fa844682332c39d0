/**
 * Replay of a whole asynchronous run: three engines, two steps ahead. Its log is sound, today's code decides as it did, its
 * steps come out to the bit, and its trajectories fork.
 */
import { cpSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { TurnCompleted } from '../../messages/facts'
import { policyVersion } from '../../messages/ids'
import { fixtureOf } from '../../replay/exchange/fixture'
import type { ForkResult, TurnValue } from '../../replay/fork/forkResults'
import type { LearnedStep } from '../../replay/learning/learnedStep'
import type { Lineage } from '../../replay/learning/lineage'
import { openLog } from '../../replay/log/recordedRun'
import type { Verification } from '../../replay/verify/verification'
import { messagesOf, troupe } from '../support/cli'
import { changed, saveHistory } from '../support/histories'
import { smallRun } from '../support/smallRun'

jest.setTimeout(800_000)

const directory = mkdtempSync(join(tmpdir(), 'troupe-slice-replay-'))
afterAll(() => rmSync(directory, { recursive: true, force: true }))

const bus = join(directory, 'bus')
const jsonLines = <T>(text: string) =>
  text
    .trim()
    .split('\n')
    .map(line => JSON.parse(line) as T)
const replay = async (...args: string[]) => {
  const done = await troupe(['replay', ...args, ...(args.includes('--bus') ? [] : ['--bus', `lmdb:${bus}`])]).done
  return done
}

beforeAll(async () => {
  const asynchronous = ['engine.count=3', 'engine.threads=1', 'rollout.maxStaleness=2', 'train.checkpointEvery=2']
  const correction = 'train.correction={kind: truncated}'
  const settings = [...asynchronous, correction, 'train.keepVersions=8', 'evaluation.problems=0'].flatMap(s => [
    '--set',
    s,
  ])
  const args = ['--json', '--steps', '3', '--run', 'r', '--bus', `lmdb:${bus}`, ...smallRun(600), ...settings]
  const { code, stderr } = await troupe(['train', 'quickstart', ...args]).done
  expect({ code, stderr: stderr.slice(-2000) }).toMatchObject({ code: 0 })
})

test("the log of an asynchronous run verifies, and today's code decides as it did", async () => {
  const verified = JSON.parse((await replay('verify', '--run', 'r', '--json')).stdout) as Verification
  expect(verified).toMatchObject({ ok: true, problems: [], running: [] })
  const ran = await replay('run', '--all', '--run', 'r')
  expect({ code: ran.code, stdout: ran.stdout }).toMatchObject({
    code: 0,
    stdout: expect.stringContaining('the code is the same'),
  })
})

test('every step of an asynchronous run is computed again to the bit', async () => {
  const { code, stdout, stderr } = await replay('learn', '--all', '--run', 'r', '--check', '1e-6', '--json')
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
  const steps = jsonLines<LearnedStep>(stdout)
  expect(steps.map(s => s.step)).toEqual([1, 2, 3])
  for (const s of steps) {
    expect(s.recorded.gradNorm).toBeGreaterThan(0.01)
    expect(s).toMatchObject({ agrees: true, members: [], sameWeights: true, checkpoint: 'step-000000' })
    expect(Math.max(...Object.values(s.differences))).toBeLessThanOrEqual(1e-6)
  }
})

test('in another dtype a step agrees within the tolerance that is stated for it, and not bit by bit', async () => {
  const { code, stdout } = await replay('learn', '2', '--run', 'r', '--dtype', 'bfloat16', '--json')
  const [step] = jsonLines<LearnedStep>(stdout)
  expect({ code, agrees: step!.agrees }).toEqual({ code: 0, agrees: true })
  expect(step!.differences.gradNorm).toBeGreaterThan(0)
  expect(step!.differences.gradNorm).toBeLessThan(0.02)
})

test('a step whose record was changed does not agree, and what differs is named', async () => {
  const recorded = await openLog({ bus: `lmdb:${bus}`, run: 'r' })
  const fixture = await fixtureOf(recorded)
  await recorded.close()
  const started = fixture.records.flatMap(r => (r.message.type === 'step.started' ? [r.message] : []))[0]!
  const turn = fixture.records.flatMap(r =>
    r.message.type === 'turn.completed' && r.message.trajectory === started.trajectories[0] ? [r.message] : [],
  )[0]!
  const at = join(directory, 'changed')
  await saveHistory(
    at,
    changed(fixture, m => {
      if (m === turn) return { ...turn, tokens: turn.tokens.map(t => (t + 1) % 500) } as TurnCompleted
      if (m.type === 'group.selected' && m.kept.length > 0 && started.trajectories[0]!.startsWith(`${m.group}/`)) {
        return { ...m, kept: m.kept.map((k, i) => (i === 0 ? { ...k, advantage: k.advantage + 0.5 } : k)) }
      }
      return m
    }),
  )
  cpSync(join(bus, 'runs/r/checkpoints'), join(at, 'runs/r/checkpoints'), { recursive: true })
  const { code, stdout } = await replay('learn', '1', '--run', 'r', '--json', '--bus', `lmdb:${at}`)
  const [step] = jsonLines<LearnedStep>(stdout)
  expect({ code, agrees: step!.agrees, sameWeights: step!.sameWeights }).toEqual({
    code: 1,
    agrees: false,
    sameWeights: false,
  })
  expect(step!.differences.gradNorm).toBeGreaterThan(1e-6)
  expect(step!.members).toContain(started.trajectories[0])
})

test('a failed trajectory forks at each of its turns: shared tokens, a value for each turn, a lineage to the parent', async () => {
  const before = (await messagesOf(bus, 'r', 'runs')).length
  const listed = jsonLines<{ trajectory: string; turns: number }>(
    (await replay('ls', '--run', 'r', '--reward', '=0', '--multi-turn', '--json', '--limit', '1')).stdout,
  )
  const { trajectory, turns } = listed[0]!
  const args = ['fork', trajectory, '--from-turn', 'all', '--times', '2', '--run', 'r', '--as', 'forks', '--json']
  const { code, stdout, stderr } = await replay(...args)
  expect({ code, stderr: stderr.slice(-2000) }).toMatchObject({ code: 0 })
  const all = jsonLines<ForkResult & { type?: string; values?: TurnValue[] }>(stdout)
  const summary = all.pop()!
  expect(all).toHaveLength(2 * turns)
  expect(summary.values!.map(v => [v.turn, v.forks])).toEqual(Array.from({ length: turns }, (_, k) => [k, 2]))

  const sequence = (ofRun: string, id: string) =>
    messagesOf(bus, ofRun, 'trajectories').then(ms =>
      ms.flatMap(m => (m.type === 'turn.completed' && m.trajectory === id ? [m] : [])),
    )
  const parent = await sequence('r', trajectory)
  for (const { trajectory: child, turn } of all) {
    const own = await sequence('forks', child)
    for (let k = 0; k < turn; k++) expect([...own[k]!.tokens]).toEqual([...parent[k]!.tokens])
    expect(own.length).toBeGreaterThan(turn)
  }
  const [lineage] = jsonLines<Lineage>((await replay('lineage', all[0]!.trajectory, '--run', 'forks', '--json')).stdout)
  expect(lineage!.forkOf).toEqual({ parent: trajectory, run: 'r', turn: 0 })
  expect((await replay('verify', '--run', 'forks')).code).toBe(0)
  expect((await replay('run', '--all', '--run', 'forks')).stdout).toContain('no decision differs')
  expect((await messagesOf(bus, 'r', 'runs')).length).toBe(before)
})

test('where versions differ, each turn forks under the one that sampled it, and each token has the entropy under the weights that sampled it', async () => {
  const args = ['ls', '--run', 'r', '--multi-turn', '--policy', '0', '--json', '--limit', '1']
  const { trajectory, turns } = jsonLines<{ trajectory: string; turns: number }>((await replay(...args)).stdout)[0]!
  const recorded = await openLog({ bus: `lmdb:${bus}`, run: 'r' })
  const fixture = await fixtureOf(recorded)
  await recorded.close()
  const at = join(directory, 'versions')
  await saveHistory(
    at,
    changed(fixture, m => {
      if (m.type !== 'turn.completed' || m.trajectory !== trajectory) return m
      return {
        ...m,
        segments: [{ policyVersion: policyVersion(m.turn === 0 ? 0 : 2), start: 0, end: m.tokens.length }],
      }
    }),
  )
  // Weights are files of the run, which an imported log does not bring along.
  cpSync(join(directory, 'bus/runs/r/weights'), join(at, 'runs/r/weights'), { recursive: true })
  const of = ['--run', 'r', '--json', '--bus', `lmdb:${at}`]
  const { code, stdout, stderr } = await replay('fork', trajectory, '--from-turn', 'all', '--as', 'forks', ...of)
  expect({ code, stderr: stderr.slice(-2000) }).toMatchObject({ code: 0 })
  const all = jsonLines<ForkResult & { values?: (TurnValue & { policyVersion: number })[] }>(stdout)
  const summary = all.pop()!
  const versions = Array.from({ length: turns }, (_, turn) => (turn === 0 ? 0 : 2))
  expect(summary.values!.map(v => v.policyVersion)).toEqual(versions)
  const facts = await messagesOf(at, 'forks', 'trajectories')
  for (const { trajectory: child, turn } of all) {
    const last = facts.findLast((m): m is TurnCompleted => m.type === 'turn.completed' && m.trajectory === child)!
    expect(last.segments.map(s => s.policyVersion)).toEqual([versions[turn]])
  }
  expect((await replay('verify', '--run', 'forks', '--bus', `lmdb:${at}`)).code).toBe(0)
  expect((await replay('run', '--all', '--run', 'forks', '--bus', `lmdb:${at}`)).stdout).toContain(
    'no decision differs',
  )

  const entropy = async (args: readonly string[], ...asked: string[]) => {
    const { code, stdout, stderr } = await replay('entropy', trajectory, ...args, ...asked)
    expect({ code, stderr: stderr.slice(-2000) }).toEqual({ code: 0, stderr: '' })
    return JSON.parse(stdout) as { measure: string; sampled: number; meanValue: number }
  }
  const published = (await messagesOf(bus, 'r', 'learner')).flatMap(m => (m.type === 'weights.published' ? [m] : []))
  const second = join(bus, 'runs/r', published.find(m => m.version === 2)!.url)
  const [drawn, underFirst, own, underSecond] = await Promise.all([
    entropy(['--run', 'r', '--json']),
    entropy(['--run', 'r', '--json'], '--with-model'), // in `r` itself the first version sampled all of it
    entropy(of, '--with-model'),
    entropy(of, '--with-model', second),
  ])
  // Both estimate the same mean; of a distribution over a few hundred tokens neither can be over its logarithm.
  expect(underFirst).toMatchObject({ measure: 'entropy', sampled: drawn.sampled })
  expect(underFirst.meanValue).toBeGreaterThan(0)
  expect(underFirst.meanValue).toBeLessThan(Math.log(1000))
  expect(own.meanValue).not.toBeCloseTo(underFirst.meanValue, 9)
  expect(own.meanValue).not.toBeCloseTo(underSecond.meanValue, 9)
})

test('a fork goes on from an edited tool result, rendered anew', async () => {
  const listed = jsonLines<{ trajectory: string }>(
    (await replay('ls', '--run', 'r', '--multi-turn', '--json', '--limit', '1')).stdout,
  )
  const file = join(directory, 'result.txt')
  writeFileSync(file, 'Tool call success\nstdout: 4711')
  const args = ['--from-turn', '1', '--edit-tool-result', file, '--seed', '5', '--temperature', '0.5', '--as', 'edited']
  const { code, stderr } = await replay('fork', listed[0]!.trajectory, ...args, '--run', 'r')
  expect({ code, stderr: stderr.slice(-2000) }).toMatchObject({ code: 0 })
  const facts = await messagesOf(bus, 'edited', 'trajectories')
  const appended = facts.flatMap(m => (m.type === 'context.appended' ? [m] : []))[0]!
  expect(appended.text).toContain('stdout: 4711')
  expect(facts.flatMap(m => (m.type === 'rollout.requested' ? [m.sampling.temperature] : []))).toEqual([0.5])
  const wrong = await replay('fork', listed[0]!.trajectory, '--from-turn', '99', '--run', 'r')
  expect(wrong).toMatchObject({ code: 2, stderr: expect.stringContaining('no turn 99') })
})
