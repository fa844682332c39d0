/**
 * Gathers evidence: derives from the entries of a log what is known about open work.
 *
 * in   entries of any topics, in each partition's order        out  an `Evidence`
 * Invariant: pure. Facts of replaced owners and learners are left out, and the state of each rollout is computed by the
 * coordinator's own `evolveRollout`, so "open" means here what it means to the run. Topics may be read in any order,
 * and records that no question needs may be left out.
 */
import { fence } from '../../actors/ownership/fencing'
import { pausedAfter } from '../../actors/ownership/orders'
import { evolveRollout, newRollout } from '../../actors/rollouts/rollout'
import { toolKey } from '../../actors/tools/toolPort'
import type { ActorStatus, Command, OfferSlots } from '../../messages/commands'
import type { CurriculumAdvanced, Fact, TrajectoryFact } from '../../messages/facts'
import { type EngineId, type Epoch, type ExecutorId, epoch, type GroupId, type TrajectoryId } from '../../messages/ids'
import { isFact } from '../../messages/isFact'
import type { Entry } from '../../runtime/journal/journal'
import { treesOf } from '../log/supervisionTrees'
import {
  type EngineEvidence,
  type Evidence,
  type GroupEvidence,
  type Known,
  type LastEvent,
  type RolloutEvidence,
  turnKey,
} from './evidence'

type Writable<T> = { -readonly [K in keyof T]: T[K] }

export interface Gathering {
  take(entry: Entry): void
  evidence(): Evidence
}

