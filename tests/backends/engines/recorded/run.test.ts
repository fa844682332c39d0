/** Whole runs on engines that need no model: what they say goes through the actors as any engine's turns do. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { RecordedTurns, recordedEngine } from '../../../../backends/engines/recorded/recorded'
import { assembleSequence, type EngineModel } from '../../../../kernels'
import type { TrajectoryFact } from '../../../../messages/facts'
import { engineId, type TrajectoryId } from '../../../../messages/ids'
import type { Journal } from '../../../../runtime/journal/journal'
import { everything } from '../../../support/audit'
import { endAll, messagesOf, type Running, troupe } from '../../../support/cli'
import { ofType } from '../../../support/facts'
import { drawAt } from '../../../support/hashModel'
import { type SteppedEngine, steppedEngine, turnOf } from '../../../support/steppedEngines'
import { type SteppedRunOptions, steppedRun } from '../../../support/steppedRun'

jest.setTimeout(600_000)

const partitions = 3

/** Every trajectory of a log, token by token, with the logprobs and the versions that sampled it. */
async function sequencesOf(journal: Journal) {
  const facts = new Map<TrajectoryId, TrajectoryFact[]>()
  for (let partition = 0; partition < partitions; partition++) {
    for (const { message } of await everything(journal, 'trajectories', partition)) {
      if (!('trajectory' in message)) continue
      facts.set(message.trajectory, [...(facts.get(message.trajectory) ?? []), message as TrajectoryFact])
    }
  }
  return new Map([...facts].map(([trajectory, own]) => [trajectory, assembleSequence(own)]))
}

const options = (engines: readonly SteppedEngine[]): SteppedRunOptions => ({
  ...{ engines, partitions, groupSize: 8, trainingSteps: 10 },
  selection: { variant: 'none', keep: 8, rejectEqual: false },
  plan: { steps: 2, groupsPerStep: 3, refillShare: 0, maxStaleness: 1 },
  limits: {
    contextTokens: 2048,
    responseTokens: 600,
    turns: 4,
    callsPerTurn: 1,
    toolTimeoutMs: 1000,
    toolResponseChars: 100,
  },
  grader: async ({ response }) => ({ reward: response.includes('boxed{4}') ? 1 : 0, answer: '', how: 'test' }),
})

test('a run whose turns come from the log of another has the same trajectories, tool calls and rewards, token by token', async () => {
  const engines = ['e0', 'e1'].map(id =>
    steppedEngine(engineId(id), 16, seed => turnOf(seed, 5 + Math.floor(60 * drawAt(seed, 0)))),
  )
  const first = await steppedRun({
    ...options(engines),
    // Its turns are interrupted, and go on elsewhere.
    async onStep(n, { joined, rejoin }) {
      if (n === 20) await joined.get(engines[0]!)!.leave('test')
      if (n === 40) await rejoin(engines[0]!)
    },
  })
  const turns = await RecordedTurns.of(first.troupe.journal)
  const sizes = { kvTokens: 65_536, blockTokens: 16, maxSequences: 64, contextTokens: 2048, vocabulary: 65_536 }
  const decode = async () => {
    throw new Error('nothing is cut short')
  }
  const recorded = { ...recordedEngine({ id: engineId('r0'), turns, decode, ...sizes }), step: () => {} }
  const second = await steppedRun(options([recorded]))
  try {
    expect(
      (await first.factsOf('trajectories', 'turn.interrupted')).filter(({ tokens }) => tokens.length > 0),
    ).not.toHaveLength(0)
    expect(await second.factsOf('trajectories', 'turn.interrupted')).toEqual([])
    const [before, after] = [await sequencesOf(first.troupe.journal), await sequencesOf(second.troupe.journal)]
    expect(after.size).toBe(2 * 3 * 8)
    expect([...after.values()].some(({ tokens }) => tokens.length > 100)).toBe(true)
    expect(new Map([...after].sort())).toEqual(new Map([...before].sort()))
    const rewardsOf = async (run: typeof first) =>
      new Map(
        (await run.factsOf('trajectories', 'reward.assigned')).map(({ trajectory, reward }) => [trajectory, reward]),
      )
    expect(await rewardsOf(second)).toEqual(await rewardsOf(first))
    expect((await second.factsOf('trajectories', 'tool.completed')).length).toBeGreaterThan(0)
  } finally {
    await second.close()
    await first.close()
  }
})

