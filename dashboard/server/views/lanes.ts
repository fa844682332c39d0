/**
 * Swimlanes: what each trajectory of a step waited for and did, and when.
 *
 * in   an opened run, a filter        out  one page of lanes, each with its pieces in time; the marks of the run
 * Invariant: all times come from facts. A completed turn has the engine's times, clamped to lie between the fact before
 * it and its own; other pieces have the times of facts. A call of a captured session (of an agent, through the gateway)
 * has pieces like a turn, clamped between its start and its end. Calls may run in parallel, so pieces may overlap.
 */
import type { CallFact, CallFinished, CallStarted, TrajectoryFact } from '../../../messages/facts'
import { listTrajectories, type TrajectoryFilter } from '../../../replay/trajectories/filter'
import { readTrajectories, type Trajectory } from '../../../replay/trajectories/trajectory'
import { systemEffects } from '../../../runtime/effects'
import type { Lane, LanePiece, Lanes } from '../../api'
import { type CommandPlace, commandOf } from '../commands'
import type { OpenedRun } from '../openedRun'
import type { PageOf } from './lists'

export async function lanes(
  run: OpenedRun,
  place: CommandPlace,
  filter: TrajectoryFilter,
  { offset, limit }: PageOf,
): Promise<Lanes> {
  const all = await listTrajectories(run.recorded, filter)
  const page = all.slice(offset, offset + limit)
  const wanted = new Set<string>(page.map(one => one.trajectory))
  const read = new Map((await readTrajectories(run.recorded, id => wanted.has(id))).map(one => [one.id as string, one]))
  const now = run.state === 'live' ? systemEffects.now() : run.newest.at
  const rows = page.flatMap((line): Lane[] => {
    const one = read.get(line.trajectory)
    if (one === undefined) return []
    const { trajectory, reward, status, selection } = line
    const pieces = piecesOf(one, now)
    const endsAt = pieces.reduce((latest, { to }) => Math.max(latest, to), one.request.at)
    return [{ trajectory, reward, positive: run.isPositive(reward), status, selection, pieces, endsAt }]
  })
  const from = Math.min(...rows.map(({ pieces }) => pieces[0]?.from ?? Number.POSITIVE_INFINITY))
  const to = Math.max(...rows.map(({ endsAt }) => endsAt))
  return {
    ...{ total: all.length, offset, rows },
    marks: run.facts.marks.filter(({ at }) => at >= from && at <= to),
    command: commandOf(place, 'replay', 'ls', ...(filter.step === undefined ? [] : ['--step', String(filter.step)])),
  }
}

/** Returns the pieces of a lane in the order of their starts; a piece that is still open ends at `now`. */
export function piecesOf(
  { entries, reward, finished }: Pick<Trajectory, 'entries' | 'reward' | 'finished'>,
  now: number,
): readonly LanePiece[] {
  const pieces: LanePiece[] = []
  /** Time at which the part of the lane begins that no piece covers yet. */
  let at = Number.NaN
  const add = (kind: LanePiece['kind'], from: number, to: number, version: number | null = null, bad = false) => {
    if (to > from) pieces.push({ kind, from, to, version, bad })
    at = Math.max(Number.isNaN(at) ? to : at, to)
  }
  const open = new Map<string, number>()
  /** Calls of a captured session that have no answer. While there is one, the session does not wait for its agent. */
  const calls = new Map<number, CallStarted>()
  const addLost = (call: CallStarted, to: number) => add('queue', call.at, to, null, true)
  let waits: LanePiece['kind'] = 'queue'
  let isJudged = reward !== null
  for (const { message } of entries) {
    const fact = message as TrajectoryFact | CallFact
    switch (fact.type) {
      case 'rollout.requested':
        at = fact.at
        break
      case 'turn.completed': {
        const version = fact.segments.at(-1)?.policyVersion ?? null
        const begun = Math.min(Math.max(at, fact.timing.startedAt), fact.at)
        const ended = Math.min(Math.max(begun, fact.timing.endedAt), fact.at)
        add('queue', at, begun)
        add('generation', begun, ended, version)
        waits = 'wait'
        break
      }
      case 'turn.interrupted':
        add('queue', at, fact.at, null, true)
        waits = 'queue'
        break
      case 'turn.asked':
        add('wait', at, fact.at)
        waits = 'queue'
        break
      case 'tool.asked':
        open.set(`${fact.turn}#${fact.call}`, fact.at)
        break
      case 'tool.completed':
        add('tool', open.get(`${fact.turn}#${fact.call}`) ?? fact.at, fact.at, null, fact.status !== 'ok')
        break
      case 'session.opened':
        if (calls.size === 0) add(waits, at, fact.at)
        // The agent of an earlier opening is gone, so its calls get no answer that counts.
        for (const call of calls.values()) addLost(call, fact.at)
        calls.clear()
        waits = 'wait'
        break
      case 'call.started': {
        if (fact.copyOf !== undefined) break // the call was sampled in the session that was forked
        const earlier = calls.get(fact.call)
        if (earlier !== undefined) addLost(earlier, fact.at)
        else if (calls.size === 0) add('wait', at, fact.at)
        calls.set(fact.call, fact)
        break
      }
      case 'call.finished': {
        const call = calls.get(fact.call)
        if (call?.attempt !== fact.attempt) break
        calls.delete(fact.call)
        if (fact.finish === 'failed') {
          addLost(call, fact.at)
          break
        }
        const { begun, ended } = generationOf(call, fact)
        add('queue', call.at, begun)
        add('generation', begun, ended, fact.segments.at(-1)?.policyVersion ?? null)
        break
      }
      case 'rollout.finished':
        if (calls.size === 0) add('wait', at, fact.at, null, fact.outcome === 'failed')
        waits = 'judge'
        break
      case 'group.closed':
        // A reward that comes later does not count.
        if (finished !== null) isJudged = true
        break
      case 'reward.assigned':
        add('judge', at, fact.at)
        break
      case 'reward.failed':
        add('judge', at, fact.at, null, true)
        isJudged = true
        break
    }
  }
  const isOver = isJudged || finished?.outcome === 'failed'
  for (const call of calls.values()) {
    if (finished === null) add('queue', call.at, now)
    else addLost(call, finished.at)
  }
  if (!isOver && (calls.size === 0 || finished !== null) && now > at) add(waits, at, now)
  return pieces.sort((a, b) => a.from - b.from)
}

/** Time in which the engine generated a call's answer; the whole time of the call if the engine reported none. */
function generationOf(call: CallStarted, { at, timing }: CallFinished) {
  if (timing.startedAt <= 0 || timing.endedAt <= 0) return { begun: call.at, ended: at }
  const begun = Math.min(Math.max(call.at, timing.startedAt), at)
  return { begun, ended: Math.min(Math.max(begun, timing.endedAt), at) }
}
