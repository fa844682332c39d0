/**
 * `troupe replay run T|G|--all`: runs today's coordinator and grouper over the recorded history.
 *
 * in   the log: it answers for engines, tools, renderer and verifier        out  the first decision that differs; exit 1
 */
import type { Command } from 'commander'
import { fence } from '../../actors/ownership/fencing'
import { coordinator } from '../../actors/rollouts/coordinator'
import { grouper } from '../../actors/rollouts/grouper'
import { owner } from '../../actors/rollouts/owner'
import { type RecipeConfig, selectionOf } from '../../config'
import type { Fact, RunFact } from '../../messages/facts'
import { type GroupId, groupOf } from '../../messages/ids'
import { configOf } from '../../replay/log/recordedConfig'
import type { RecordedRun } from '../../replay/log/recordedRun'
import { aboutOf, type OwnerBehaviour, type Rerun, rerun, type Stepped } from '../../replay/rerun/rerunPartition'
import { resolveTarget, trajectoriesOf } from '../../replay/trajectories/resolveId'
import { scanTrajectories } from '../../replay/trajectoryIndex/scanTrajectories'
import { codeDigest } from '../../runtime/digests'
import { TroupeError } from '../../runtime/errors'
import type { Entry } from '../../runtime/journal/journal'
import { escapeForTerminal, painter } from '../io/terminal'
import { divergenceLines } from './divergenceLines'
import { jsonText } from './jsonText'
import { openRecorded, type ReadOptions, reportFaults, withRun } from './runOptions'
import type { Stepper } from './step'

interface RunOptions extends ReadOptions {
  readonly all?: boolean
  readonly step?: boolean
  readonly break?: string
  readonly json?: boolean
}

export function registerRun(replay: Command): void {
  const command = replay
    .command('run [target]')
    .description(
      "run today's code over a trajectory, a group or all of a run; exit 1 at the first decision that differs",
    )
    .option('--all', 'every trajectory of the run')
    .option('--step', 'stop at every fact, and wait for what to do')
    .option('--break <expression>', 'stop where it holds of a fact, as \'status == "error"\'')
    .option('--json', 'one JSON object; with stops, a JSON line for each before it')
  withRun(command).action(async (target: string | undefined, options: RunOptions) => {
    if (target === undefined && options.all !== true) {
      throw new TroupeError('cli.no_target', {
        boundary: 'cli',
        retriable: false,
        message: 'no trajectory and no group was named',
        hint: 'troupe replay run T, or --all',
      })
    }
    const stops = options.step === true || options.break !== undefined ? stepperOf(options) : undefined
    const recorded = await openRecorded(options).catch((thrown: unknown) => {
      stops?.end()
      throw thrown
    })
    try {
      const replayed =
        target === undefined
          ? await replayRun(recorded, stops === undefined ? {} : { stops, whole: true })
          : await replayTarget(recorded, target, stops)
      const sameCode = (await recorded.started()).codeDigest === codeDigest()
      if (options.json) process.stdout.write(`${jsonText({ run: recorded.run, sameCode, ...replayed })}\n`)
      else process.stdout.write(`${report(recorded, replayed, sameCode, target).join('\n')}\n`)
      reportFaults(recorded)
      process.exitCode = replayed.divergences.length > 0 || recorded.faults.length > 0 ? 1 : 0
    } finally {
      stops?.end()
      await recorded.close()
    }
  })
}

/**
 * A group is led by its own facts and the claims of its partition: no other record is read. Where something is missing, or
 * stands where it should not, the whole log is gone through, to see it among all that was decided then.
 */
export async function replayTarget(recorded: RecordedRun, target: string, stops?: Stepper): Promise<Rerun> {
  const trajectories = await trajectoriesOf(recorded)
  const wants = resolveTarget(target, trajectories)
  const groups = new Set(trajectories.filter(wants).map(groupOf))
  let isEnough = false
  const at = async (stepped: Stepped) => {
    isEnough = (await stops?.at(stepped)) === false
    return !isEnough
  }
  const replayed = await replayRun(recorded, { wants, groups, ...(stops === undefined ? {} : { stops: { at } }) })
  const isPlain = replayed.divergences.every(({ kind }) => kind === 'differs' || kind === 'throws')
  return (isPlain && replayed.inFlight.length === 0) || isEnough ? replayed : replayRun(recorded, { wants })
}

