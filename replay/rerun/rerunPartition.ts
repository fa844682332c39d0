/**
 * Runs today's code over the recorded history of a partition, to find decisions that today's code takes otherwise.
 *
 * in   a partition's facts, in order; the log answers for engines, tools, renderer and verifier
 * out  every decision of coordinator and grouper that differs from the record, with both sides and the position; counts
 * Invariant: the state follows the recorded facts, never the replay's own decisions, so a decision that differs does
 * not cause the next difference. A fact at which today's code throws leaves the state as it was.
 *
 * Decisions are appended in the order in which they are taken. A decision of today's code is "missing" when the log
 * lacks it but has later ones, or when the run ended by itself without it. A recorded decision is "unexpected" when
 * today's code does not take it, unless it repeats an earlier one, or the clock or a restart explains it: then it is
 * compared with what a tick at that moment, or a restarted actor, would ask for.
 */
import { isDeepStrictEqual } from 'node:util'
import type { OwnerRequest } from '../../actors/rollouts/nextActions'
import type { OwnerState } from '../../actors/rollouts/owner'
import { decode, encode } from '../../messages/codec'
import type { Fact, TrajectoryFact } from '../../messages/facts'
import { asOfRecord, factKey, stripTimes } from '../../messages/identity'
import { groupOf, runId } from '../../messages/ids'
import type { Effects } from '../../runtime/effects'
import { asError } from '../../runtime/errors'
import type { Origin, Reactive } from '../../runtime/host/behaviour'
import type { Entry } from '../../runtime/journal/journal'
import { type Place, placeText } from '../log/place'
import { isDecision } from './isDecision'

export type OwnerBehaviour = Reactive<OwnerState, never, OwnerRequest>

export interface Divergence {
  /**
   * Position of the differing record; for a missing decision, that of the next recorded decision or of the last record.
   */
  readonly place: string
  /** Position of the fact that led to the decision; null when no fact did. */
  readonly after: string | null
  /**
   * differs: today's code takes the decision with other content. unexpected: it does not take the recorded decision.
   * missing: the log lacks a decision of today's code. throws: today's code threw at the fact.
   */
  readonly kind: 'differs' | 'unexpected' | 'missing' | 'throws'
  /** Id of the trajectory or group that the decision is about. */
  readonly about: string
  /**
   * Decision of today's code (for an unexpected record: another open one about the same id); null when there is none.
   */
  readonly expected: Fact | null
  /** Recorded decision, or for `throws` the fact at which today's code threw; null for a missing decision. */
  readonly actual: Fact | null
  /** Names of the fields in which the recorded and today's decision differ. */
  readonly fields: readonly string[]
  readonly error?: string
}

export interface Rerun {
  /** Number of recorded decisions that today's code takes too. */
  readonly same: number
  /**
   * Number of recorded decisions that no fact caused and a passed deadline explains. `same` counts them too if they are
   * equal.
   */
  readonly byClock: number
  /** Like `byClock`, but a restart explains the decisions: a restarted actor asks again for what has no answer. */
  readonly askedAgain: number
  /**
   * Number of decisions recorded twice with equal content: the owner wrote the second before it had read the first. The
   * two count as one.
   */
  readonly repeated: number
  /** Number of decisions that an owner wrote after another had replaced it; they are not compared. */
  readonly fenced: number
  /**
   * Number of decisions that a fork copied from its parent, or an import from a file. This run's code did not take
   * them, so they are not compared.
   */
  readonly given: number
  /** Decisions of today's code that the log lacks up to where the replay stopped; empty if the run ended by itself. */
  readonly inFlight: readonly Fact[]
  readonly divergences: readonly Divergence[]
}

/** Result of replaying one recorded fact with today's code. */
export interface Stepped {
  readonly entry: Entry
  /** True when the fact changed the state; a stale or repeated fact does not. True for facts of the run and learner. */
  readonly counts: boolean
  /**
   * True when today's code takes this decision too; null when the fact is no decision of the partition's owner, or is
   * one that is not compared (written by a replaced owner, or copied).
   */
  readonly agrees: boolean | null
  readonly divergences: readonly Divergence[]
  /** Facts that today's code decides in answer to the recorded one. */
  readonly decides: readonly Fact[]
  /** The owner's state after the fact; null for facts of the run and learner, which the owner does not read. */
  readonly state: OwnerState | null
}

