/**
 * Lists what a whole run waits for: its process, a resume, room on a disk, the trainer, open rollouts, undecided
 * groups; if none of these, the result of an evaluation, the next step or the next draw of groups.
 *
 * in   evidence        out  waits, those that hold up everything first, then the longest first
 * Invariant: waits of rollouts and groups come from chains.ts, so a run's answer and a trajectory's agree.
 */
import type { GroupId } from '../../messages/ids'
import { type Answerers, type Link, seconds } from './answerers'
import { factLink, rolloutWaits, type Wait, wait } from './chains'
import type { Circumstances, Evidence, GroupEvidence, LastEvent } from './evidence'
import type { RunStanding } from './outcome'

/**
 * Milliseconds after the `disk-full` alarm during which facts in flight may still be written. A fact later than that
 * shows that the disk has room again.
 */
const stragglersMs = 2000

export function runWaits(evidence: Evidence, who: Answerers, run: RunStanding, around: Circumstances): readonly Wait[] {
  if (run === 'finished') return []
  const first = [...processWaits(evidence, run, around), ...pauseWaits(evidence), ...diskWaits(evidence)]
  const open = [...evidence.rollouts.keys()].flatMap(id => rolloutWaits(evidence, who, id))
  const groups = [...evidence.groups.keys()].flatMap(id => decisionWaits(evidence, who, id))
  const rest = [...learningWaits(evidence, who), ...open, ...groups]
  const all = [...first, ...rest.sort((a, b) => a.since - b.since)]
  return all.length > 0 ? all : drawWaits(evidence, who)
}

function processWaits({ trees, last }: Evidence, run: RunStanding, { now }: Circumstances): readonly Wait[] {
  if (run !== 'crashed' && run !== 'stopped') return []
  const [tree] = trees
  const since = last?.at ?? 0
  const how = run === 'crashed' ? 'is gone: killed or crashed' : 'has ended, before the end of the run'
  const name = tree === undefined ? 'process' : `process ${tree.pid} on ${tree.host}`
  const link: Link = {
    ...{ kind: 'process', name, state: 'gone', last },
    says: `it ${how}; its latest record is ${seconds(now - since)} old`,
  }
  return [wait('process', 'run', since, [...(last === null ? [] : [factLink(last)]), link])]
}

/** The wait for the person who paused the run. */
function pauseWaits({ paused }: Evidence): readonly Wait[] {
  if (paused === null) return []
  const { value: reason, event } = paused
  const says = `paused it${reason === '' ? '' : `: ${reason}`}`
  return [
    wait('order to resume', 'run', event.at, [
      factLink(event),
      { kind: 'person', name: 'a person', says, last: event, state: 'paused' },
    ]),
  ]
}

/**
 * The wait for room on a full disk: the `disk-full` alarm was raised, and no fact is more than `stragglersMs` younger.
 */
function diskWaits(evidence: Evidence): readonly Wait[] {
  const alarm = evidence.alarms.get('disk-full')
  if (alarm === undefined || (evidence.lastFact?.at ?? 0) > alarm.event.at + stragglersMs) return []
  return [wait('disk space', 'run', alarm.event.at, [factLink(alarm.event), diskLink(alarm.value, alarm.event)])]
}

const diskLink = (message: string, last: LastEvent): Link => ({
  ...{ kind: 'disk', name: /^the run pauses: (\S+) has no space/.exec(message)?.[1] ?? 'disk', last, state: 'paused' },
  says: message,
})

function learningWaits(evidence: Evidence, who: Answerers): readonly Wait[] {
  const { published, learner, step, trainer, alarms } = evidence
  const [subject, since] =
    step !== null ? [`step ${step.value.step}`, step.event] : published === null ? ['step 0', learner?.event] : []
  if (subject === undefined || since == null) return []
  const open = factLink(
    since,
    step === null ? 'no weights are published' : `${step.value.trajectories.length} trajectories`,
  )
  const done = step === null ? progressLinks(evidence, since) : []
  const chain = [open, ...done, who.role('learner', learner?.event ?? null), who.role('trainer', trainer)]
  const full = alarms.get('disk-full')
  // The disk has no room for a checkpoint or weights; rollouts may go on meanwhile.
  if (full !== undefined && full.event.at >= since.at) chain.push(diskLink(full.value, full.event))
  return [wait(step === null ? 'cold start' : 'optimizer step', subject, since.at, chain)]
}

/** The cold start's latest report since `begun`; none if no update has ended since. */
function progressLinks({ progress }: Evidence, begun: LastEvent): readonly Link[] {
  if (progress === null || progress.event.at < begun.at) return []
  const { done, loss, leftSeconds } = progress.value
  const left = leftSeconds === undefined ? '' : `, about ${seconds(leftSeconds * 1000)} left then`
  return [factLink(progress.event, `${Math.floor(done * 100)} % done, loss ${loss.toFixed(3)}${left}`)]
}

/**
 * The wait of an undecided group of training, or an open group of an evaluation, none of whose members waits for
 * anything: for the draw of its missing members, else for the owner's decision. Empty for other groups.
 */
export function decisionWaits(evidence: Evidence, who: Answerers, id: GroupId): readonly Wait[] {
  const group = evidence.groups.get(id)
  if (group === undefined || group.decision !== null || (group.closed !== null && group.purpose !== 'train')) return []
  if (group.purpose === 'chat' || group.purpose === 'fork') return []
  if (group.members.some(member => rolloutWaits(evidence, who, member).length > 0)) return []
  const last = latestOf(evidence, group)
  if (group.members.length < group.size) {
    const says = `${group.members.length} of ${group.size} members are requested`
    return [wait('draw of groups', id, last.at, [factLink(last, says), who.role('curriculum', evidence.curriculum)])]
  }
  const partition = evidence.rollouts.get(group.members[0]!)?.partition ?? 0
  const owner = who.role('owner', evidence.owners.get(partition)?.event ?? null)
  return [wait('decision of the group', id, last.at, [factLink(last, 'every member has ended'), owner])]
}

function latestOf({ rollouts }: Evidence, group: GroupEvidence): LastEvent {
  const events = group.members.flatMap(member => rollouts.get(member)?.last ?? [])
  return events.reduce((a, b) => (b.at > a.at ? b : a), group.closed?.event ?? group.requested)
}

/** The wait of a run in which nothing is open: the next step, an evaluation or the run's end is due. */
function drawWaits(evidence: Evidence, who: Answerers): readonly Wait[] {
  const { lastFact, learner, curriculum, evaluations, drawn, done } = evidence
  if (lastFact === null) return []
  const [evaluation] = evaluations
  if (evaluation !== undefined) {
    const says = `every rollout of the evaluation after step ${evaluation.value.step} has ended`
    const chain = [factLink(evaluation.event, says), who.role('evaluator', null)]
    return [wait('next action', `evaluation ${evaluation.value.step}`, lastFact.at, chain)]
  }
  const next = done + 1
  if (drawn.has(next)) {
    const chain = [
      factLink(lastFact, `every group of step ${next} is decided`),
      who.role('learner', learner?.event ?? null),
    ]
    return [wait('optimizer step', `step ${next}`, lastFact.at, chain)]
  }
  const chain = [factLink(lastFact), who.role('curriculum', curriculum)]
  return [wait('draw of groups', `step ${next}`, lastFact.at, chain)]
}
