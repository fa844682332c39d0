/**
 * Swimlanes: what each trajectory of a step waited for and did, and when.
 *
 * in   an opened run, a filter        out  one page of lanes, each with its pieces in time; the marks of the run
 * Invariant: times are those in the facts: of a completed turn the engine's, held between the fact before it and its
 * own; else the times of the facts. Calls of a captured session (an agent's, through the gateway) give no pieces.
 */
import type { TrajectoryFact } from '../../../messages/facts'
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
    return [{ trajectory, reward, positive: run.isPositive(reward), status, selection, pieces: piecesOf(one, now) }]
  })
  const from = Math.min(...rows.map(({ pieces }) => pieces[0]?.from ?? Number.POSITIVE_INFINITY))
  const to = Math.max(...rows.map(({ pieces }) => pieces.at(-1)?.to ?? Number.NEGATIVE_INFINITY))
  return {
    ...{ total: all.length, offset, rows },
    marks: run.facts.marks.filter(({ at }) => at >= from && at <= to),
    command: commandOf(place, 'replay', 'ls', ...(filter.step === undefined ? [] : ['--step', String(filter.step)])),
  }
}

/**
 * Returns the pieces of a lane in the order of the facts that end them; the last one ends `now` if it is still open.
 */
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
  let waits: LanePiece['kind'] = 'queue'
  let isJudged = reward !== null
  for (const { message } of entries) {
    const fact = message as TrajectoryFact
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
      case 'rollout.finished':
        add('wait', at, fact.at, null, fact.outcome === 'failed')
        waits = 'judge'
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
  if (!isOver && now > at) add(waits, at, now)
  return pieces
}
