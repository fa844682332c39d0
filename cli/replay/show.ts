/**
 * `troupe replay show T`: one trajectory, turn by turn, so that a person can read it.
 * Everything that a model or a tool wrote is escaped before it reaches the terminal.
 */
import { fileURLToPath } from 'node:url'
import { type Command, InvalidArgumentError } from 'commander'
import { fence } from '../../actors/fenced'
import type { GroupRejected, GroupSelected, TrajectoryFact } from '../../messages/facts'
import { groupOf, type TrajectoryId } from '../../messages/ids'
import { TroupeError } from '../../runtime/errors'
import type { Entry } from '../../runtime/journal'
import { escapeForTerminal, painter } from '../terminal'
import { countedTrajectories } from './counted'
import { jsonText } from './jsonText'
import { indexOf } from './kept/keptIndex'
import { scanTrajectories } from './kept/picked'
import { placeOf, placeText } from './place'
import { factsOf, openRecorded, type ReadOptions, type RecordedRun, reportFaults, withRun } from './recordedRun'
import { resolveId, trajectoriesOf } from './resolveId'
import { shareOf } from './share'
import { type TokenTexts, tokenTexts } from './tokenTexts'

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

/** Lines of one text that are shown without --full. */
const foldedLines = 40

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
      shareOf,
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
  return printed(trajectory, facts, decision, printing)
}

