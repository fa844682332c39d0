/** Today's code over saved histories: a change of what the coordinator or the grouper decides is seen at its first event. */

import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import fc from 'fast-check'
import { coordinator } from '../../actors/rollouts/coordinator'
import { grouper } from '../../actors/rollouts/grouper'
import type { RenderRequest } from '../../actors/rollouts/nextActions'
import { owner } from '../../actors/rollouts/owner'
import type { GenerateTurn } from '../../messages/commands'
import type { Fact } from '../../messages/facts'
import { type Fixture, unpackFixture } from '../../replay/exchange/fixture'
import { openLog } from '../../replay/log/recordedRun'
import { ownerOf, replayRun, replayTarget } from '../../replay/rerun/replayRun'
import { type OwnerBehaviour, type Rerun, rerunPartition } from '../../replay/rerun/rerunPartition'
import type { Decision } from '../../runtime/host/behaviour'
import { answer, claim, completed, requested, toolCall } from '../support/facts'
import { changed, quickstartHistory, saveHistory } from '../support/histories'
import { troupeHere } from '../support/troupeHere'
import { world } from '../support/world'

jest.setTimeout(60_000)

const directory = mkdtempSync(join(tmpdir(), 'troupe-replay-run-'))
afterAll(() => rmSync(directory, { recursive: true, force: true }))

const history = quickstartHistory()
let made = 0

async function replayed(fixture: Fixture, behaviour?: Parameters<typeof replayRun>[1]): Promise<Rerun> {
  const at = join(directory, `h${made++}`)
  await saveHistory(at, fixture)
  const recorded = await openLog({ bus: `lmdb:${at}`, run: fixture.run })
  try {
    return await replayRun(recorded, behaviour)
  } finally {
    await recorded.close()
  }
}

/** Today's owner with something of what it decides changed. */
const mutated =
  (change: (decision: Decision, input: { readonly type: string }) => Decision) =>
  (config: Parameters<typeof ownerOf>[0]): OwnerBehaviour => {
    const today = ownerOf(config)
    return {
      ...today,
      decide: (state, input, fx) => ({
        ...today.decide(state, input, fx),
        ...change(today.decide(state, input, fx), input),
      }),
    }
  }
const mapFacts = (decision: Decision, change: (fact: Fact) => Fact | null): Decision => ({
  ...decision,
  facts: decision.facts.flatMap(f => change(f) ?? []),
})
const firstOf = (type: string, where: (fact: Fact) => boolean = () => true) => {
  const facts = history.records.filter(r => r.topic === 'trajectories').map(r => r.message as Fact)
  return `trajectories:0:${facts.findIndex(f => f.type === type && where(f))}`
}

test.each(readdirSync(join(__dirname, '../histories')).filter(file => file.endsWith('.jsonl.gz')))(
  'the saved history %s replays without a difference',
  async file => {
    const fixture = unpackFixture(readFileSync(join(__dirname, '../histories', file)))
    const result = await replayed(fixture)
    expect(result.divergences).toEqual([])
    expect(result.inFlight).toEqual([])
    const decisions = fixture.records.filter(
      ({ message: m }) =>
        ['turn.asked', 'tool.asked', 'rollout.finished', 'group.closed', 'group.selected', 'group.rejected'].includes(
          m.type,
        ) ||
        (m.type === 'tool.completed' && m.executor === null),
    )
    expect(result.same).toBe(decisions.length)
  },
)

test('a coordinator that leaves room for a token less is caught at the first turn that it asks for', async () => {
  const { divergences } = await replayed(history, {
    behaviour: mutated(d => mapFacts(d, f => (f.type === 'turn.asked' ? { ...f, maxTokens: f.maxTokens - 1 } : f))),
  })
  expect(divergences[0]).toMatchObject({ place: firstOf('turn.asked'), kind: 'differs', fields: ['maxTokens'] })
})

test('a coordinator that seeds later turns otherwise is caught at the first second turn', async () => {
  const later = (f: Fact): boolean => f.type === 'turn.asked' && f.turn > 0
  const { divergences } = await replayed(history, {
    behaviour: mutated(d => mapFacts(d, f => (f.type === 'turn.asked' && later(f) ? { ...f, seed: f.seed ^ 1 } : f))),
  })
  expect(divergences[0]).toMatchObject({ place: firstOf('turn.asked', later), fields: ['seed'] })
})

