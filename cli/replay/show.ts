/**
 * `troupe replay show T`: one trajectory, turn by turn, so that a person can read it.
 * Everything that a model or a tool wrote is escaped before it reaches the terminal.
 */
import { type Command, InvalidArgumentError } from 'commander'
import { fence } from '../../actors/ownership/fencing'
import type { GroupRejected, GroupSelected, TrajectoryFact } from '../../messages/facts'
import { groupOf, type TrajectoryId } from '../../messages/ids'
import { placeOf, placeText } from '../../replay/log/place'
import type { RecordedRun } from '../../replay/log/recordedRun'
import { modelDirectories, tokenTexts } from '../../replay/tokens/tokenTexts'
import { resolveId, trajectoriesOf } from '../../replay/trajectories/resolveId'
import { countedTrajectories } from '../../replay/trajectories/trajectory'
import { scanTrajectories } from '../../replay/trajectoryIndex/scanTrajectories'
import { indexOf } from '../../replay/trajectoryIndex/trajectoryIndex'
import { TroupeError } from '../../runtime/errors'
import type { Entry } from '../../runtime/journal/journal'
import { shareOf } from '../options/readers'
import { jsonText } from './jsonText'
import { openRecorded, type ReadOptions, reportFaults, withRun } from './runOptions'
import { foldedLines, leastLikely, trajectoryText } from './trajectoryText'

interface ShowOptions extends ReadOptions {
  readonly json?: boolean
  readonly tokens?: boolean
  readonly logprobs?: boolean
  readonly top?: number
  readonly turns?: TurnRange
  readonly full?: boolean
}

interface TurnRange {
  readonly first: number
  readonly last: number
}

export function registerShow(replay: Command): void {
  const command = replay
    .command('show [trajectory]')
    .description('print a trajectory turn by turn (a part of its id will do; with --at alone, the one of that record)')
    .option('--json', 'its facts, a JSON line each, with their places')
    .option('--turns <range>', 'only these turns: 2, 2..4, 2..', turnRange)
    .option('--tokens', 'every sampled token with its id')
    .option('--logprobs', 'every sampled token with its logprob; what was unlikely stands out')
    .option(
      '--top <share>',
      'with those tokens: mark ▲ where the model was least sure, by what was drawn, as 20%',
      shareOf('over 0'),
    )
    .option('--full', `texts of over ${foldedLines} lines too`)
  withRun(command).action(show)
}

async function show(asked: string | undefined, options: ShowOptions): Promise<void> {
  const recorded = await openRecorded(options)
  try {
    const wanted = asked ?? (await trajectoryAt(recorded, options.at))
    const index = await indexOf(recorded)
    const row = index.find(wanted)
    const isThere = row !== undefined && index.state(row) !== 'unasked'
    const trajectory = isThere ? (wanted as TrajectoryId) : resolveId(wanted, await trajectoriesOf(recorded))
    const entries = await entriesOfTrajectory(recorded, trajectory)
    const inRange = ({ message }: Told) =>
      options.turns === undefined ||
      !('turn' in message) ||
      (message.turn >= options.turns.first && message.turn <= options.turns.last)
    const shown = entries.filter(inRange)
    const lines = options.json
      ? shown.map(({ counts, ...entry }) =>
          jsonText({ place: placeText(entry), ...entry.message, ...(counts ? {} : { counts }) }),
        )
      : await people(recorded, trajectory, shown, options)
    process.stdout.write(`${lines.join('\n')}\n`)
    const passed = shown.filter(({ counts }) => !counts).length
    if (passed > 0 && !options.json)
      process.stderr.write(
        `${passed} facts do not count (of a former owner, or of an attempt that was given up); --json\n`,
      )
    const turns = entries.filter(({ message, counts }) => counts && message.type === 'turn.completed').length
    if (options.turns !== undefined && options.turns.first >= turns) {
      process.stderr.write(`it has ${turns === 0 ? 'no finished turn' : `turns 0 to ${turns - 1}`}\n`)
    }
    reportFaults(recorded)
  } finally {
    await recorded.close()
  }
}

interface Told extends Entry {
  readonly counts: boolean
}

/** Of which the fold takes every one that counts. */
const folded: ReadonlySet<string> = new Set([
  ...['turn.completed', 'tool.completed', 'context.appended', 'rollout.finished', 'reward.assigned'],
  ...['group.closed', 'group.selected', 'group.rejected'],
])

/** Its own facts, and the decision about its group, in the log's order, and which of them count. */
async function entriesOfTrajectory(recorded: RecordedRun, trajectory: TrajectoryId): Promise<readonly Told[]> {
  const entries: Told[] = []
  const group = groupOf(trajectory)
  const isHeard = fence()
  const [counted] = await countedTrajectories(recorded, id => id === trajectory)
  const taken = counted && new Set(counted.entries.map(({ offset }) => offset))
  await scanTrajectories(
    recorded,
    id => id === trajectory,
    entry => {
      const { message } = entry
      const about = 'trajectory' in message ? message.trajectory : 'group' in message ? message.group : undefined
      const heard = isHeard(entry)
      if (about !== trajectory && about !== group) return
      const counts = heard && (taken === undefined || !folded.has(message.type) || taken.has(entry.offset))
      entries.push({ ...entry, counts })
    },
  )
  return entries
}

async function people(
  recorded: RecordedRun,
  trajectory: TrajectoryId,
  entries: readonly Told[],
  options: ShowOptions,
): Promise<string[]> {
  const facts = entries.filter(({ counts }) => counts).map(e => e.message as TrajectoryFact)
  const decision = facts.find(
    (f): f is GroupSelected | GroupRejected => f.type === 'group.selected' || f.type === 'group.rejected',
  )
  const withTokens = options.tokens === true || options.logprobs === true || options.top !== undefined
  const texts = withTokens ? tokenTexts(await modelDirectories(recorded)) : undefined
  const logprobs = options.logprobs === true || (options.top !== undefined && options.tokens !== true)
  const leastSure = options.top === undefined ? undefined : leastLikely(facts, options.top)
  const printing = {
    full: options.full === true,
    logprobs,
    ...(texts ? { texts } : {}),
    ...(leastSure ? { leastSure } : {}),
  }
  return trajectoryText(trajectory, facts, decision, printing)
}

async function trajectoryAt(recorded: RecordedRun, at: string | undefined): Promise<string> {
  if (at === undefined) throw nameOne('no trajectory was named')
  const { topic, partition, offset } = placeOf(at)
  let found: string | undefined
  await recorded.pick(topic, [{ partition, offset }], ({ message }) => {
    if ('trajectory' in message) found = message.trajectory
  })
  if (found !== undefined) return found
  throw nameOne(`${at} is a record of no trajectory`)
}

const nameOne = (message: string) =>
  new TroupeError('cli.no_trajectory', {
    boundary: 'cli',
    retriable: false,
    message,
    hint: '`troupe replay ls` lists them: `troupe replay show T`',
  })

function turnRange(text: string): TurnRange {
  const match = /^(\d{1,6})(\.\.(\d{0,6}))?$/.exec(text)
  if (match === null) throw new InvalidArgumentError('Write 2, 2..4 or 2..')
  const first = Number(match[1])
  const last = match[2] === undefined ? first : match[3] === '' ? Number.POSITIVE_INFINITY : Number(match[3])
  if (last < first) throw new InvalidArgumentError('It ends before it begins.')
  return { first, last }
}
