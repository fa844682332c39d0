/**
 * Verifies the records of a run in one pass.
 *
 * in   entries with their records, in the log's order; commands; headers of dead letters; faults of reading
 * out  problems with their positions; counts of accepted facts
 * Invariant: the coordinator's and the grouper's own `evolve` decide which facts about trajectories and groups are
 * accepted, so what is verified is the state that a resume would start from.
 */
import { createHash } from 'node:crypto'
import { fence, isReplaced } from '../../actors/ownership/fencing'
import { type CoordinatorState, coordinator } from '../../actors/rollouts/coordinator'
import { type GrouperState, grouper } from '../../actors/rollouts/grouper'
import type { Rollout } from '../../actors/rollouts/rollout'
import type { CallFact, LearnerFact, RewardAssigned, TrajectoryFact } from '../../messages/facts'
import { groupOf, memberOf, type RunId, type TrajectoryId } from '../../messages/ids'
import { routeOf } from '../../messages/topics'
import type { BusRecord } from '../../runtime/bus/bus'
import type { Entry } from '../../runtime/journal/journal'
import type { Fault } from '../log/faults'
import { placeText } from '../log/place'
import { learnerChecks } from './learnerChecks'
import type { Problem, Verification } from './verification'

/** Coordinator and grouper, of which only `evolve` is called. It does not read the options: they affect decisions. */
const folding = {
  coordinator: coordinator({ turnTimeoutMs: 0 }),
  grouper: grouper({ runSeed: 0, selection: { variant: 'paper', keep: 1 } }),
}

interface Partition {
  coordinator: CoordinatorState
  grouper: GrouperState
}

