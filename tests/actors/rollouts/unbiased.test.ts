/**
 * Asynchronous training is not biased to short rollouts: what is trained on is what was sampled, all of it and token by
 * token, although short rollouts of later steps end long before the long ones of earlier steps.
 */
import { assembleSequence } from '../../../kernels'
import type { RolloutRequested, TrajectoryFact } from '../../../messages/facts'
import { engineId, groupOf, type TrajectoryId, trajectoryId } from '../../../messages/ids'
import { deriveSeed } from '../../../runtime/effects'
import { everything } from '../../support/audit'
import { drawAt } from '../../support/hashModel'
import { steppedEngine, turnOf } from '../../support/steppedEngines'
import { type SteppedRunOptions, steppedRun } from '../../support/steppedRun'

jest.setTimeout(120_000)

const limits = { contextTokens: 2048, responseTokens: 600, turns: 3, callsPerTurn: 1, toolTimeoutMs: 1000 }
const groupSize = 8
const plan = { steps: 8, groupsPerStep: 3, maxStaleness: 2 }

/** Lengths with a heavy tail (Pareto, α 0.8, from 4 tokens): most are short, and most tokens are of a few that are long. */
const scriptOf = (seed: number) => turnOf(seed, Math.min(2000, Math.floor(4 * (1 - drawAt(seed, 0)) ** (-1 / 0.8))))

/** What the model samples for a request, from its seed and the limits: known without any run. */
function sampledFor({ seed, limits: { responseTokens, turns } }: RolloutRequested): readonly number[] {
  const sampled: number[] = []
  let used = 0
  for (let turn = 0; turn < turns; turn++) {
    const { tokens, text } = scriptOf(deriveSeed(seed, 'turn', turn))
    const said = tokens.slice(0, responseTokens - used)
    sampled.push(...said)
    used += said.length + 2 // a tool's answer has two tokens
    if (said.length < tokens.length || !text.startsWith('<tool_call>') || used >= responseTokens) break
  }
  return sampled
}

const ascending = (lengths: Iterable<number>) => [...lengths].sort((a, b) => a - b)
const mean = (lengths: readonly number[]) => lengths.reduce((sum, n) => sum + n, 0) / lengths.length

/** As the log has them; their versions say which policy sampled which token. */
async function sequencesOf({ troupe }: Awaited<ReturnType<typeof steppedRun>>) {
  const facts = new Map<TrajectoryId, TrajectoryFact[]>()
  for (let partition = 0; partition < 3; partition++) {
    for (const { message } of await everything(troupe.journal, 'trajectories', partition)) {
      if (!('trajectory' in message)) continue
      facts.set(message.trajectory, [...(facts.get(message.trajectory) ?? []), message as TrajectoryFact])
    }
  }
  return new Map([...facts].map(([trajectory, own]) => [trajectory, assembleSequence(own)]))
}

/** Three engines, too few for all that is asked for; one leaves twice in the middle of its turns and comes back. */
async function run(selection: SteppedRunOptions['selection'], refillShare: number) {
  const engines = ['e0', 'e1', 'e2'].map(id => steppedEngine(engineId(id), 16, scriptOf))
  const ran = await steppedRun({
    ...{ engines, groupSize, selection, partitions: 3, trainingSteps: 60, plan: { ...plan, refillShare } },
    limits: { ...limits, toolResponseChars: 100 },
    // Some tasks nobody solves: their groups are rejected and replaced.
    grader: async ({ response, truth }) => {
      const solved = Number(truth) % 5 !== 0 && response.includes('boxed{4}')
      return { reward: solved ? 1 : 0, answer: '', how: 'test' }
    },
    async onStep(n, { joined, rejoin }) {
      const [engine] = engines
      if (n === 40 || n === 400) await joined.get(engine!)!.leave('test')
      if (n === 60 || n === 420) await rejoin(engine!)
    },
  })
  const asked = await ran.factsOf('trajectories', 'rollout.requested')
  const finished = await ran.factsOf('trajectories', 'rollout.finished')
  const interrupted = await ran.factsOf('trajectories', 'turn.interrupted')
  const sequences = await sequencesOf(ran)
  const selected = await ran.factsOf('trajectories', 'group.selected')
  const rejected = await ran.factsOf('trajectories', 'group.rejected')
  const started = await ran.factsOf('learner', 'step.started')
  await ran.close()
  return { ...ran, asked, finished, interrupted, selected, rejected, started, sequences }
}
type Ran = Awaited<ReturnType<typeof run>>

