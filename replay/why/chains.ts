/**
 * Chains: for each open request of a rollout, the links from the open fact to the part that owes the answer.
 *
 * in   evidence of a rollout        out  waits: what it waits for, since when, and the chain; none if it waits for
 * nothing
 * Invariant: the last link of a chain is the part that owes the answer or, if no part can give it now, the part that
 * can change that. Each link has its own latest event, if the log has one. What a rollout waits for follows from its
 * state as the coordinator sees it, never from the time.
 */
import type { Led } from '../../actors/rollouts/led'
import { awaitsReward } from '../../actors/rollouts/nextActions'
import { callTimeoutMs } from '../../actors/rollouts/rollout'
import type { TrajectoryId } from '../../messages/ids'
import { type AnswererState, type Answerers, type Link, seconds } from './answerers'
import { type Evidence, type LastEvent, type RolloutEvidence, turnKey } from './evidence'

export type WaitFor =
  | 'generation'
  | 'tool call'
  | 'rendering of tool results'
  | 'reward'
  | 'next action'
  | 'agent'
  | 'decision of the group'
  | 'optimizer step'
  | 'cold start'
  | 'draw of groups'
  | 'order to resume'
  | 'disk space'
  | 'process'

export interface Wait {
  readonly for: WaitFor
  /** Subject that waits: a step, group, trajectory, turn (`…#1`) or call (`…#1#0`). */
  readonly id: string
  /** Time at which the wait began, ms since 1970. */
  readonly since: number
  readonly chain: readonly Link[]
  /** State of the last link, which owes the answer. */
  readonly state: AnswererState
}

export const owedBy = ({ chain }: Wait): Link => chain.at(-1)!

export const wait = (what: WaitFor, id: string, since: number, chain: readonly Link[]): Wait => ({
  ...{ for: what, id, since, chain, state: chain.at(-1)?.state ?? 'unknown' },
})

export const factLink = (event: LastEvent, says = ''): Link => ({ kind: 'fact', name: event.what, says, last: event })
const commandLink = (name: string, says: string, last: LastEvent | null): Link => ({
  kind: 'command',
  name,
  says,
  last,
})

/**
 * Lists what a rollout waits for: one wait for each unanswered tool call while it waits for tools, else one wait or
 * none.
 */
export function rolloutWaits(evidence: Evidence, who: Answerers, id: TrajectoryId): readonly Wait[] {
  const one = evidence.rollouts.get(id)
  if (one === undefined) return []
  const { rollout } = one
  const coordinator = () => {
    const owner = evidence.owners.get(one.partition)
    return who.role('owner', owner?.event ?? null)
  }
  switch (rollout.phase) {
    case 'turn':
      if (rollout.led !== undefined)
        return [wait('agent', id, one.last.at, [factLink(one.last, agentSays(rollout.led)), coordinator()])]
      if (rollout.open) return [generation(evidence, who, one)]
      return [wait('next action', id, one.last.at, [factLink(one.last, 'no turn.asked follows'), coordinator()])]
    case 'tools':
      return rollout.calls.flatMap((call, index) => {
        if (call.response !== null) return []
        const place = `${id}#${rollout.turn}#${index}`
        if (call.attempt < 0)
          return [wait('next action', place, one.last.at, [factLink(one.last, 'no tool.asked follows'), coordinator()])]
        return [toolCall(evidence, who, one, index)]
      })
    case 'append':
      return [
        wait('rendering of tool results', `${id}#${rollout.turn}`, one.last.at, [
          factLink(one.last, 'all tool results are here'),
          coordinator(),
          who.role('renderer', null),
        ]),
      ]
    case 'ended':
      return [wait('next action', id, one.last.at, [factLink(one.last, 'no rollout.finished follows'), coordinator()])]
    case 'finished': {
      if (!awaitsReward(rollout) || one.finished === null || rollout.request.purpose === 'chat') return []
      const { event } = one.finished
      const asked = evidence.verifications.get(id) ?? null
      return [
        wait('reward', id, event.at, [
          factLink(event, `outcome ${one.finished.value.outcome}`),
          commandLink('answer.verify', asked === null ? 'no request for the reward is in the log' : '', asked),
          who.role('verifier', evidence.verifier),
        ]),
      ]
    }
  }
}

function agentSays({ opening, calls }: Led): string {
  if (opening < 0) return 'no agent has begun: agent.atOnce bounds those that run at once'
  return calls.size > 0 ? `${calls.size} of its agent's calls have no answer` : "none of its agent's calls is open"
}

function generation(evidence: Evidence, who: Answerers, one: RolloutEvidence): Wait {
  const { rollout, asked, last } = one
  const { trajectory, minVersion } = rollout.request
  const key = turnKey(trajectory, rollout.turn, rollout.attempt)
  const open = asked ?? last
  const attempt = rollout.attempt === 0 ? '' : `attempt ${rollout.attempt}${faultOf(one)}; `
  const chain: Link[] = [factLink(open, `${attempt}${rollout.contextTokens + rollout.partialTokens} tokens of context`)]
  const command = evidence.generated.get(key) ?? null
  chain.push(commandLink('turn.generate', command === null ? 'no request for this attempt is in the log' : '', command))
  const assigned = evidence.assigned.get(key)
  const id = `${trajectory}#${rollout.turn}`
  if (assigned === undefined)
    return wait('generation', id, open.at, [...chain, ...unassigned(evidence, who, minVersion)])
  chain.push(commandLink('turn.assign', `to engine ${assigned.value}`, assigned.event))
  return wait('generation', id, open.at, [...chain, who.engine(assigned.value)])
}

