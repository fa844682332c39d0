/** The checker of histories: lawful ones are never accused, and each planted violation is named with its offsets. */
import fc from 'fast-check'
import { pcg32 } from '../../../kernels/random'
import type { Fact, TrajectoryFact } from '../../../messages/facts'
import { epoch, groupOf, policyVersion, type TrajectoryId } from '../../../messages/ids'
import { HistoryChecker } from '../../../replay/histories/historyChecker'
import type { Violation } from '../../../replay/histories/violation'
import { placeText } from '../../../replay/log/place'
import type { Entry } from '../../../runtime/journal/journal'
import { lawfulHistory, ownerBehaviour } from '../../support/ownedHistory'
import { originAt } from '../../support/world'

/** By a seed, so that a counterexample is a number. */
function historyOf(seed: number, actions = 400): readonly Entry[] {
  const random = pcg32(seed)
  return lawfulHistory(below => random.below(below), actions)
}

const seeds = fc.nat(2 ** 31)

function check(history: readonly Entry[]): {
  readonly counted: readonly boolean[]
  readonly violations: readonly Violation[]
} {
  const checker = new HistoryChecker()
  // By topic, as a log is read.
  const inOrder = (['trajectories', 'learner'] as const).flatMap(topic => history.filter(w => w.topic === topic))
  const counted = inOrder.map(entry => checker.take(entry))
  return { counted, violations: checker.violations() }
}

test('a lawful history is never accused, with or without writers', () => {
  const seen = { claims: 0, fenced: 0 }
  fc.assert(
    fc.property(seeds, seed => {
      const history = historyOf(seed)
      expect(check(history).violations).toEqual([])
      expect(check(history.map(({ writer, ...entry }) => entry)).violations).toEqual([])
      let claimed = -1
      for (const entry of history) {
        const fact = entry.message as Fact
        if (fact.type === 'partition.claimed') {
          claimed = entry.offset
          seen.claims++
        } else if ('epoch' in fact && fact.epoch !== claimed) seen.fenced++
      }
    }),
    { numRuns: 60 },
  )
  // The histories are of the kind that the checker is for.
  expect(seen.claims).toBeGreaterThan(240)
  expect(seen.fenced).toBeGreaterThan(60)
})

test('what counts for the checker is what counts for the owner', () => {
  const types = new Map<string, number>()
  fc.assert(
    fc.property(seeds, seed => {
      const history = historyOf(seed, 500)
      const { counted } = check(history)
      const behaviour = ownerBehaviour()
      let state = behaviour.initial()
      for (const [at, entry] of history.filter(w => w.topic === 'trajectories').entries()) {
        const fact = entry.message as TrajectoryFact
        const before = state
        state = behaviour.evolve(before, fact, originAt(at))
        // Claims always change a state; a start changes none that the owner decides by.
        if ('partition' in fact || fact.type === 'rollout.started') continue
        expect([placeText(entry), fact.type, counted[at]]).toEqual([placeText(entry), fact.type, state !== before])
        const key = `${fact.type} ${counted[at]}`
        types.set(key, (types.get(key) ?? 0) + 1)
      }
    }),
    { numRuns: 60 },
  )
  const names =
    'rollout.requested turn.asked turn.completed turn.interrupted tool.asked tool.completed context.appended'
  for (const type of `${names} rollout.finished reward.assigned reward.failed group.closed group.selected`.split(' '))
    for (const counts of [true, false]) expect([type, counts, types.get(`${type} ${counts}`) ?? 0]).not.toContain(0)
})

/** The history with one entry changed, and that entry's place. */
function changed(history: readonly Entry[], at: number, change: object, writer = history[at]!.writer) {
  const entry = history[at]!
  const message = { ...entry.message, ...change } as Fact
  return { history: history.with(at, { ...entry, message, writer: writer! }), place: placeText(entry) }
}

/** The history with facts of one topic at its end. */
function extended(history: readonly Entry[], topic: 'trajectories' | 'learner', ...more: [string, Fact][]) {
  const from = history.filter(entry => entry.topic === topic).length
  const added = more.map(([writer, message], k): Entry => {
    return { topic, partition: 0, offset: from + k, timestamp: 0, message, writer }
  })
  return { history: [...history, ...added], places: added.map(placeText) }
}

/** Index of a fact, chosen by the seed among those that fit. */
function pick(history: readonly Entry[], seed: number, fits: (fact: Fact) => boolean): number | undefined {
  const found = history.flatMap((entry, at) => (fits(entry.message as Fact) ? [at] : []))
  return found.length === 0 ? undefined : found[seed % found.length]
}

/**
 * Plants a violation in each of many histories, at least 40, until `least` of them had a place for it; fails after 400.
 */
function plant(least: number, one: (history: readonly Entry[], seed: number) => boolean): void {
  let planted = 0
  const property = fc.property(seeds, seed => {
    if (one(historyOf(seed), seed)) planted++
  })
  for (let round = 0; round === 0 || (planted < least && round < 10); round++) fc.assert(property, { numRuns: 40 })
  expect(planted).toBeGreaterThanOrEqual(least)
}