/** By trajectory, what of it the trainer was given as sampled. */
const trainedIn = ({ batches }: Ran) =>
  new Map(batches.flat().map(s => [s.trajectory, [...s.tokens].filter((_, at) => s.mask[at] === 1)]))

/** The promise would hold by itself if rollouts ended in the order in which they began. */
function expectShortFirst({ asked, finished }: Ran): void {
  const lengthOf = new Map(asked.map(request => [request.trajectory, sampledFor(request).length]))
  const stepOf = new Map(asked.map(request => [request.trajectory, request.step]))
  const inOrder = [...finished].sort((a, b) => a.at - b.at)
  const lengths = inOrder.map(({ trajectory }) => lengthOf.get(trajectory)!)
  // A learner that took as many as a step needs, as they end, would have begun with these.
  const batch = plan.groupsPerStep * groupSize
  expect(mean(lengths.slice(0, batch))).toBeLessThan(0.5 * mean(lengths))
  const steps = inOrder.map(({ trajectory }) => stepOf.get(trajectory)!)
  const overtaken = Array.from({ length: plan.steps - 1 }, (_, n) => steps.lastIndexOf(n + 1) > steps.indexOf(n + 2))
  expect(overtaken.filter(Boolean).length).toBeGreaterThan(1)
}

/** Rollouts went on over steps, and over an engine that left; staleness stayed within its bound. */
function expectCarriedOver({ started, sequences, interrupted }: Ran): void {
  expect(interrupted.filter(({ tokens }) => tokens.length > 0).length).toBeGreaterThan(0)
  let carried = 0
  for (const { baseVersion, trajectories } of started) {
    for (const trajectory of trajectories) {
      const { versions, oldestVersion } = sequences.get(trajectory)!
      expect(baseVersion - oldestVersion!).toBeLessThanOrEqual(plan.maxStaleness)
      if (new Set(versions.filter(v => v >= 0)).size > 1) carried++
    }
  }
  expect(carried).toBeGreaterThan(0)
}

test('every rollout that was asked for is trained on as it was sampled, however late it ends', async () => {
  const ran = await run({ variant: 'none', keep: groupSize, rejectEqual: false }, 0)
  expect(ran.asked.length).toBe(plan.steps * plan.groupsPerStep * groupSize)
  expectShortFirst(ran)
  expectCarriedOver(ran)
  const trained = trainedIn(ran)
  expect(ascending([...trained.values()].map(tokens => tokens.length))).toEqual(
    ascending(ran.asked.map(request => sampledFor(request).length)),
  )
  for (const request of ran.asked) expect(trained.get(request.trajectory)).toEqual(sampledFor(request))
  // In start order: a step's batch is the groups that were asked for it.
  const stepOf = new Map(ran.asked.map(({ group, step }) => [group, step]))
  for (const { step, trajectories } of ran.started) {
    expect(new Set(trajectories.map(t => stepOf.get(groupOf(t))))).toEqual(new Set([step]))
  }
})

test('RoC chooses among all rollouts of a group, and refills wait for their own: nothing that is late is left out', async () => {
  const ran = await run({ variant: 'paper', keep: groupSize / 2, minNegative: 1, minPositive: 1 }, 1)
  expectShortFirst(ran)
  expectCarriedOver(ran)
  // Everything that was asked for is decided on, with all of its members, at its own length.
  const lengthOf = new Map(ran.finished.map(({ trajectory, sampledTokens }) => [trajectory, sampledTokens]))
  expect(ascending(lengthOf.values())).toEqual(ascending(ran.asked.map(request => sampledFor(request).length)))
  for (const request of ran.asked) expect(lengthOf.get(request.trajectory)).toBe(sampledFor(request).length)
  const groups = new Set(ran.asked.map(({ group }) => group))
  expect(ran.rejected.length).toBeGreaterThan(0)
  expect(new Set([...ran.selected, ...ran.rejected].map(({ group }) => group))).toEqual(groups)
  for (const { kept, dropped } of ran.selected) expect(kept.length + dropped.length).toBe(groupSize)
  for (const { rewarded } of ran.rejected) expect(rewarded).toBe(groupSize)
  // And what was kept is what is trained on, token by token.
  const kept = ran.selected.flatMap(({ group, kept }) => kept.map(({ member }) => trajectoryId(group, member)))
  const trained = trainedIn(ran)
  expect([...trained.keys()].sort()).toEqual([...kept].sort())
  const requests = new Map(ran.asked.map(request => [request.trajectory as string, request]))
  for (const [trajectory, tokens] of trained) expect(tokens).toEqual(sampledFor(requests.get(trajectory)!))
})
