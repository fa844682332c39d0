/**
 * Formats a trajectory for people: its turns, tool calls, end and selection, as lines of text coloured for a terminal.
 *
 * in   the facts of the trajectory that the coordinator accepted, the decision about its group        out  lines
 * Invariant: everything that a model or a tool wrote is escaped.
 */
import type { Store } from '../../../environments'
import type { CallFact, GroupRejected, GroupSelected, StepEnd, TrajectoryFact } from '../../../messages/facts'
import type { TrajectoryId } from '../../../messages/ids'
import type { TokenTexts } from '../../../replay/tokens/tokenTexts'
import { escapeForTerminal, painter } from '../../io/terminal'
import { callLines } from './callLines'
import { filesText } from './filesText'

/** Number of lines of one text that are shown without `full`. */
export const foldedLines = 40

const paint = painter(process.stdout)

export interface Printing {
  /** true: shows long texts in full; false: shows their first `foldedLines` lines. */
  readonly full: boolean
  readonly logprobs: boolean
  /** Function from a token id to the token's text; when set, a line of tokens is printed below each turn. */
  readonly texts?: TokenTexts
  /** Logprob at and below which a token is marked with ▲; undefined: no token is marked. */
  readonly leastSure?: number
  /** Store of snapshots, for the text of changed files; undefined: only their paths are printed. */
  readonly store?: Pick<Store, 'root'>
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

/** Logprob below which a token is printed red. */
const unlikely = Math.log(0.1)
/** Logprob below which a token that is not printed red is printed yellow. */
const doubtful = Math.log(0.5)

/** Formats tokens with their texts; line breaks in them are escaped, so that the line stays one line. */
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

/**
 * Returns the highest logprob among the `share` (0 to 1) of sampled tokens with the lowest logprobs, at least one
 * token. It counts tokens of completed turns and of captured calls; without any it returns -Infinity.
 */
export function leastLikely(facts: readonly (TrajectoryFact | CallFact)[], share: number): number {
  const all = facts
    .flatMap(fact => (fact.type === 'turn.completed' || fact.type === 'call.finished' ? [...fact.logprobs] : []))
    .sort((a, b) => a - b)
  return all[Math.max(0, Math.ceil(share * all.length) - 1)] ?? Number.NEGATIVE_INFINITY
}

const sampledTail = /<\|im_end\|>\s*$/

export function trajectoryText(
  trajectory: TrajectoryId,
  facts: readonly (TrajectoryFact | CallFact)[],
  decision: GroupSelected | GroupRejected | undefined,
  printing: Printing,
): string[] {
  const indented = indentedBy(printing)
  const lines: string[] = []
  let begun = 0
  for (const fact of facts) {
    switch (fact.type) {
      case 'rollout.requested': {
        begun = fact.at
        lines.push(
          paint(
            'bold',
            `${escapeForTerminal(trajectory)}  ${fact.purpose}, step ${fact.step}, task ${escapeForTerminal(fact.task.id)}`,
          ),
        )
        for (const { role, content } of fact.task.messages) lines.push(...indented(content, paint('dim', `${role} │`)))
        const truth = fact.task.truth === '' ? [] : [`truth: ${escapeForTerminal(fact.task.truth)}`]
        // The request of a captured session has no prompt of the agent: each call brings its own tokens.
        const prompt = facts.some(({ type }) => type === 'session.opened')
          ? []
          : [`prompt: ${fact.tokens.length} tokens`]
        const line = [...truth, ...prompt].join('   ')
        if (line !== '') lines.push(paint('dim', line))
        break
      }
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
      case 'session.opened':
      case 'call.started':
      case 'call.finished':
      case 'call.delivered':
        lines.push(...callLines(fact, indented))
        if (fact.type === 'call.finished' && printing.texts !== undefined)
          lines.push(tokenView(fact.tokens, fact.logprobs, printing))
        break
      case 'tool.completed':
        lines.push(
          paint(
            fact.status === 'ok' ? 'green' : 'red',
            `  tool ${escapeForTerminal(fact.tool) || '(unreadable call)'}  ${fact.status}${fact.executor === null ? '' : `, ${fact.wallMs.toFixed(0)} ms`}`,
          ),
          ...indented(fact.text, paint(fact.status === 'ok' ? 'green' : 'red', '  │')),
          ...(fact.step === undefined ? [] : [stepText(fact.step)]),
          ...(fact.files === undefined ? [] : filesText(fact.files, printing.store, indented)),
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

/** Formats how one step of a task with several steps ended: its rewards or its fault. The model never sees this. */
function stepText({ name, rewards, over, fault }: StepEnd): string {
  const said =
    fault?.why ??
    Object.entries(rewards)
      .map(([key, value]) => `${key} ${value}`)
      .join(', ')
  return `  step ${escapeForTerminal(name)}  ${escapeForTerminal(said)}${over ? '; the task is over' : ''}`
}