test('a decision under the epoch of another process is named with the claim of that epoch', () => {
  plant(36, (history, seed) => {
    const at = pick(history, seed, fact => 'epoch' in fact)
    if (at === undefined) return false
    const { epoch } = history[at]!.message as { readonly epoch: number }
    const { history: two, place } = changed(history, at, {}, 'intruder')
    const { violations } = check(two)
    expect(violations).toMatchObject([{ kind: 'two-owners', places: [`trajectories:0:${epoch}`, place] }])
    expect(violations[0]!.message).toMatch(/process intruder, but the owner of the epoch \d+ is the process p\d/)
    return true
  })
})

test('a request under the epoch of another curriculum, and a step under that of another learner, are named', () => {
  plant(36, (history, seed) => {
    const at = pick(history, seed, fact => fact.type === 'rollout.requested')
    if (at === undefined) return false
    const { learnerEpoch } = history[at]!.message as { readonly learnerEpoch: number }
    const { history: two, place } = changed(history, at, {}, 'intruder')
    expect(check(two).violations).toMatchObject([
      { kind: 'two-curricula', places: [`learner:0:${learnerEpoch}`, place] },
    ])
    const latest = history.findLast(entry => entry.topic === 'learner')!
    const started = stepOf(latest.offset, [])
    expect(check(extended(history, 'learner', [latest.writer!, started]).history).violations).toEqual([])
    const { history: stepped, places } = extended(history, 'learner', ['intruder', started])
    expect(check(stepped).violations).toMatchObject([{ kind: 'two-learners', places: [placeText(latest), ...places] }])
    return true
  })
})

const stepOf = (of: number, trajectories: readonly TrajectoryId[]): Fact => ({
  ...{ type: 'step.started', at: 0, step: 1, epoch: epoch(of), baseVersion: policyVersion(0) },
  ...{ baseCheckpoint: 'step-000000', trajectories },
})

test('an epoch that nobody claimed is named', () => {
  plant(34, (history, seed) => {
    const at = pick(history, seed, fact => 'epoch' in fact)
    if (at === undefined) return false
    const { history: unknown, place } = changed(history, at, { epoch: history[at]!.offset })
    const { violations } = check(unknown)
    expect(violations.filter(({ kind }) => kind === 'unknown-epoch')).toMatchObject([{ places: [place] }])
    return true
  })
})

test('a replaced scheduler that starts what was asked for after its replacement is named; one that ends its work is not', () => {
  plant(36, history => {
    const claimed = (writer: string): [string, Fact] => [
      writer,
      { type: 'scheduler.claimed', at: 0, partition: 0, owner: writer },
    ]
    const asked = history.find(entry => entry.message.type === 'turn.asked')
    if (asked === undefined) return false
    const trajectory = 'g99/0' as TrajectoryId
    const ask: [string, Fact] = [asked.writer!, { ...(asked.message as Fact), trajectory } as Fact]
    const start = (writer: string): [string, Fact] => [
      writer,
      { type: 'rollout.started', at: 0, trajectory, engine: 'e0' as never },
    ]
    const { history: two, places } = extended(history, 'trajectories', claimed('a'), claimed('b'), ask, start('a'))
    expect(check(two).violations).toMatchObject([{ kind: 'two-schedulers', places: places.slice(1) }])
    for (const lawful of [
      [claimed('a'), claimed('b'), ask, start('b')],
      [claimed('a'), ask, claimed('b'), start('a')],
      [claimed('a'), claimed('b'), ask, start('a'), claimed('a')],
    ])
      expect(check(extended(history, 'trajectories', ...lawful).history).violations).toEqual([])
    return true
  })
})

interface Depends {
  readonly answer: Fact['type']
  /** Makes the answer one that does not count; undefined: this one cannot be made so. */
  uncount(fact: Fact, former: number | undefined, formerLearner: number | undefined): object | undefined
  /** True for a decision that is impossible without the answer. */
  follows(decision: Fact, answer: Fact): boolean
}

type Turned = { readonly turn: number; readonly turns: number; readonly call?: number }
const of = (fact: Fact) => fact as unknown as Turned

const isOver = (decision: Fact, turn: number): boolean =>
  (decision.type === 'turn.asked' && of(decision).turn === turn + 1) ||
  (decision.type === 'context.appended' && of(decision).turn === turn)

const dependencies: readonly Depends[] = [
  {
    answer: 'turn.completed',
    uncount: () => ({ attempt: 1000 }),
    follows: (decision, answer) =>
      isOver(decision, of(answer).turn) ||
      (decision.type === 'tool.asked' && of(decision).turn === of(answer).turn) ||
      (decision.type === 'rollout.finished' && of(decision).turns > of(answer).turn),
  },
  {
    answer: 'tool.completed',
    uncount: () => ({ attempt: 1000 }),
    follows: (decision, answer) => isOver(decision, of(answer).turn),
  },
  {
    answer: 'context.appended',
    uncount: (_, former) => (former === undefined ? undefined : { epoch: former }),
    follows: (decision, answer) => decision.type === 'turn.asked' && of(decision).turn === of(answer).turn + 1,
  },
  {
    answer: 'rollout.requested',
    uncount: (_, _former, former) => (former === undefined ? undefined : { learnerEpoch: former }),
    follows: decision => decision.type === 'turn.asked' || decision.type === 'rollout.finished',
  },
]