const faultOf = ({ interrupted }: RolloutEvidence): string =>
  interrupted === null
    ? ''
    : ` after ${interrupted.value.reason}${interrupted.value.error === '' ? '' : `: ${interrupted.value.error.split('\n')[0]}`}`

/**
 * Returns the links that show why the scheduler has assigned a turn to no engine; the last is the part that can change
 * that.
 */
function unassigned(evidence: Evidence, who: Answerers, minVersion: number): readonly Link[] {
  const scheduler = who.role('scheduler', evidence.scheduler)
  const present = [...evidence.engines].filter(([, e]) => e.joined !== null && e.left === null)
  if (scheduler.state === 'gone' || scheduler.state === 'down') return [scheduler]
  if (evidence.paused !== null) {
    const says = 'it assigns nothing while the run is paused'
    return [
      { ...scheduler, says },
      { kind: 'person', name: 'a person', says: 'paused the run', last: evidence.paused.event, state: 'paused' },
    ]
  }
  const asleep = present.filter(([, e]) => e.asleep)
  if (asleep.length > 0) {
    const says = `waits until engine ${asleep[0]![0]} wakes: the trainer has the GPU memory`
    return [{ ...scheduler, says }, who.role('trainer', evidence.trainer)]
  }
  if (present.length === 0) {
    const left = [...evidence.engines.keys()]
    const says = `no engine takes turns: ${left.length === 0 ? 'none has joined' : `${left.join(', ')} left`}`
    return [{ ...scheduler, says }, ...left.slice(0, 1).map(who.engine)]
  }
  // An engine that joined with older weights accepts no turns yet: no turn waits for it while another engine has them.
  const isBehind = ([, { version }]: (typeof present)[number]) => (version ?? -1) < minVersion
  const accepting = present.filter(([id, { joined }]) => (evidence.accounts.get(id)?.at ?? 0) >= joined!.at)
  const behind = (present.every(isBehind) ? present : accepting).filter(isBehind)
  if (behind.length > 0) {
    const [id, { version }] = behind[0]!
    const has = version === null ? 'has no weights' : `has policy version ${version}`
    return [{ ...scheduler, says: `the turn needs policy version ${minVersion}; engine ${id} ${has}` }, who.engine(id)]
  }
  const links = present.map(([id]) => who.engine(id))
  const living = links.filter(({ state }) => state === 'working')
  if (living.length === 0) return [{ ...scheduler, says: 'no engine shows life' }, ...links.slice(0, 1)]
  // The scheduler answers each engine's status with a `ledger.status`. Here engines send statuses, and no answer
  // follows.
  if (scheduler.last === null || who.isSilent(scheduler.last)) {
    const says = 'engines report, but the scheduler has written nothing since'
    return [{ ...scheduler, state: 'silent', says: `${says}; ${scheduler.says}` }]
  }
  const names = living.slice(0, 4).map(({ name, says }) => `${name}: ${says}`)
  return [
    { ...scheduler, state: 'queued', says: `the turn waits in the queue for room on an engine (${names.join('; ')})` },
  ]
}

function toolCall(evidence: Evidence, who: Answerers, one: RolloutEvidence, index: number): Wait {
  const { rollout } = one
  const { trajectory } = rollout.request
  const call = rollout.calls[index]!
  const id = `${trajectory}#${rollout.turn}#${index}`
  const key = `${id}#${call.attempt}`
  const asked = one.calls.get(index) ?? one.last
  const attempt = call.attempt === 0 ? '' : `attempt ${call.attempt}; `
  const chain: Link[] = [factLink(asked, `${attempt}${call.tool}, deadline ${seconds(callTimeoutMs(rollout, call))}`)]
  const command = evidence.executed.get(key) ?? null
  chain.push(commandLink('tool.execute', command === null ? 'no request for this attempt is in the log' : '', command))
  const given = evidence.dispatched.get(key)
  if (given !== undefined) {
    chain.push(commandLink('tools.assign', `to executor ${given.value}`, given.event))
    return wait('tool call', id, asked.at, [...chain, who.executor(given.value, key)])
  }
  const dispatcher = who.role('dispatcher', evidence.dispatcher)
  const offering = [...evidence.executors].filter(([, { value }]) => value.slots > 0 && value.tools.includes(call.tool))
  if (offering.length === 0) {
    return wait('tool call', id, asked.at, [
      ...chain,
      { ...dispatcher, state: 'queued', says: `no executor offers the tool ${call.tool}` },
    ])
  }
  const links = offering.map(([name]) => who.executor(name, key))
  const working = links.filter(({ state }) => state === 'working')
  if (working.length === 0)
    return wait('tool call', id, asked.at, [...chain, { ...dispatcher, says: 'no executor shows life' }, links[0]!])
  const state = ['working', 'unknown'].includes(dispatcher.state) ? 'queued' : dispatcher.state
  return wait('tool call', id, asked.at, [
    ...chain,
    {
      ...dispatcher,
      state,
      says: `the call waits for a free slot (${working[0]!.name}: ${working[0]!.says}); ${dispatcher.says}`,
    },
  ])
}