interface Expectation {
  readonly fact: Fact
  readonly after: Place
  /** True when a deadline, not a fact, caused the expected decision. */
  readonly byClock?: true
}

/** Returns the id of the trajectory or group that a fact is about; for other facts, its type. */
export const aboutOf = (fact: Fact): string =>
  'trajectory' in fact ? fact.trajectory : 'group' in fact ? String(fact.group) : fact.type

const ofGroup = (fact: Fact): string => ('trajectory' in fact ? groupOf(fact.trajectory) : aboutOf(fact))

/** Owner names in `partition.claimed`; the facts after such a claim are copies, of a parent or of a file. */
const givenBy: ReadonlySet<string> = new Set(['fork', 'import'])

/**
 * Replays one partition. `make` creates today's behaviour anew at each call, because a behaviour remembers what it
 * asked last. `wants` selects the trajectories and groups that are counted; all facts change the state.
 */
export function rerunPartition(make: () => OwnerBehaviour, wants: (id: string) => boolean = () => true) {
  const behaviour = make()
  let now = 0
  let ids = 0
  const fx: Effects = { now: () => now, elapsed: () => now, unique: () => `replay-${ids++}` }
  let state = behaviour.initial()
  let open: Expectation[] = []
  let last: Place | undefined
  /**
   * True after the claim of a fork or an import: the following facts are copies, which this run's code did not decide.
   */
  let given = false
  const divergences: Divergence[] = []
  const counts = { same: 0, byClock: 0, askedAgain: 0, repeated: 0, fenced: 0, given: 0 }
  const count = (what: keyof typeof counts, fact: Fact) => {
    if (wants(aboutOf(fact))) counts[what]++
  }
  /** Recorded decisions of open groups that agreed with today's code: by group, then by `factKey`. */
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

  /**
   * Explains a decision that no recorded fact caused: a deadline passed, or the actor restarted. Returns the decision
   * of today's code in that case; undefined when neither explains it.
   */
  function unasked(fact: TrajectoryFact, entry: Entry): Fact | undefined {
    const key = factKey(fact)
    const about = aboutOf(fact)
    now = fact.at
    // The trial uses a new behaviour: a behaviour never repeats a request, so a trial on the first one would affect its
    // later decisions.
    const ticked = attempt(() => make().decide(state, { type: 'tick' }, fx).facts, entry) ?? []
    const clock = ticked.find(f => factKey(f) === key)
    if (clock !== undefined) {
      count('byClock', fact)
      // A tick decides everything about a group at once: first its closing, then its selection.
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
    const fields = expected === undefined ? [] : differing(asOfRecord(expected, fact), fact)
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

  /** Removes and returns an open decision of today's code about the same trajectory or group; null: none. */
  function nearest(fact: TrajectoryFact): Fact | null {
    const near = open.find(e => aboutOf(e.fact) === aboutOf(fact))
    if (near === undefined) return null
    open = open.filter(e => e !== near)
    return near.fact
  }

  return {
    /** Applies the next fact to the state and returns how today's code answers it. */
    take(entry: Entry): Stepped {
      const fact = entry.message as TrajectoryFact
      last = entry
      const known = divergences.length
      const fenced = 'epoch' in fact && fact.epoch !== state.coordinator.epoch
      const decided = isDecision(fact, state)
      const compares = decided && !given && !fenced
      if (compares) compare(fact, entry)
      else if (decided) count(given ? 'given' : 'fenced', fact)
      let decides: readonly Fact[] = []
      now = Math.max(now, fact.at)
      const origin: Origin = { topic: entry.topic, partition: entry.partition, offset: entry.offset }
      const before = state
      state = attempt(() => behaviour.evolve(before, fact, origin), entry) ?? before
      if (fact.type === 'partition.claimed') {
        // A new owner rebuilds the state from the log and asks again for everything unanswered: the former owner's open
        // decisions are void.
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
    /** Returns the result. `complete`: the run ended by itself, so every decision still open is missing. */
    result(complete: boolean): Rerun {
      if (complete && last !== undefined) for (const one of open) missing(one, last)
      const inFlight = complete ? [] : open.map(e => e.fact).filter(fact => wants(aboutOf(fact)))
      return { ...counts, inFlight, divergences: divergences.filter(d => wants(d.about)) }
    },
  }
}

const isBefore = (a: Place, b: Place) => a.offset < b.offset

/**
 * Names of the fields that differ, apart from times. The expected fact passes through the codec first, as the record
 * did.
 */
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