test.each(dependencies)(
  'a decision that follows from a former $answer is named with it',
  ({ answer, uncount, follows }) => {
    plant(5, (history, seed) => {
      const { counted } = check(history)
      const own = history.filter(entry => entry.topic === 'trajectories')
      const keyOf = (fact: Fact) => {
        const { trajectory, turn, call } = fact as unknown as Record<string, unknown>
        return `${fact.type} ${trajectory} ${turn} ${call}`
      }
      const facts = own.map(({ message }) => message as Fact)
      const keys = facts.map(keyOf)
      const latest = (type: Fact['type'], before: number) => facts.slice(0, before).findLastIndex(f => f.type === type)
      // Of an answer that comes twice, the other one would count.
      const at = pick(own, seed, fact => {
        const n = facts.indexOf(fact)
        return fact.type === answer && counted[n]! && keys.filter(key => key === keys[n]).length === 1
      })
      if (at === undefined) return false
      const { trajectory } = facts[at] as { readonly trajectory: TrajectoryId }
      const owner = latest('partition.claimed', at)
      const former = facts.slice(0, owner).findLastIndex(f => f.type === 'partition.claimed')
      const claims = history.filter(entry => entry.topic === 'learner').map(entry => entry.offset)
      const current = latest('curriculum.claimed', at)
      const { learnerEpoch } = facts[current] as { readonly learnerEpoch: number }
      const formerLearner = claims.findLast(offset => offset < learnerEpoch)
      const change = uncount(facts[at]!, former < 0 ? undefined : former, formerLearner)
      const decision = facts.findIndex(
        (fact, n) =>
          n > at &&
          counted[n] &&
          (fact as { trajectory?: string }).trajectory === trajectory &&
          follows(fact, facts[at]!),
      )
      if (change === undefined || decision < 0) return false
      const { history: stale, place } = changed(own, at, change)
      const { violations } = check([...stale, ...history.filter(entry => entry.topic === 'learner')])
      const named = violations.filter(({ places }) => places.includes(place))
      expect(named.map(({ kind }) => kind)).toContain('former-answer')
      expect(named.map(({ places }) => places.at(-1))).toContain(placeText(own[decision]!))
      return true
    })
  },
)

const keyOfReward = (fact: Fact) =>
  fact.type === 'reward.assigned' || fact.type === 'reward.failed' ? fact.trajectory : undefined

test('a group that closes with a reward of a rollout that did not end, and a step on a selection that does not count, are named', () => {
  plant(5, (history, seed) => {
    const { counted } = check(history)
    const own = history.filter(entry => entry.topic === 'trajectories')
    const facts = own.map(({ message }) => message as Fact)
    const selected = pick(own, seed, fact => fact.type === 'group.selected' && counted[facts.indexOf(fact)]!)
    const learner = history.filter(entry => entry.topic === 'learner')
    const latest = learner.at(-1)!
    if (selected === undefined) return false
    const { group, kept } = facts[selected] as { readonly group: string; readonly kept: readonly { member: number }[] }
    const closed = facts.findIndex((f, n) => f.type === 'group.closed' && f.group === group && counted[n]!)
    const trajectory = `${group}/${kept[0]!.member}` as TrajectoryId
    const former = facts.slice(0, closed).findIndex(f => f.type === 'partition.claimed')
    const ended = facts.findIndex((f, n) => f.type === 'rollout.finished' && f.trajectory === trajectory && counted[n]!)
    if ((facts[ended] as { epoch: number }).epoch === former) return false
    const ends = facts.filter(f => f.type === 'rollout.finished' && f.trajectory === trajectory).length
    if (ends > 1) return false
    const { history: endless } = changed(own, ended, { epoch: former })
    const rewards = own.filter((_, n) => keyOfReward(facts[n]!) === trajectory).map(placeText)
    const [early] = check([...endless, ...learner]).violations.filter(
      ({ places }) => places.at(-1) === placeText(own[closed]!),
    )
    expect(early?.kind).toBe('former-answer')
    expect(rewards).toContain(early?.places[0])
    const step: [string, Fact] = [latest.writer!, stepOf(latest.offset, [trajectory])]
    expect(check(extended(history, 'learner', step).history).violations).toEqual([])
    const { history: unselected, place } = changed(own, selected, { epoch: former })
    const others = facts.filter(f => f.type === 'group.selected' && f.group === groupOf(trajectory)).length
    if (others > 1) return false
    const { history: trained, places } = extended([...unselected, ...learner], 'learner', step)
    expect(check(trained).violations).toContainEqual(
      expect.objectContaining({ kind: 'former-answer', places: [place, ...places] }),
    )
    return true
  })
})