/** `sampled`: selects the trajectories whose turn contexts are rebuilt and compared with their digests. */
export function verifier(run: RunId, sampled: (trajectory: string) => boolean) {
  const problems: Problem[] = []
  const ignored: Record<string, number> = {}
  const deadLetters: { origin: string; error: string }[] = []
  const partitions = new Map<number, Partition>()
  const homes = new Map<string, number>()
  const open = new Set<TrajectoryId>()
  const captured = new Set<TrajectoryId>()
  /** Sessions with a reward that was given before their end and was not repeated after it so far. */
  const rewardedEarly = new Set<TrajectoryId>()
  const once = {
    turns: new Set<string>(),
    tools: new Set<string>(),
    rewards: new Set<string>(),
    groups: new Set<string>(),
  }
  const selected = new Map<string, ReadonlySet<string>>()
  const steps = learnerChecks()
  const counts = fence()
  let facts = 0
  let telemetry = 0
  let commands = 0
  let contexts = 0
  let capturedCalls = 0
  let turnsOfCalls = 0
  let known = 0
  let inSample = 0
  let outcome: string | null = null

  const problem = (entry: Entry | Fault, kind: string, message: string) =>
    problems.push({ place: placeText(entry), kind, message })
  const ignore = (why: string) => {
    ignored[why] = (ignored[why] ?? 0) + 1
  }

  function identity(entry: Entry, { headers, key }: BusRecord): void {
    const { message } = entry
    const route = routeOf(message, run)
    if (route.topic !== entry.topic)
      problem(entry, 'wrong-topic', `${message.type} belongs to the topic '${route.topic}'`)
    if (route.key !== key) problem(entry, 'wrong-key', `the key is '${key}', but the message implies '${route.key}'`)
    if (headers.run !== run)
      problem(entry, 'wrong-run', `the header names the run '${headers.run ?? ''}'; expected '${run}'`)
    if (headers.type !== message.type)
      problem(entry, 'wrong-header', `the header names the type '${headers.type}'; expected '${message.type}'`)
    for (const name of ['trajectory', 'turn', 'call', 'attempt'] as const) {
      const said = (message as unknown as Record<string, unknown>)[name]
      if (said === undefined || said === null || String(said) === headers[name]) continue
      problem(entry, 'wrong-header', `${name} is '${said}' in the message, but '${headers[name] ?? ''}' in the header`)
    }
    if (message.type !== 'rollout.requested') return
    if (message.trajectory !== `${message.group}/${message.member}`) {
      problem(entry, 'wrong-id', `trajectory '${message.trajectory}' is member ${message.member} of ${message.group}`)
    }
  }

  function trajectoryFact(entry: Entry, fact: TrajectoryFact | CallFact): void {
    let state = partitions.get(entry.partition)
    if (state === undefined) {
      state = { coordinator: folding.coordinator.initial(), grouper: folding.grouper.initial() }
      partitions.set(entry.partition, state)
    }
    if (!('partition' in fact)) {
      const group = 'group' in fact ? fact.group : groupOf(fact.trajectory)
      const home = homes.get(group)
      if (home === undefined) homes.set(group, entry.partition)
      else if (home !== entry.partition)
        problem(entry, 'split-group', `the earlier facts of ${group} are in partition ${home}`)
    }
    const before = rolloutOf(state, fact)
    const origin = { topic: entry.topic, partition: entry.partition, offset: entry.offset }
    const next = {
      coordinator: folding.coordinator.evolve(state.coordinator, fact, origin),
      grouper: folding.grouper.evolve(state.grouper, fact, origin),
    }
    const accepted = next.coordinator !== state.coordinator || next.grouper !== state.grouper
    if (!accepted) {
      const why = whyIgnored(fact, state, before)
      if (why === 'turn of a call') turnsOfCalls++
      else if (why === 'early reward') rewardedEarly.add((fact as RewardAssigned).trajectory)
      else if (why !== 'delivery') ignore(why)
      return
    }
    partitions.set(entry.partition, next)
    count(entry, fact, before, rolloutOf(next, fact))
  }

  function count(
    entry: Entry,
    fact: TrajectoryFact | CallFact,
    before: Rollout | undefined,
    after: Rollout | undefined,
  ): void {
    const onlyOnce = (set: Set<string>, id: string, what: string) => {
      if (set.has(id)) problem(entry, 'counted-twice', `${what} ${id} is accepted twice`)
      set.add(id)
    }
    switch (fact.type) {
      case 'rollout.requested':
        known++
        if (sampled(fact.trajectory)) inSample++
        open.add(fact.trajectory)
        return
      case 'turn.asked':
        // The context of an agent's call is in its own facts: a turn does not continue the one before.
        if (before !== undefined && before.led === undefined && sampled(fact.trajectory))
          context(entry, fact.contextTokens, fact.contextDigest, before)
        return
      case 'session.opened':
        if (captured.has(fact.trajectory)) return
        captured.add(fact.trajectory)
        if (sampled(fact.trajectory)) inSample--
        return
      case 'call.started':
        capturedCalls++
        return
      case 'call.finished':
      case 'turn.interrupted':
      case 'turn.completed': {
        if (fact.type === 'turn.completed') onlyOnce(once.turns, `${fact.trajectory}#${fact.turn}`, 'turn')
        else if (fact.type === 'call.finished' && fact.finish !== 'failed')
          onlyOnce(once.turns, `${fact.trajectory}#c${fact.call}`, 'call')
        if (fact.tokens.length !== fact.logprobs.length) {
          problem(entry, 'unequal-lengths', `${fact.tokens.length} tokens but ${fact.logprobs.length} logprobs`)
        }
        const covered = fact.segments.reduce((sum, s) => sum + s.end - s.start, 0)
        if (covered !== fact.tokens.length) {
          problem(entry, 'policy-unknown', `segments cover ${covered} of ${fact.tokens.length} tokens`)
        }
        return
      }
      case 'tool.completed':
        onlyOnce(once.tools, `${fact.trajectory}#${fact.turn}#${fact.call}`, 'tool call')
        return
      case 'reward.failed':
        onlyOnce(once.rewards, fact.trajectory, 'the reward of')
        return
      case 'reward.assigned':
        rewardedEarly.delete(fact.trajectory)
        onlyOnce(once.rewards, fact.trajectory, 'the reward of')
        if (!Number.isFinite(fact.reward)) problem(entry, 'bad-reward', `the reward is ${fact.reward}`)
        return
      case 'rollout.finished': {
        open.delete(fact.trajectory)
        if (after === undefined) return
        const folded = { turns: after.texts.length, ...pick(after) }
        for (const name of ['turns', 'sampledTokens', 'toolCalls', 'toolErrors'] as const) {
          if (fact[name] !== folded[name])
            problem(
              entry,
              'wrong-count',
              `${name}: rollout.finished says ${fact[name]}, the facts sum to ${folded[name]}`,
            )
        }
        return
      }
      case 'group.selected':
      case 'group.rejected':
        onlyOnce(once.groups, fact.group, 'the decision about')
        if (fact.type === 'group.selected') {
          selected.set(fact.group, new Set(fact.kept.map(k => `${fact.group}/${k.member}`)))
        }
        return
    }
  }

  function context(entry: Entry, tokens: number, digest: string, rollout: Rollout): void {
    contexts++
    const hash = createHash('sha256')
    let length = 0
    for (const piece of [...rollout.context, ...rollout.partial]) {
      length += piece.length
      hash.update(new Uint8Array(piece.buffer, piece.byteOffset, piece.byteLength))
    }
    if (length !== tokens) problem(entry, 'wrong-context', `turn.asked says ${tokens} tokens, the facts hold ${length}`)
    else if (hash.digest('hex') !== digest)
      problem(entry, 'wrong-context', `the facts hold other tokens than the digest in turn.asked says`)
  }

  return {
    take(entry: Entry, record: BusRecord): void {
      const { message } = entry
      if (entry.topic === 'telemetry') {
        telemetry++
        return
      }
      facts++
      identity(entry, record)
      if (entry.topic === 'trajectories') trajectoryFact(entry, message as TrajectoryFact | CallFact)
      else if (entry.topic === 'learner') {
        const said = steps.take(message as LearnerFact, entry.offset, selected)
        if (said.ignored !== undefined) ignore(said.ignored)
        if (said.problem !== undefined) problem(entry, 'learner', said.problem)
      } else if (!counts(entry)) ignore(`${message.type} of a former learner`)
      else if (message.type === 'run.finished') outcome = `${message.outcome} (${message.reason})`
      else if (message.type === 'run.resumed') outcome = null
    },
    command(): void {
      commands++
    },
    deadLetter(headers: BusRecord['headers']): boolean {
      deadLetters.push({ origin: headers.origin ?? '', error: headers.error ?? '' })
      return false
    },
    result(
      faults: readonly Fault[],
      seconds: number,
      read: Pick<Verification, 'files'> & { readonly problems: readonly Problem[] },
    ): Verification {
      const unrepeated = rewardedEarly.size === 0 ? {} : { [notRepeated]: rewardedEarly.size }
      const ofLog = faults.map(f => ({ place: placeText(f), kind: f.kind, message: f.message }))
      const all = [...ofLog, ...problems, ...read.problems]
      return {
        ok: all.length === 0,
        run,
        facts,
        telemetry,
        commands,
        seconds,
        counted: {
          trajectories: known,
          turns: once.turns.size,
          tools: once.tools.size,
          rewards: once.rewards.size,
          groups: once.groups.size,
          steps: steps.ended(),
        },
        contexts,
        sampledShare: known === 0 ? 1 : inSample / known,
        capturedCalls,
        turnsOfCalls,
        ignored: { ...ignored, ...unrepeated },
        running: [...open],
        outcome,
        deadLetters,
        files: read.files,
        problems: all,
      }
    },
  }
}