test('a coordinator that forgets to go on after a tool is caught where the log goes on', async () => {
  const { divergences } = await replayed(history, {
    behaviour: mutated((d, input) => (input.type === 'context.appended' ? { facts: [], commands: [] } : d)),
  })
  const second = (f: Fact) => f.type === 'turn.asked' && f.turn > 0
  expect(divergences[0]).toMatchObject({ place: firstOf('turn.asked', second), kind: 'unexpected', expected: null })
})

test('a coordinator that calls a tool twice is caught by the call that the log lacks', async () => {
  const { divergences } = await replayed(history, {
    behaviour: mutated(d => ({
      ...d,
      facts: d.facts.flatMap((f): readonly Fact[] => (f.type === 'tool.asked' ? [f, { ...f, call: f.call + 1 }] : [f])),
    })),
  })
  expect(divergences[0]).toMatchObject({
    kind: 'missing',
    after: expect.stringContaining('trajectories:0:'),
    actual: null,
  })
  expect(divergences[0]!.expected).toMatchObject({ type: 'tool.asked', call: 1 })
})

test('a grouper that keeps others is caught at the decision', async () => {
  const { divergences } = await replayed(history, {
    behaviour: config => ownerOf({ ...config, selection: { ...config.selection, variant: 'release' } }),
  })
  expect(divergences[0]).toMatchObject({ place: firstOf('group.selected'), kind: 'differs' })
  expect(divergences[0]!.fields).toContain('selection')
})

test('a field that decisions of the recorded code did not have is no difference, and one with another value is', async () => {
  const earlier = changed(history, m => {
    if (m.type !== 'rollout.finished') return m
    const { responseTokens: _, ...rest } = m
    return rest
  })
  expect((await replayed(earlier)).divergences).toEqual([])
  const counted = changed(history, m => (m.type === 'rollout.finished' ? { ...m, responseTokens: 1 } : m))
  const { divergences } = await replayed(counted)
  expect(divergences.length).toBeGreaterThan(0)
  expect(new Set(divergences.map(d => d.fields.join()))).toEqual(new Set(['responseTokens']))
})

test('a decision that was said again before it was read counts once and is no difference', async () => {
  const records = history.records.flatMap(record =>
    record.message.type === 'turn.asked' && record.message.attempt === 0 ? [record, record] : [record],
  )
  const { divergences, repeated, same } = await replayed({ ...history, records })
  expect(divergences).toEqual([])
  expect(repeated).toBe(records.length - history.records.length)
  expect(same).toBe((await replayed(history)).same)
})

/** What a replay of facts at offsets from 0 on comes to. */
function replayedLog(log: readonly Fact[], behaviour: () => OwnerBehaviour): Rerun {
  const again = rerunPartition(behaviour)
  log.forEach((message, offset) => {
    again.take({ message, topic: 'trajectories', partition: 0, offset, timestamp: 0 })
  })
  return again.result(true)
}
const twoOfFour = () =>
  owner(
    coordinator({ turnTimeoutMs: 10_000 }),
    grouper({ runSeed: 1, selection: { variant: 'paper', keep: 2, minNegative: 1, minPositive: 1 } }),
  )

test('turns that one tick finds overdue are each counted as by a deadline; what a restart asks again is told from them', () => {
  const w = world(twoOfFour())
  w.append(claim())
  for (let member = 0; member < 4; member++) w.append(requested('g0', member, { deadlineMs: 1e9 }))
  w.tick(11_000)
  expect(replayedLog(w.log, twoOfFour)).toMatchObject({ byClock: 4, askedAgain: 0, repeated: 0, divergences: [] })
  w.restart()
  w.tick(11_000)
  expect(replayedLog(w.log, twoOfFour)).toMatchObject({ byClock: 8, askedAgain: 4, repeated: 0, divergences: [] })
})

test('a group that its deadline closes is two decisions by the clock: that it is closed, and what is kept', () => {
  const w = world(twoOfFour())
  w.append(claim())
  for (let member = 0; member < 4; member++) w.append(requested('g0', member, { deadlineMs: 5000 }))
  w.tick(6000)
  const { byClock, divergences } = replayedLog(w.log, twoOfFour)
  expect({ byClock, divergences }).toEqual({ byClock: 2, divergences: [] })
})