/** Where the run's tokenizer may lie: its own model, the recipe's, the weights that it published. */
export async function modelDirectories(recorded: RecordedRun): Promise<readonly string[]> {
  const published = await factsOf(recorded, 'learner', ['weights.published'])
  const { recipe } = await recorded.started()
  const model = recipe.model as { readonly path?: unknown } | undefined
  const urls = published.map(p => p.url).filter(url => url.startsWith('file:'))
  return [
    recorded.files.model,
    ...(typeof model?.path === 'string' ? [model.path] : []),
    ...urls.map(url => fileURLToPath(url)),
  ]
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

const paint = painter(process.stdout)

interface Printing {
  /** Without: long texts are folded. */
  readonly full: boolean
  readonly logprobs: boolean
  /** Given: a line of tokens below each turn. */
  readonly texts?: TokenTexts
  /** Logprobs at or below it are marked. */
  readonly leastSure?: number
}

function indentedBy({ full }: Printing) {
  return (text: string, mark: string): string[] => {
    const lines = escapeForTerminal(text).split('\n')
    const shown = full ? lines : lines.slice(0, foldedLines)
    const more = lines.length - shown.length
    const marked = shown.map(line => `${mark} ${line}`)
    return more > 0 ? [...marked, `${mark} ${paint('dim', `… ${more} more lines; --full shows them`)}`] : marked
  }
}

/** What was sampled with a probability below these. */
const unlikely = Math.log(0.1)
const doubtful = Math.log(0.5)

/** Tokens with what they say; line breaks of theirs are escaped, so that a line of the view is one of ours. */
function tokenView(tokens: Int32Array, logprobs: Float32Array, printing: Printing): string {
  const { texts, logprobs: withLogprobs, leastSure = Number.NEGATIVE_INFINITY } = printing
  return [...tokens]
    .map((token, i) => {
      const logprob = logprobs[i] ?? Number.NaN
      const text = texts?.(token)
      const mark = logprob < 0 && logprob <= leastSure ? '▲' : ''
      const name = `${mark}${text === undefined ? String(token) : JSON.stringify(escapeForTerminal(text))}`
      if (!withLogprobs) return text === undefined ? name : `${token}:${name}`
      const style = logprob < unlikely ? 'red' : logprob < doubtful ? 'yellow' : 'dim'
      return paint(style, `${name}:${logprob.toFixed(2)}`)
    })
    .join(' ')
}

/** The logprob of the last of the `share` of tokens that were least likely when they were drawn. */
function leastLikely(facts: readonly TrajectoryFact[], share: number): number {
  const all = facts.flatMap(fact => (fact.type === 'turn.completed' ? [...fact.logprobs] : [])).sort((a, b) => a - b)
  return all[Math.max(0, Math.ceil(share * all.length) - 1)] ?? Number.NEGATIVE_INFINITY
}

const sampledTail = /<\|im_end\|>\s*$/

function printed(
  trajectory: TrajectoryId,
  facts: readonly TrajectoryFact[],
  decision: GroupSelected | GroupRejected | undefined,
  printing: Printing,
): string[] {
  const indented = indentedBy(printing)
  const lines: string[] = []
  let begun = 0
  for (const fact of facts) {
    switch (fact.type) {
      case 'rollout.requested':
        begun = fact.at
        lines.push(
          paint(
            'bold',
            `${escapeForTerminal(trajectory)}  ${fact.purpose}, step ${fact.step}, task ${escapeForTerminal(fact.task.id)}`,
          ),
        )
        for (const { role, content } of fact.task.messages) lines.push(...indented(content, paint('dim', `${role} │`)))
        lines.push(paint('dim', `truth: ${escapeForTerminal(fact.task.truth)}   prompt: ${fact.tokens.length} tokens`))
        break
      case 'turn.interrupted':
        lines.push(
          '',
          paint(
            'yellow',
            `turn ${fact.turn} interrupted after ${fact.tokens.length} tokens: ${fact.reason} ${escapeForTerminal(fact.error)}`,
          ),
        )
        break
      case 'turn.completed': {
        const versions = [...new Set(fact.segments.map(s => s.policyVersion))].join('→')
        const { startedAt, endedAt } = fact.timing
        const mean = fact.logprobs.reduce((a, b) => a + b, 0) / Math.max(1, fact.logprobs.length)
        lines.push(
          '',
          paint(
            'cyan',
            `turn ${fact.turn}  ${fact.tokens.length} tokens, ${fact.finish}, policy ${versions}, ${Math.round(endedAt - startedAt)} ms on ${escapeForTerminal(fact.engine)}, mean logprob ${mean.toFixed(3)}, ${fact.cachedTokens} cached`,
          ),
          ...indented(fact.text.replace(sampledTail, ''), paint('cyan', '│')),
        )
        if (printing.texts !== undefined) lines.push(tokenView(fact.tokens, fact.logprobs, printing))
        break
      }
      case 'tool.completed':
        lines.push(
          paint(
            fact.status === 'ok' ? 'green' : 'red',
            `  tool ${escapeForTerminal(fact.tool) || '(unreadable call)'}  ${fact.status}${fact.executor === null ? '' : `, ${fact.wallMs.toFixed(0)} ms`}`,
          ),
          ...indented(fact.text, paint(fact.status === 'ok' ? 'green' : 'red', '  │')),
        )
        break
      case 'rollout.finished':
        lines.push(
          '',
          `${fact.outcome} (${escapeForTerminal(fact.reason)}) after ${((fact.at - begun) / 1000).toFixed(2)} s: ${fact.turns} turns, ${fact.sampledTokens} tokens sampled, ${fact.toolErrors} of ${fact.toolCalls} tool calls failed`,
        )
        break
      case 'reward.assigned':
        lines.push(
          paint(
            fact.reward > 0 ? 'green' : 'red',
            `reward ${fact.reward}  answer '${escapeForTerminal(fact.answer)}' (${escapeForTerminal(fact.how)})${fact.why === undefined ? '' : `: ${escapeForTerminal(fact.why)}`}`,
          ),
        )
        break
      case 'reward.failed':
        lines.push(paint('red', `no reward: ${escapeForTerminal(fact.how)}: ${escapeForTerminal(fact.why)}`))
        break
    }
  }
  if (!facts.some(({ type }) => type === 'rollout.finished')) lines.push('', paint('yellow', 'not finished'))
  lines.push(...selectionLines(trajectory, decision))
  return lines
}

function selectionLines(trajectory: TrajectoryId, decision: GroupSelected | GroupRejected | undefined): string[] {
  if (decision === undefined) return []
  if (decision.type === 'group.rejected') return [`group rejected: ${decision.reason}`]
  const member = Number(trajectory.slice(trajectory.lastIndexOf('/') + 1))
  const kept = decision.kept.find(k => k.member === member)
  if (kept !== undefined)
    return [
      `kept by ${escapeForTerminal(decision.selection)}: advantage ${kept.advantage.toFixed(3)}, penalty ${kept.penalty.toFixed(3)}`,
    ]
  const dropped = decision.dropped.find(d => d.member === member)
  return [
    `dropped by ${escapeForTerminal(decision.selection)}${dropped === undefined ? '' : `: penalty ${dropped.penalty.toFixed(3)}`}`,
  ]
}