const pick = ({ sampledTokens, toolCalls, toolErrors }: Rollout) => ({ sampledTokens, toolCalls, toolErrors })

const rolloutOf = ({ coordinator: { groups } }: Partition, fact: TrajectoryFact | CallFact): Rollout | undefined =>
  'trajectory' in fact ? groups.get(groupOf(fact.trajectory))?.members.get(memberOf(fact.trajectory)) : undefined

const notRepeated = "reward.assigned before its session's end, not repeated after it"

/**
 * Says why a fact changed no state, or names one of three kinds that are no loss. turn of a call: an engine's answer to
 * an agent's call, which the call's own facts repeat. delivery: `call.delivered`, which only training and the gateway
 * read. early reward: the gateway repeats it after the session's end, where it counts.
 */
function whyIgnored(fact: TrajectoryFact | CallFact, state: Partition, rollout: Rollout | undefined): string {
  if ('epoch' in fact && fact.epoch !== state.coordinator.epoch) return `${fact.type} of a former owner`
  if (isReplaced(state.coordinator.curriculum, fact)) return `${fact.type} of a former curriculum`
  if (rollout?.led !== undefined) {
    if (fact.type.startsWith('turn.')) return 'turn of a call'
    if (fact.type === 'call.delivered') return 'delivery'
    if (fact.type === 'reward.assigned' && rollout.phase !== 'finished') return 'early reward'
  }
  if ('attempt' in fact && rollout !== undefined && fact.type.startsWith('turn.') && fact.attempt !== rollout.attempt) {
    return `${fact.type} of an attempt that was given up`
  }
  return `${fact.type} repeated or too late`
}