/** Loaded when it is asked for: other replays need no expressions. */
const stepperOf = (options: RunOptions): Stepper =>
  (require('./step') as typeof import('./step')).stepper({
    step: options.step === true,
    ...(options.break === undefined ? {} : { break: options.break }),
    json: options.json === true,
    input: process.stdin,
  })

export interface ReplayOptions {
  /** Which trajectories and groups are looked at and counted. Default all. */
  readonly wants?: (id: string) => boolean
  /** Which are folded. Default all. */
  readonly groups?: ReadonlySet<GroupId>
  /** Another behaviour than today's: for tests of changes. */
  readonly behaviour?: (config: RecipeConfig) => OwnerBehaviour
  /** Asked at every fact that is looked at. With `whole`, facts of learner and run stand between them, by their time. */
  readonly stops?: Pick<Stepper, 'at'>
  readonly whole?: boolean
}

/** The owner as `startRun` makes it. */
export const ownerOf = (config: RecipeConfig): OwnerBehaviour =>
  owner(
    coordinator({ turnTimeoutMs: config.rollout.turnTimeoutMs }),
    grouper({ runSeed: config.seed, selection: selectionOf(config) }),
  )

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
  const partitions = new Map<number, ReturnType<typeof rerun>>()
  const look = options.stops === undefined ? undefined : await lookerOf(recorded, options.stops, options)
  try {
    const take = (entry: Entry) => {
      let partition = partitions.get(entry.partition)
      if (partition === undefined) {
        partition = rerun(() => behaviour(config), wants)
        partitions.set(entry.partition, partition)
      }
      const stepped = partition.take(entry)
      return look?.at(stepped)
    }
    if (groups === undefined) await recorded.scan('trajectories', take)
    else await scanTrajectories(recorded, id => groups.has(groupOf(id)), take)
    await look?.rest()
  } catch (thrown) {
    if (!(thrown instanceof Enough)) throw thrown
    process.stderr.write('stopped: what comes after it was not replayed\n')
    // What was not looked at is not missing.
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

/** The person at the prompt has seen enough. */
class Enough extends Error {}

/** Shows what is wanted; with `whole`, facts of run and learner before the first that was appended later. */
async function lookerOf(recorded: RecordedRun, stops: Pick<Stepper, 'at'>, { wants, whole }: ReplayOptions) {
  const beside: Entry[] = []
  if (whole === true) for (const topic of ['runs', 'learner'] as const) await recorded.scan(topic, e => beside.push(e))
  beside.sort((a, b) => a.timestamp - b.timestamp)
  let shown = 0
  const show = async (stepped: Stepped) => {
    if (!(await stops.at(stepped))) throw new Enough()
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

const paint = painter(process.stdout)

function report(recorded: RecordedRun, replayed: Rerun, sameCode: boolean, target?: string): string[] {
  const { same, byClock, askedAgain, repeated, fenced, given, inFlight, divergences } = replayed
  const asides = [
    [byClock, 'by a deadline'],
    [askedAgain, 'asked again after a restart'],
    [repeated, 'said twice, counted once'],
    [fenced, 'of former owners, passed over'],
    [given, 'put there by a fork or an import, not compared'],
    [inFlight.length, 'not in the log yet at its end'],
  ] as const
  const notes = asides.filter(([n]) => n > 0).map(([n, what]) => `${n} ${what}`)
  const lines = [
    `run ${recorded.run}${target === undefined ? '' : `, ${escapeForTerminal(target)}`}: ${same} decisions are as recorded${notes.length > 0 ? ` (${notes.join(', ')})` : ''}; the code is ${sameCode ? 'the same' : 'another'}`,
  ]
  const [first] = divergences
  if (first === undefined) return [...lines, paint('green', 'no decision differs')]
  lines.push('', ...divergenceLines(first))
  const others = new Set(divergences.slice(1).map(d => d.about))
  others.delete(first.about)
  if (others.size > 0)
    lines.push('', `${others.size} more differ: ${[...others].slice(0, 8).join(', ')}${others.size > 8 ? ', …' : ''}`)
  return lines
}
