/**
 * Today's code over a recorded history: does it decide what was decided then?
 *
 * in   a partition's facts, in order; engines, tools, renderer and verifier are answered by the log
 * out  every decision of coordinator and grouper that differs from the record, with both sides and the place
 * Invariant: the state follows the log, never our own decisions, so that one difference does not bring about the next.
 *
 * Decisions are appended in the order in which they are taken. One that the log lacks although later ones are there is
 * missing; one that it has and we would not take is unexpected, unless the clock or a restart explains it: then what a tick
 * at that moment, or a refold, would ask for is compared instead.
 */
import { isDeepStrictEqual } from 'node:util'
import type { RenderRequest } from '../../actors/rollouts/nextActions'
import type { OwnerState } from '../../actors/rollouts/owner'
import { decode, encode } from '../../messages/codec'
import type { Fact, TrajectoryFact } from '../../messages/facts'
import { factKey, stripTimes } from '../../messages/identity'
import { groupOf, runId } from '../../messages/ids'
import type { Effects } from '../../runtime/effects'
import { asError } from '../../runtime/errors'
import type { Origin, Reactive } from '../../runtime/host/behaviour'
import type { Entry } from '../../runtime/journal/journal'
import { type Place, placeText } from '../log/place'

export type OwnerBehaviour = Reactive<OwnerState, never, RenderRequest>

export interface Divergence {
  /** Where the log says otherwise; of what it lacks: where the next decision stands. */
  readonly place: string
  /** The input that led to the decision, where there is one. */
  readonly after: string | null
  readonly kind: 'differs' | 'unexpected' | 'missing' | 'throws'
  /** The trajectory or the group. */
  readonly about: string
  /** What today's code decides; null: nothing of this kind. */
  readonly expected: Fact | null
  /** What the log holds. */
  readonly actual: Fact | null
  /** Fields that are not the same. */
  readonly fields: readonly string[]
  readonly error?: string
}

export interface Rerun {
  /** Decisions of the record that today's code takes too. */
  readonly same: number
  /** Those of them that a deadline, or a restart of the actor, brought about. */
  readonly byClock: number
  readonly askedAgain: number
  /** Decisions that stand there twice, to the letter: said again before the first was read. They count once. */
  readonly repeated: number
  /** Decisions of former owners, which count nowhere. */
  readonly fenced: number
  /** Decisions that a fork or an import put there: nobody took them. */
  readonly given: number
  /** Decided at the log's end, and not in it: the run was cut off there. */
  readonly inFlight: readonly Fact[]
  readonly divergences: readonly Divergence[]
}

/** What the replay made of one fact. */
export interface Stepped {
  readonly entry: Entry
  /** Whether it changed the state: what is stale or repeated does not. */
  readonly counts: boolean
  /** Of a decision: whether today's code decides it too; null: it is no decision of the owner's. */
  readonly agrees: boolean | null
  readonly divergences: readonly Divergence[]
  /** Facts that today's code decides in answer to the recorded one. */
  readonly decides: readonly Fact[]
  /** After it; null of facts that the owner does not fold. */
  readonly state: OwnerState | null
}

interface Expectation {
  readonly fact: Fact
  readonly after: Place
  /** A deadline brought it about. */
  readonly byClock?: true
}

/** What the owner of a partition says itself; everything else is answered by others. */
function isDecision(fact: TrajectoryFact): boolean {
  switch (fact.type) {
    case 'turn.asked':
    case 'tool.asked':
    case 'rollout.finished':
    case 'group.closed':
    case 'group.selected':
    case 'group.rejected':
      return true
    case 'tool.completed':
      return fact.executor === null
    default:
      return false
  }
}

/** The trajectory, or the group. */
export const aboutOf = (fact: Fact): string =>
  'trajectory' in fact ? fact.trajectory : 'group' in fact ? String(fact.group) : fact.type

const ofGroup = (fact: Fact): string => ('trajectory' in fact ? groupOf(fact.trajectory) : aboutOf(fact))