describe('on the command line', () => {
  const bus = mkdtempSync(join(tmpdir(), 'troupe-file-engines-'))
  const started: Running[] = []
  afterAll(async () => {
    await endAll(started)
    rmSync(bus, { recursive: true, force: true })
  })

  const model: EngineModel = {
    ...{ name: 'laptop', family: 'vllm', kvTokens: 4096, blockTokens: 16, maxSequences: 8, maxBatchTokens: 2048 },
    prefixSharing: true,
    stepMs: {
      ...{ overhead: 1, denseFloor: 0, densePerToken: 0.001, decodeBase: 0, decodePerSequence: 0, decodePerKvToken: 0 },
      ...{ prefillBase: 0, prefillPerToken: 0.01, prefillPerPair: 0 },
    },
  }
  const file = join(bus, 'engine.json')
  writeFileSync(file, JSON.stringify(model))

  const run = (command: string, engine: string, name: string, ...more: readonly string[]) => {
    const small = [
      'rollout.groupSize=4',
      'rollout.groupsPerStep=4',
      'selection.keep=2',
      'selection.minPositive=1',
      'selection.minNegative=1',
    ]
    const set = [...small, 'selection.refillShare=0', 'evaluation.problems=0', 'engine.turnTokens=20'].flatMap(each => [
      '--set',
      each,
    ])
    const args = [
      command,
      'quickstart',
      '--engine',
      engine,
      '--bus',
      `lmdb:${bus}`,
      '--run',
      name,
      '--steps',
      '1',
      ...set,
      ...more,
    ]
    started.push(troupe(args))
    return started.at(-1)!.done
  }
  const byEngine = (a: { engine: string }, b: { engine: string }) => a.engine.localeCompare(b.engine)
  const turnsOf = async (name: string) => {
    const facts = await messagesOf(bus, name, 'trajectories')
    const said = ofType(facts, 'turn.completed').map(({ trajectory, turn, tokens, logprobs, text, finish }) => ({
      ...{ trajectory, turn, tokens: [...tokens], logprobs: [...logprobs], text, finish },
    }))
    return said.sort((a, b) => a.trajectory.localeCompare(b.trajectory) || a.turn - b.turn)
  }

  test('a rollout is rehearsed on simulated engines, and its log answers the next one with the same trajectories', async () => {
    const rehearsed = await run('rollout', `simulated:${file}`, 'rehearsal', '--set', 'engine.count=3')
    expect(rehearsed).toMatchObject({ code: 0 })
    const turns = await turnsOf('rehearsal')
    expect(turns.length).toBeGreaterThanOrEqual(16)
    const joined = ofType(await messagesOf(bus, 'rehearsal', 'runs'), 'engine.joined')
    expect(
      joined.map(({ engine, kind, kvTokens }) => ({ engine: String(engine), kind, kvTokens })).sort(byEngine),
    ).toEqual([0, 1, 2].map(k => ({ engine: `simulated-${k}`, kind: 'simulated', kvTokens: 4096 })))
    expect(await run('rollout', 'recorded:rehearsal', 'again')).toMatchObject({ code: 0 })
    expect(await turnsOf('again')).toEqual(turns)

    // Other prompts: no rollout has a reward, and each says why.
    const elsewhere = `recorded:rehearsal@lmdb:${bus}`
    await run('rollout', elsewhere, 'other', '--set', 'seed=2', '--set', 'rollout.groupsPerStep=1')
    const failed = ofType(await messagesOf(bus, 'other', 'trajectories'), 'rollout.finished')
    expect(failed.length).toBeGreaterThanOrEqual(4)
    for (const { outcome, reason } of failed) {
      expect(outcome).toBe('failed')
      expect(reason).toMatch(/is not recorded in run 'rehearsal': the nearest recorded is .* departs at token \d+/)
    }
    const interrupted = ofType(await messagesOf(bus, 'other', 'trajectories'), 'turn.interrupted')
    expect(new Set(interrupted.map(({ reason }) => reason))).toEqual(new Set(['not-recorded']))
  })

  test('what cannot answer is refused at the start: a run that is not there, a file with a wrong field, training', async () => {
    const wrong = join(bus, 'wrong.json')
    writeFileSync(wrong, JSON.stringify({ ...model, blockToken: 16 }))
    const [gone, misread, trained] = await Promise.all([
      run('rollout', 'recorded:nobody', 'a'),
      run('rollout', `simulated:${wrong}`, 'b'),
      run('train', 'recorded:rehearsal', 'c'),
    ])
    expect(gone).toMatchObject({ code: 1, stderr: expect.stringMatching(/no recorded run 'nobody' in .*which holds/) })
    expect(misread).toMatchObject({
      code: 2,
      stderr: expect.stringMatching(/wrong\.json: a problem\s+blockToken: unknown field/),
    })
    expect(trained).toMatchObject({ code: 1, stderr: expect.stringMatching(/'rehearsal' cannot be used for training/) })
  })
})
