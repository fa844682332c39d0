/**
 * Runs today's coordinator and grouper over the recorded history of a run.
 *
 * in   a recorded run; its log answers for engines, tools, renderer and verifier
 * out  counts of equal decisions, every decision that differs, and the decisions that were open when the log ended
 */
import { fence } from '../../actors/ownership/fencing'
import { agentsOf } from '../../actors/rollouts/agents'
import { coordinator } from '../../actors/rollouts/coordinator'
import { grouper } from '../../actors/rollouts/grouper'
import { owner } from '../../actors/rollouts/owner'
import { type RecipeConfig, selectionOf } from '../../config'
import type { Fact, RunFact } from '../../messages/facts'
import { type GroupId, groupOf } from '../../messages/ids'
import type { Entry } from '../../runtime/journal/journal'
import { configOf } from '../log/recordedConfig'
import type { RecordedRun } from '../log/recordedRun'
import { replayError } from '../replayError'
import { resolveTarget, trajectoriesOf } from '../trajectories/resolveId'
import { scanTrajectories } from '../trajectoryIndex/scanTrajectories'
import { aboutOf, type OwnerBehaviour, type Rerun, rerunPartition, type Stepped } from './rerunPartition'
/** Receives each selected fact as it is replayed. Resolving with false ends the replay there. */
export interface Observer {
  at(stepped: Stepped): Promise<boolean>
}

export interface ReplayOptions {
  /**
   * Selects the trajectories and groups whose decisions are counted and whose differences are reported. Default: all.
   */
  readonly wants?: (id: string) => boolean
  /** Groups whose facts are replayed. Default: all. */
  readonly groups?: ReadonlySet<GroupId>
  /** Creates the behaviour that is compared with the log. Default: the partition owner's behaviour, as in a run. */
  readonly behaviour?: (config: RecipeConfig) => OwnerBehaviour
  /** Observer that is called with every selected fact. */
  readonly observer?: Observer
  /** true: the observer sees the facts of the run and of the learner too, in order of time. */
  readonly whole?: boolean
}

/** Creates the partition owner's behaviour (coordinator and grouper) as `startRun` does. */
export const ownerOf = (config: RecipeConfig): OwnerBehaviour =>
  owner(
    coordinator({ turnTimeoutMs: config.rollout.turnTimeoutMs, ...agentsOf(config) }),
    grouper({ runSeed: config.seed, selection: selectionOf(config) }),
  )

/**
 * Replays every partition of the run, or with `groups` only the facts of these groups.
 * @throws TroupeError replay.run_empty when the log has no `run.started`; config.invalid when today's schema refuses
 * the run's recipe; replay.captured for the log of a stand-alone gateway
 */
export async function replayRun(recorded: RecordedRun, options: ReplayOptions = {}): Promise<Rerun> {
  const { wants = () => true, groups, behaviour = ownerOf } = options
  const config = await configOf(recorded)
  let done = false
  const counts = fence()
  await recorded.scan('runs', entry => {
    if (!counts(entry)) return
    const fact = entry.message as RunFact
    if (fact.type === 'run.finished') done = fact.outcome === 'done'
    else if (fact.type === 'run.resumed') done = false
  })
  const partitions = new Map<number, ReturnType<typeof rerunPartition>>()
  const shown = options.observer === undefined ? undefined : await shower(recorded, options.observer, options)
  try {
    const take = (entry: Entry) => {
      if (entry.message.type === 'session.opened' && config.agent === undefined)
        throw gatewayLog(recorded.run, entry.message.trajectory)
      let partition = partitions.get(entry.partition)
      if (partition === undefined) {
        partition = rerunPartition(() => behaviour(config), wants)
        partitions.set(entry.partition, partition)
      }
      const stepped = partition.take(entry)
      return shown?.at(stepped)
    }
    if (groups === undefined) await recorded.scan('trajectories', take)
    else await scanTrajectories(recorded, id => groups.has(groupOf(id)), take)
    await shown?.rest()
  } catch (thrown) {
    if (!(thrown instanceof Enough)) throw thrown
    recorded.notice('the replay was stopped here: later facts were not replayed')
    // The replay did not reach the rest of the log, so decisions that are open here do not count as missing.
    done = false
  }
  const results = [...partitions.values()].map(p => p.result(done))
  const sum = (of: (r: Rerun) => number) => results.reduce((total, r) => total + of(r), 0)
  return {
    same: sum(r => r.same),
    byClock: sum(r => r.byClock),
    askedAgain: sum(r => r.askedAgain),
    repeated: sum(r => r.repeated),
    fenced: sum(r => r.fenced),
    given: sum(r => r.given),
    inFlight: results.flatMap(r => r.inFlight),
    divergences: results.flatMap(r => r.divergences),
  }
}