/** Owners that only put in what is shared or was read from a file. */
const givenBy: ReadonlySet<string> = new Set(['fork', 'import'])

/**
 * Replays one partition. `make`: today's code, anew at each call: a behaviour remembers what it asked last. `wants`: which
 * trajectories and groups are counted; all that is given is folded.
 */
export function rerunPartition(make: () => OwnerBehaviour, wants: (id: string) => boolean = () => true) {
  const behaviour = make()
  let now = 0
  let ids = 0
  const fx: Effects = { now: () => now, elapsed: () => now, unique: () => `replay-${ids++}` }
  let state = behaviour.initial()
  let open: Expectation[] = []
  let last: Place | undefined
  /** What stands after such a claim was put there, by a fork or an import: nobody decided it. */
  let given = false
  const divergences: Divergence[] = []
  const counts = { same: 0, byClock: 0, askedAgain: 0, repeated: 0, fenced: 0, given: 0 }
  const count = (what: keyof typeof counts, fact: Fact) => {
    if (wants(aboutOf(fact))) counts[what]++
  }
  /** Decisions of open groups that agreed, by group and by what they say. */
  const agreed = new Map<string, Map<string, Fact>>()

  function expectAll(facts: readonly Fact[], after: Place): void {
    for (const fact of facts) open.push({ fact, after })
  }

  function missing({ fact, after }: Expectation, place: Place): void {
    divergences.push({
      place: placeText(place),
      after: placeText(after),
      kind: 'missing',
      about: aboutOf(fact),
      expected: fact,
      actual: null,
      fields: [],
    })
  }

  /** A decision that nothing in the log called for: a deadline passed, or the actor began again. */
  function unasked(fact: TrajectoryFact, entry: Entry): Fact | undefined {
    const key = factKey(fact)
    const about = aboutOf(fact)
    now = fact.at
    // By one that has asked for nothing yet: what is only tried here must not look said to the next that is tried.
    const ticked = attempt(() => make().decide(state, { type: 'tick' }, fx).facts, entry) ?? []
    const clock = ticked.find(f => factKey(f) === key)
    if (clock !== undefined) {
      count('byClock', fact)
      // What a tick says about a group is said at once: the closing, then the decision.
      const rest = ticked.filter(f => f !== clock && aboutOf(f) === about && clock.type === 'group.closed')
      open.unshift(...rest.map(f => ({ fact: f, after: entry, byClock: true as const })))
      return clock
    }
    if (!('attempt' in fact) || fact.attempt === 0) return undefined
    const pending = attempt(() => make().pending(state, fx).facts, entry) ?? []
    const again = pending.find(f => factKey(f) === key)
    if (again === undefined) return undefined
    count('askedAgain', fact)
    open = open.filter(e => aboutOf(e.fact) !== about)
    return again
  }

  function attempt<T>(act: () => T, entry: Entry): T | undefined {
    try {
      return act()
    } catch (thrown) {
      const error = asError(thrown).message
      const fact = entry.message as Fact
      const place = placeText(entry)
      divergences.push({
        place,
        after: place,
        kind: 'throws',
        about: aboutOf(fact),
        expected: null,
        actual: fact,
        fields: [],
        error,
      })
      return undefined
    }
  }

  function compare(fact: TrajectoryFact, entry: Entry): void {
    const key = factKey(fact)
    const index = open.findIndex(e => factKey(e.fact) === key)
    let expected: Fact | undefined
    let after: Place | null = null
    let byClock = false
    if (index >= 0) {
      const found = open[index]!
      expected = found.fact
      after = found.after
      byClock = found.byClock === true
      const skipped = open.slice(0, index).filter(e => isBefore(e.after, found.after))
      for (const one of skipped) missing(one, entry)
      open = open.filter((e, i) => i !== index && !skipped.includes(e))
    } else {
      const before = agreed.get(ofGroup(fact))?.get(key)
      if (before !== undefined && isDeepStrictEqual(stripTimes(before), stripTimes(fact))) {
        count('repeated', fact)
        return
      }
      expected = unasked(fact, entry)
    }
    const fields = expected === undefined ? [] : differing(expected, fact)
    if (expected !== undefined && fields.length === 0) {
      count('same', fact)
      if (byClock) count('byClock', fact)
      note(fact, key)
      return
    }
    divergences.push({
      place: placeText(entry),
      after: after === null ? null : placeText(after),
      kind: expected === undefined ? 'unexpected' : 'differs',
      about: aboutOf(fact),
      expected: expected ?? nearest(fact),
      actual: fact,
      fields,
    })
  }

  function note(fact: TrajectoryFact, key: string): void {
    const group = ofGroup(fact)
    if (fact.type.startsWith('group.')) agreed.delete(group)
    else agreed.set(group, (agreed.get(group) ?? new Map<string, Fact>()).set(key, fact))
  }

  /** What today's code would say about the same trajectory instead; it is then no longer waited for. */
  function nearest(fact: TrajectoryFact): Fact | null {
    const near = open.find(e => aboutOf(e.fact) === aboutOf(fact))
    if (near === undefined) return null
    open = open.filter(e => e !== near)
    return near.fact
  }

  return {
    /** Folds the next fact; says what today's code makes of it. */
    take(entry: Entry): Stepped {
      const fact = entry.message as TrajectoryFact
      last = entry
      const known = divergences.length
      const fenced = 'epoch' in fact && fact.epoch !== state.coordinator.epoch
      const compares = isDecision(fact) && !given && !fenced
      if (compares) compare(fact, entry)
      else if (isDecision(fact)) count(given ? 'given' : 'fenced', fact)
      let decides: readonly Fact[] = []
      now = Math.max(now, fact.at)
      const origin: Origin = { topic: entry.topic, partition: entry.partition, offset: entry.offset }
      const before = state
      state = attempt(() => behaviour.evolve(before, fact, origin), entry) ?? before
      if (fact.type === 'partition.claimed') {
        // A new owner refolds and asks for what has no answer; what the former one had in mind is void.
        open = []
        now = fact.at
        given = givenBy.has(fact.owner)
        if (!given) decides = attempt(() => behaviour.pending(state, fx).facts, entry) ?? []
      } else if (state !== before && !given) {
        now = fact.at
        decides = attempt(() => behaviour.decide(state, fact, fx).facts, entry) ?? []
      }
      expectAll(decides, entry)
      const found = divergences.slice(known)
      const differs = found.some(d => d.actual === fact)
      return { entry, counts: state !== before, agrees: compares ? !differs : null, divergences: found, decides, state }
    },
    /** `complete`: the run ended by itself, so that nothing may be left open. */
    result(complete: boolean): Rerun {
      if (complete && last !== undefined) for (const one of open) missing(one, last)
      const inFlight = complete ? [] : open.map(e => e.fact).filter(fact => wants(aboutOf(fact)))
      return { ...counts, inFlight, divergences: divergences.filter(d => wants(d.about)) }
    },
  }
}

const isBefore = (a: Place, b: Place) => a.offset < b.offset

/** Names of fields that are not the same, times aside. A record went through the codec; so does what is compared with it. */
function differing(expected: Fact, actual: Fact): string[] {
  if (isDeepStrictEqual(stripTimes(expected), stripTimes(actual))) return []
  const left = stripTimes(throughCodec(expected))
  const right = stripTimes(actual)
  return [...new Set([...Object.keys(left), ...Object.keys(right)])].filter(
    name => !isDeepStrictEqual(left[name], right[name]),
  )
}

function throughCodec(fact: Fact): Fact {
  try {
    return decode(encode(fact, { run: runId('replay'), maxBytes: Number.POSITIVE_INFINITY })) as Fact
  } catch {
    return fact
  }
}