export function gatherEvidence(entries: Iterable<Entry> = []): Gathering {
  const counts = fence()
  const epochs = new Map<number, Epoch>()
  const rollouts = new Map<TrajectoryId, Writable<RolloutEvidence>>()
  const groups = new Map<GroupId, Writable<GroupEvidence>>()
  const engines = new Map<EngineId, Writable<EngineEvidence>>()
  const executors = new Map<ExecutorId, Known<OfferSlots>>()
  const assigned = new Map<string, Known<EngineId>>()
  const accounts = new Map<EngineId, LastEvent>()
  const generated = new Map<string, LastEvent>()
  const dispatched = new Map<string, Known<ExecutorId>>()
  const executed = new Map<string, LastEvent>()
  const verifications = new Map<TrajectoryId, LastEvent>()
  const owners = new Map<number, Known<string>>()
  const drawn = new Map<number, readonly GroupId[]>()
  const evaluations = new Map<number, Known<CurriculumAdvanced>>()
  const alarms = new Map<string, Known<string>>()
  const actors = new Map<string, ActorStatus>()
  const one: Writable<Pick<Evidence, 'started' | 'begun' | 'finished' | 'scheduler' | 'dispatcher' | 'verifier'>> &
    Writable<
      Pick<
        Evidence,
        | 'learner'
        | 'published'
        | 'progress'
        | 'trainer'
        | 'done'
        | 'step'
        | 'curriculum'
        | 'lastFact'
        | 'last'
        | 'paused'
        | 'ends'
      >
    > = {
    ...{ started: null, begun: null, finished: null, scheduler: null, dispatcher: null, verifier: null, learner: null },
    ...{
      published: null,
      progress: null,
      trainer: null,
      done: 0,
      step: null,
      curriculum: null,
      lastFact: null,
      last: null,
      paused: null,
      ends: null,
    },
  }
  const newer = (a: LastEvent | null, b: LastEvent) => (a === null || b.at >= a.at ? b : a)

  function engine(id: EngineId, event: LastEvent, change: Partial<EngineEvidence>): void {
    const before = engines.get(id) ?? {
      joined: null,
      left: null,
      asleep: false,
      version: null,
      status: null,
      last: event,
    }
    engines.set(id, { ...before, ...change, last: newer(before.last, event) })
  }

  function ofTrajectory(fact: TrajectoryFact, entry: Entry, event: LastEvent): void {
    switch (fact.type) {
      case 'partition.claimed':
        epochs.set(entry.partition, epoch(entry.offset))
        owners.set(entry.partition, { value: fact.owner, event })
        return
      case 'scheduler.claimed':
        one.scheduler = newer(one.scheduler, event)
        return
      case 'curriculum.claimed':
        return
      case 'rollout.requested': {
        if (rollouts.has(fact.trajectory)) return
        rollouts.set(fact.trajectory, {
          ...{ rollout: newRollout(fact), last: event, asked: null, calls: new Map(), turns: new Map() },
          ...{ finished: null, reward: null, interrupted: null, partition: entry.partition },
        })
        const { groupSize: size, purpose, step } = fact
        const group = groups.get(fact.group)
        if (group === undefined)
          groups.set(fact.group, {
            ...{ members: [fact.trajectory], size, purpose, step },
            ...{ requested: event, closed: null, decision: null },
          })
        else group.members = [...group.members, fact.trajectory]
        return
      }
      case 'group.closed':
      case 'group.selected':
      case 'group.rejected': {
        const group = groups.get(fact.group)
        if (group === undefined) return
        if (fact.type !== 'group.closed') group.decision ??= { value: fact, event }
        else if (group.closed === null) {
          group.closed = { value: fact, event }
          for (const id of group.members) ofRollout(id, fact, entry, event)
        }
        return
      }
      default:
        ofRollout(fact.trajectory, fact, entry, event)
    }
  }

  function ofRollout(id: TrajectoryId, fact: TrajectoryFact, entry: Entry, event: LastEvent): void {
    const known = rollouts.get(id)
    if (known === undefined) return
    const after = evolveRollout(known.rollout, fact, epochs.get(entry.partition) ?? epoch(-1))
    if (after === known.rollout) return
    known.rollout = after
    known.last = event
    switch (fact.type) {
      case 'turn.asked':
        known.asked = event
        break
      case 'tool.asked':
        known.calls = new Map(known.calls).set(fact.call, event)
        break
      case 'context.appended':
        known.calls = new Map()
        known.asked = null
        break
      case 'turn.completed':
        known.turns = new Map(known.turns).set(fact.turn, { value: fact, event })
        break
      case 'turn.interrupted':
        known.interrupted = { value: fact, event }
        break
      case 'rollout.finished':
        known.finished = { value: fact, event }
        break
      case 'reward.assigned':
      case 'reward.failed':
        known.reward = { value: fact, event }
    }
  }

  function ofRun(fact: Exclude<Fact, TrajectoryFact>, event: LastEvent): void {
    switch (fact.type) {
      case 'run.started':
        one.started ??= { value: fact, event }
        one.begun = event
        return
      case 'run.resumed':
        one.begun = event
        one.finished = null
        one.ends = null
        return
      case 'run.finished':
        one.finished = { value: fact, event }
        return
      case 'engine.joined':
        engine(fact.engine, event, { joined: event, left: null, asleep: false })
        return
      case 'engine.left':
        engine(fact.engine, event, { left: { value: fact.reason, event } })
        return
      case 'engine.slept':
        engine(fact.engine, event, { asleep: true })
        return
      case 'engine.woke':
        engine(fact.engine, event, { asleep: false })
        return
      case 'weights.applied':
        engine(fact.engine, event, { version: fact.version, asleep: false })
        return
      case 'curriculum.advanced':
        one.curriculum = newer(one.curriculum, event)
        if (fact.purpose === 'train') drawn.set(fact.step, [...(drawn.get(fact.step) ?? []), ...fact.groups])
        else if (fact.purpose === 'eval') evaluations.set(fact.step, { value: fact, event })
        return
      case 'evaluation.completed':
        evaluations.delete(fact.step)
        return
      case 'alarm.raised':
        alarms.set(fact.alarm, { value: fact.message, event })
        return
      case 'control.obeyed':
        if (!pausedAfter(one.paused !== null, fact.order)) one.paused = null
        else one.paused ??= { value: fact.reason, event }
        if (fact.order === 'resume') one.ends = null
        else if (fact.order !== 'pause') one.ends = { value: `${fact.order} ${fact.reason}`.trim(), event }
        return
      case 'learner.claimed':
        one.learner = { value: fact.owner, event }
        return
      case 'step.started':
        if (fact.step > one.done) one.step = { value: fact, event }
        break
      case 'step.completed':
      case 'step.rejected':
        if (fact.step <= one.done) return
        one.done = fact.step
        if (one.step !== null && one.step.value.step <= fact.step) one.step = null
        break
      case 'weights.published':
        one.published = { value: fact.version, event }
        break
      case 'stage.progressed':
        one.progress = { value: fact, event }
        break
      case 'checkpoint.saved':
        break
      default:
        return
    }
    one.trainer = newer(one.trainer, event)
  }

  function ofCommand(command: Command, event: LastEvent): void {
    switch (command.type) {
      case 'turn.generate':
        generated.set(turnKey(command.trajectory, command.turn, command.attempt), event)
        return
      case 'turn.assign': {
        const { trajectory, turn, attempt } = command.ask
        assigned.set(turnKey(trajectory, turn, attempt), { value: command.engine, event })
        one.scheduler = newer(one.scheduler, event)
        return
      }
      case 'ledger.status':
        accounts.set(command.engine, event)
        one.scheduler = newer(one.scheduler, event)
        return
      case 'engine.status':
        engine(command.engine, event, { status: { value: command, event } })
        return
      case 'tool.execute':
        executed.set(toolKey(command), event)
        return
      case 'tools.assign':
        one.dispatcher = newer(one.dispatcher, event)
        for (const ask of command.calls) dispatched.set(toolKey(ask), { value: command.executor, event })
        return
      case 'executor.slots':
        executors.set(command.executor, { value: command, event })
        return
      case 'answer.verify':
        verifications.set(command.trajectory, event)
        return
      case 'actor.status':
        actors.set(`${command.tree} ${command.actor}`, command)
    }
  }

  function take(entry: Entry): void {
    const { message, topic, partition, offset } = entry
    const at = 'at' in message ? message.at : entry.timestamp
    const event: LastEvent = { what: message.type, at, place: { topic, partition, offset } }
    one.last = newer(one.last, event)
    if (!isFact(message)) {
      ofCommand(message, event)
      return
    }
    if (!counts(entry)) return
    if (message.type !== 'alarm.raised') one.lastFact = newer(one.lastFact, event)
    if (message.type === 'reward.assigned' || message.type === 'reward.failed')
      one.verifier = newer(one.verifier, event)
    if (topic === 'trajectories') ofTrajectory(message as TrajectoryFact, entry, event)
    else ofRun(message as Exclude<Fact, TrajectoryFact>, event)
  }

  for (const entry of entries) take(entry)
  return {
    take,
    evidence: () => ({
      ...{ ...one, rollouts, groups, engines, executors, assigned, accounts },
      ...{ generated, dispatched, executed, verifications },
      ...{ owners, alarms, trees: treesOf([...actors.values()], one.begun?.at ?? 0) },
      drawn: new Map([...drawn].filter(([step]) => step > one.done)),
      evaluations: [...evaluations.values()],
    }),
  }
}
