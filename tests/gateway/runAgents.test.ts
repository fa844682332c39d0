/** Agents lead the rollouts of a run: programs in processes of their own, whose calls are turns of the run's engines. */
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { encode } from '../../messages/codec'
import type { Fact, RolloutFinished } from '../../messages/facts'
import { memberOf } from '../../messages/ids'
import type { Verification } from '../../replay/verify/verification'
import { verifier } from '../../replay/verify/verifier'
import type { BusRecord } from '../../runtime/bus/bus'
import { openMemoryBus } from '../../runtime/bus/memory/memoryBus'
import type { Embedded } from '../../runtime/embed'
import { pythonPath } from '../../runtime/python'
import { everything } from '../support/audit'
import { agentRun } from '../support/gateway/agentRun'
import { scriptedEngine } from '../support/gateway/scriptedEngine'
import { until } from '../support/until'

jest.setTimeout(60_000)

const directory = mkdtempSync(join(tmpdir(), 'troupe-agents-'))
afterAll(() => rmSync(directory, { recursive: true, force: true }))

const support = join(__dirname, '../support/gateway')

const ends = (facts: readonly Fact[]) =>
  facts
    .filter((fact): fact is RolloutFinished => fact.type === 'rollout.finished')
    .sort((a, b) => memberOf(a.trajectory) - memberOf(b.trajectory))

const ended = (troupe: Embedded) => async () =>
  (await everything(troupe.journal, 'runs', 0)).some(({ message }) => message.type === 'run.finished')

async function verified({ journal }: Embedded): Promise<Verification> {
  const check = verifier(journal.run, () => true)
  for (const topic of ['runs', 'trajectories', 'learner'] as const)
    for (const entry of await everything(journal, topic, 0))
      check.take(entry, encode(entry.message, { run: journal.run }) as BusRecord)
  return check.result([], 0, { files: null, problems: [] })
}

test('agents that end, crash or use up their calls give the outcomes answered, failed and truncated, and each sampled token is trained once', async () => {
  process.env.HIDDEN = 'a secret of the user'
  const { troupe, engine, batches, facts, close } = await agentRun(directory, {})
  try {
    await until(ended(troupe), 40_000)
    const all = await facts()
    expect(ends(all).map(({ outcome, reason, turns }) => ({ outcome, reason, turns }))).toEqual([
      { outcome: 'answered', reason: 'stop', turns: 2 },
      { outcome: 'failed', reason: 'agent: exit 1: RuntimeError: lost my way', turns: 1 },
      { outcome: 'answered', reason: 'stop', turns: 3 },
      { outcome: 'truncated', reason: 'turns', turns: 4 },
    ])
    const rewarded = all.filter(fact => fact.type === 'reward.assigned').map(fact => memberOf(fact.trajectory))
    expect(rewarded.sort()).toEqual([0, 2, 3])
    // The title is labelled aux: it is recorded, and not trained on.
    const sampled = engine.sampled.map(({ tokens }) => String(tokens))
    const trained = batches.flat().flatMap(sequence => {
      const runs: string[] = []
      for (let at = 0; at < sequence.tokens.length; at++) {
        if (sequence.mask[at] === 0) continue
        const end = sequence.mask.indexOf(0, at)
        runs.push(String(sequence.tokens.slice(at, end < 0 ? sequence.tokens.length : end)))
        at = end < 0 ? sequence.tokens.length : end
      }
      return runs
    })
    expect(trained).toHaveLength(2 + 2 + 4)
    for (const tokens of trained) expect(sampled).toContain(tokens)
    expect(new Set(trained).size).toBe(trained.length)
    // The calls' facts hold the engines' answers, so `verify` lists no fact as ignored.
    const { ok, ignored, capturedCalls, turnsOfCalls } = await verified(troupe)
    expect([ok, ignored]).toEqual([true, {}])
    expect([capturedCalls, turnsOfCalls]).toEqual(
      ['call.started', 'turn.completed'].map(type => all.filter(fact => fact.type === type).length),
    )
    const group = readdirSync(join(directory, 'agents'))[0]!
    expect(readFileSync(join(directory, 'agents', group, '1.0.log'), 'utf8')).toContain('RuntimeError: lost my way')
  } finally {
    delete process.env.HIDDEN
    await close()
  }
})

test('a function is imported once and forked for each rollout; its number is the reward, and without one the rollout has none', async () => {
  const { troupe, facts, close } = await agentRun(directory, {
    file: join(support, 'agentFunction.py'),
    reward: 'agent',
  })
  try {
    await until(ended(troupe), 40_000)
    const all = await facts()
    expect(ends(all).map(({ outcome, turns }) => [outcome, turns])).toEqual(Array(4).fill(['answered', 1]))
    const rewards = new Map(
      all
        .filter(fact => fact.type === 'reward.assigned')
        .map(fact => [memberOf(fact.trajectory), [fact.reward, fact.how]]),
    )
    expect([...rewards].sort()).toEqual([
      [0, [0, 'given']],
      [2, [0.2, 'given']],
      [3, [0.3, 'given']],
    ])
    expect(all.filter(fact => fact.type === 'reward.failed')).toMatchObject([{ how: 'none-given' }])
  } finally {
    await close()
  }
})