test('a target alone comes to what it comes to among all the rest, differences and all', async () => {
  let turns = 0
  const touched = new Set<string>()
  const tampered = changed(history, m => {
    const isFinish = m.type === 'rollout.finished' && turns++ % 9 === 0
    const isAsk = m.type === 'tool.asked' && turns++ % 13 === 0
    if (!isFinish && !isAsk) return m
    touched.add(m.trajectory)
    return isFinish ? { ...m, answerTags: m.answerTags + 1 } : null
  })
  const at = join(directory, 'target')
  await saveHistory(at, { ...tampered, partitions: 2 })
  const recorded = await openLog({ bus: `lmdb:${at}`, run: history.run })
  const targets = [...new Set(history.records.flatMap(({ message: m }) => ('trajectory' in m ? [m.trajectory] : [])))]
  let differing = 0
  const tried = targets.filter((id, k) => touched.has(id) || k % 5 === 0)
  for (const target of [...tried, 's0001.0000', 's0002.0001']) {
    const wants = (id: string) => id === target || id.startsWith(`${target}/`)
    const alone = await replayTarget(recorded, target)
    expect(alone).toEqual(await replayRun(recorded, { wants }))
    if (alone.divergences.length > 0) differing++
  }
  expect(differing).toBeGreaterThan(3)
  expect(differing).toBeLessThan(targets.length / 2)
  await recorded.close()
})

test('a tampered log is named by event, expected and actual, and ends with exit code 1; one target alone can be looked at', async () => {
  const at = join(directory, 'tampered')
  let finished: string | undefined
  await saveHistory(
    at,
    changed(history, m => {
      if (m.type !== 'rollout.finished' || finished !== undefined || !m.trajectory.startsWith('s0002')) return m
      finished = m.trajectory
      return { ...m, answerTags: 7 }
    }),
  )
  const run = (...args: string[]) => troupeHere(['replay', 'run', ...args, '--bus', `lmdb:${at}`])
  const place = firstOf('rollout.finished', f => f.type === 'rollout.finished' && f.trajectory === finished)
  const all = await run('--all')
  expect(all.code).toBe(1)
  expect(all.stdout).toContain(`${place}  ${finished}: today's code decides otherwise`)
  expect(all.stdout).toMatch(/expected +rollout.finished {"answerTags":1}/)
  expect(all.stdout).toMatch(/actual +rollout.finished {"answerTags":7}/)
  expect((await run(finished!)).code).toBe(1)
  expect((await run('s0001.0000')).code).toBe(0)
  expect((await run()).code).toBe(2)
})

test('whatever the order of answers and whenever owners die, their own decisions replay without a difference', () => {
  fc.assert(
    fc.property(fc.infiniteStream(fc.nat()), fc.array(fc.nat(30), { maxLength: 4 }), (picks, lives) => {
      const w = world(twoOfFour())
      w.append(claim())
      for (let member = 0; member < 4; member++) w.append(requested('g0', member))
      const answerOne = (pick: number): boolean => {
        const open = w.commands.length + w.requests.length
        if (open === 0) return false
        const index = pick % open
        if (index >= w.commands.length) {
          const { trajectory, turn, epoch } = w.takeRequest(index - w.commands.length) as RenderRequest
          w.append({ type: 'context.appended', at: 0, trajectory, turn, epoch, text: 'r', tokens: Int32Array.of(8) })
          return true
        }
        const command = w.takeCommand(index)
        if (command.type === 'turn.generate') {
          const texts = [toolCall('print(1)'), answer(command.order % 2 === 0 ? '4' : '5'), '<tool_call>{</tool_call>']
          w.append(completed(command as GenerateTurn, texts[(command.order + command.turn) % 3]!))
        } else if (command.type === 'tool.execute') {
          const { trajectory, turn, call, attempt, tool } = command
          const ran = { stdout: '', stderr: '', exitCode: 0, wallMs: 1, cpuMs: 1, executor: 'x' as never }
          w.append({
            type: 'tool.completed',
            at: 0,
            trajectory,
            turn,
            call,
            attempt,
            tool,
            status: 'ok',
            text: '4',
            ...ran,
          })
        } else if (command.type === 'answer.verify') {
          const { trajectory, attempt, response } = command
          const reward = response.includes('boxed{4}') ? 1 : 0
          w.append({ type: 'reward.assigned', at: 0, trajectory, attempt, reward, answer: '', how: 'test' })
        }
        return true
      }
      for (const steps of lives) {
        for (let i = 0; i < steps; i++) if (!answerOne(picks.next().value as number)) break
        w.restart(claim('b'))
      }
      while (answerOne(picks.next().value as number)) {}
      expect(replayedLog(w.log, twoOfFour).divergences).toEqual([])
    }),
    { numRuns: 100 },
  )
})
