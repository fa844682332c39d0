/**
 * `troupe replay show T`: prints one trajectory, turn by turn, for a person; with --json, its facts.
 * Everything that a model or a tool wrote is escaped before it reaches the terminal.
 */
import { type Command, InvalidArgumentError } from 'commander'
import { snapshotsRoot } from '../../environments'
import type { GroupRejected, GroupSelected, TrajectoryFact } from '../../messages/facts'
import type { TrajectoryId } from '../../messages/ids'
import { placeText } from '../../replay/log/place'
import type { RecordedRun } from '../../replay/log/recordedRun'
import { modelDirectories, tokenTexts } from '../../replay/tokens/tokenTexts'
import { noTrajectory, type ShownEntry, showTrajectory, trajectoryAt } from '../../replay/trajectories/showTrajectory'
import { shareOf } from '../options/readers'
import { type ReadOptions, withLog, withRun } from './runOptions'
import { jsonText } from './text/jsonText'
import { foldedLines, leastLikely, trajectoryText } from './text/trajectoryText'

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
    .description(
      'print a trajectory turn by turn (a part of its id is enough; with --at and without an id, the trajectory of that record)',
    )
    .option('--json', "print the trajectory's facts, one JSON line each, with their positions")
    .option('--turns <range>', 'print only these turns: 2, 2..4, 2..', turnRange)
    .option('--tokens', 'print every sampled token with its id')
    .option('--logprobs', 'print every sampled token with its logprob; unlikely tokens stand out')
    .option(
      '--top <share>',
      'with --tokens or --logprobs: mark with ▲ this share of tokens, those with the lowest logprobs, such as 20%',
      shareOf('over 0'),
    )
    .option('--full', `print texts of over ${foldedLines} lines in full`)
  withRun(command).action(show)
}

const show = (asked: string | undefined, options: ShowOptions): Promise<void> =>
  withLog(options, async recorded => {
    if (asked === undefined && options.at === undefined) throw noTrajectory('no trajectory was named')
    const { trajectory, entries } = await showTrajectory(recorded, asked ?? (await trajectoryAt(recorded, options.at!)))
    const { first = 0, last = Number.POSITIVE_INFINITY } = options.turns ?? {}
    const shown = entries.filter(
      ({ message }) => !('turn' in message) || (message.turn >= first && message.turn <= last),
    )
    const lines = options.json
      ? shown.map(({ counts, ...entry }) =>
          jsonText({ place: placeText(entry), ...entry.message, ...(counts ? {} : { counts }) }),
        )
      : await textLines(recorded, trajectory, shown, options)
    process.stdout.write(`${lines.join('\n')}\n`)
    const ignored = shown.filter(({ counts }) => !counts).length
    if (ignored > 0 && !options.json)
      process.stderr.write(
        `${ignored} facts do not count (of a former owner, or of a superseded attempt); --json lists them\n`,
      )
    const turns = entries.filter(({ message, counts }) => counts && message.type === 'turn.completed').length
    if (options.turns !== undefined && first >= turns) {
      process.stderr.write(`the trajectory has ${turns === 0 ? 'no finished turn' : `turns 0 to ${turns - 1}`}\n`)
    }
  })

async function textLines(
  recorded: RecordedRun,
  trajectory: TrajectoryId,
  entries: readonly ShownEntry[],
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
    // Reading a store creates no directory: a log is often read on a machine on which no environment ever ran.
    store: { root: snapshotsRoot() },
  }
  return trajectoryText(trajectory, facts, decision, printing)
}

function turnRange(text: string): TurnRange {
  const match = /^(\d{1,6})(\.\.(\d{0,6}))?$/.exec(text)
  if (match === null) throw new InvalidArgumentError('Write 2, 2..4 or 2..')
  const first = Number(match[1])
  const last = match[2] === undefined ? first : match[3] === '' ? Number.POSITIVE_INFINITY : Number(match[3])
  if (last < first) throw new InvalidArgumentError('The range ends before it begins.')
  return { first, last }
}