/** Pids of processes whose environment has this text. */
const processesWith = (text: string): string[] =>
  readdirSync('/proc').filter(pid => {
    try {
      return /^\d+$/.test(pid) && readFileSync(`/proc/${pid}/environ`, 'latin1').includes(text)
    } catch {
      return false
    }
  })

test('a check reads what the agent left, after its processes are dead; at its deadline an agent has failed, with all that it started', async () => {
  const check = [
    pythonPath(),
    '-c',
    'import os; print(os.environ["TROUPE_TRUTH"], os.listdir("."), sep="\\n"); print(0.5)',
  ]
  const mark = `mark-${process.pid}`
  const { facts, close } = await agentRun(
    directory,
    { reward: 'check', check, environment: { WRITES: '1', REWARD: '1', MARK: mark } },
    { groupSize: 2 },
  )
  try {
    await until(async () => (await facts()).some(fact => fact.type === 'group.closed'), 40_000)
    const all = await facts()
    // The agent may not reward itself here: it was refused, and crashed.
    expect(ends(all).map(({ outcome }) => outcome)).toEqual(['failed', 'failed'])
    expect(ends(all)[0]!.reason).toMatch(/403/)
  } finally {
    await close()
  }
  const other = await agentRun(
    directory,
    { reward: 'check', check, environment: { WRITES: '1', MARK: mark }, deadlineMs: 15_000 },
    { groupSize: 2 },
  )
  try {
    await until(async () => (await other.facts()).some(fact => fact.type === 'reward.assigned'), 40_000)
    expect((await other.facts()).find(fact => fact.type === 'reward.assigned')).toMatchObject({
      reward: 0.5,
      how: 'check',
    })
  } finally {
    await other.close()
  }
  const late = await agentRun(
    directory,
    { environment: { HANGS: '1', MARK: mark }, deadlineMs: 2500 },
    { groupSize: 2 },
  )
  try {
    await until(async () => ends(await late.facts()).length === 2, 40_000)
    expect(ends(await late.facts())[0]).toMatchObject({ outcome: 'failed', reason: expect.stringMatching(/deadline/) })
    await until(() => processesWith(`MARK=${mark}`).length === 0)
  } finally {
    await late.close()
  }
})

test('when the run is killed, its agents end with it, and the next process begins their rollouts again: no call of before is trained', async () => {
  const bus = openMemoryBus()
  const stuck = scriptedEngine((context, turn) =>
    context.includes('and now') ? new Promise(() => {}) : `lost ${turn}`,
  )
  const first = await agentRun(directory, {}, { bus, groupSize: 3, engine: stuck })
  await until(async () => (await first.facts()).filter(fact => fact.type === 'call.finished').length > 0, 40_000)
  await first.close()
  const second = await agentRun(directory, {}, { bus, groupSize: 3 })
  try {
    await until(ended(second.troupe), 40_000)
    const all = await second.facts()
    const openings = all.flatMap(fact => (fact.type === 'session.opened' ? [fact.opening] : []))
    expect(new Set(openings)).toEqual(new Set([0, 1]))
    const trained = second.batches
      .flat()
      .map(sequence => String.fromCodePoint(...sequence.tokens.filter(t => t < 0x110000)))
    expect(trained.length).toBeGreaterThan(0)
    expect(trained.join()).not.toContain('lost')
    const calls = all.flatMap(fact => (fact.type === 'call.started' ? [`${fact.trajectory}#${fact.call}`] : []))
    expect(new Set(calls).size).toBe(calls.length)
  } finally {
    await second.close()
  }
})

test('an agent that repeats a variable that it gets by name, or the key of its session, gets neither into a fact nor into its log', async () => {
  process.env.TROUPE_TEST_TOKEN = 'SEKRET-by-name'
  const program = `import os, sys, time
secret = os.environ["TROUPE_TEST_TOKEN"]
print("on stdout", secret, flush=True)
sys.stderr.write("bad key " + secret[:9])
sys.stderr.flush()
time.sleep(0.2)
sys.exit(secret[9:] + " and " + os.environ["OPENAI_API_KEY"])`
  const own = join(directory, 'repeats')
  const { facts, close } = await agentRun(
    own,
    { command: [pythonPath(), '-c', program], passed: ['TROUPE_TEST_TOKEN'] },
    { groupSize: 1 },
  )
  try {
    await until(async () => ends(await facts()).length === 1, 40_000)
    expect(ends(await facts())[0]!.reason).toBe('agent: exit 1: bad key [redacted] and [redacted]')
    const logs = readdirSync(join(own, 'agents'), { recursive: true, encoding: 'utf8' }).filter(name =>
      name.endsWith('.log'),
    )
    expect(logs).toHaveLength(1)
    expect(readFileSync(join(own, 'agents', logs[0]!), 'utf8')).toMatch(
      /^on stdout \[redacted\]\nbad key \[redacted\] and \[redacted\]\n\n\[exit 1; \d+ bytes written\]\n$/,
    )
  } finally {
    delete process.env.TROUPE_TEST_TOKEN
    await close()
  }
})