/** A stand-alone gateway has no coordinator or grouper; a run that starts its agents (section `agent`) has both. */
const gatewayLog = (run: string, session: string) =>
  replayError(
    'captured',
    `run '${run}' is a gateway's: agents decided the calls of its sessions, such as ${session}, and no coordinator or grouper took a decision that could be compared`,
    '`troupe replay show SESSION` prints the calls of a session; `troupe replay verify` checks the log',
  )

/** Thrown to end the replay when the observer resolves with false. */
class Enough extends Error {}

/**
 * Passes the selected facts to the observer; with `whole` also the facts of run and learner, merged by time of
 * appending.
 */
async function shower(recorded: RecordedRun, observer: Observer, { wants, whole }: ReplayOptions) {
  const beside: Entry[] = []
  if (whole === true) for (const topic of ['runs', 'learner'] as const) await recorded.scan(topic, e => beside.push(e))
  beside.sort((a, b) => a.timestamp - b.timestamp)
  let shown = 0
  const show = async (stepped: Stepped) => {
    if (!(await observer.at(stepped))) throw new Enough()
  }
  const showBeside = async (until: number) => {
    while (shown < beside.length && beside[shown]!.timestamp <= until) {
      const entry = beside[shown++]!
      await show({ entry, counts: true, agrees: null, divergences: [], decides: [], state: null })
    }
  }
  return {
    async at(stepped: Stepped): Promise<void> {
      await showBeside(stepped.entry.timestamp)
      const about = [aboutOf(stepped.entry.message as Fact), ...stepped.divergences.map(d => d.about)]
      if (wants === undefined || about.some(wants)) await show(stepped)
    },
    rest: () => showBeside(Number.POSITIVE_INFINITY),
  }
}

/**
 * Replays the groups of the trajectory, group or step that `target` names; a group or a trajectory also by a part of
 * its id. Reads only the facts of these groups and the claims (facts that change owners) of their partitions. If that
 * finds a decision that is missing, unexpected or still open, and the observer did not end the replay, the whole log is
 * replayed without the observer, so that the decision is compared among everything decided at that time.
 * @throws TroupeError replay.no_match, replay.ambiguous, and the errors of `replayRun`
 */
export async function replayTarget(recorded: RecordedRun, target: string, observer?: Observer): Promise<Rerun> {
  const trajectories = await trajectoriesOf(recorded)
  const wants = resolveTarget(target, trajectories)
  const groups = new Set(trajectories.filter(wants).map(groupOf))
  let isEnough = false
  const at = async (stepped: Stepped) => {
    isEnough = (await observer?.at(stepped)) === false
    return !isEnough
  }
  const replayed = await replayRun(recorded, { wants, groups, ...(observer === undefined ? {} : { observer: { at } }) })
  const isPlain = replayed.divergences.every(({ kind }) => kind === 'differs' || kind === 'throws')
  return (isPlain && replayed.inFlight.length === 0) || isEnough ? replayed : replayRun(recorded, { wants })
}
