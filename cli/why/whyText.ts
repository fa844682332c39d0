/**
 * Formats an explanation of `troupe why` for a person: a headline, the chains, the members of a group, what to do next.
 *
 * in   an explanation        out  lines; what a model, a tool or an error wrote is escaped
 */
import { placeText } from '../../replay/log/place'
import { type AnswererState, type Link, seconds } from '../../replay/why/answerers'
import { owedBy } from '../../replay/why/chains'
import type { Explanation, Subject, SummedWait } from '../../replay/why/explain'
import type { Outcome } from '../../replay/why/outcome'
import { escapeForTerminal, painter } from '../io/terminal'

const stuck: ReadonlySet<AnswererState> = new Set(['silent', 'down', 'gone', 'paused'])

/** True if a wait gets no answer until somebody acts: what owes the answer is silent, down, gone or paused. */
export const isStuck = ({ waits }: Explanation): boolean => waits.some(({ oldest }) => stuck.has(oldest.state))

const mostChains = 8
const mostMembers = 64

const standings: Readonly<Record<Explanation['run'], string>> = {
  running: 'its process runs',
  finished: 'the run is over',
  stopped: 'its process has ended before the run',
  crashed: 'its process is gone',
  unknown: 'its process cannot be seen from here',
}

export function whyText(run: string, found: Explanation, next: readonly string[]): readonly string[] {
  const paint = painter(process.stdout)
  const { subject, asOf: now, outcome, waits, members, last } = found
  const colour = isStuck(found) || outcome.kind === 'lost' ? 'yellow' : outcome.kind === 'failed' ? 'red' : 'bold'
  const ago =
    last === null ? '' : `; latest event ${last.what} ${seconds(now - last.at)} ago (${placeText(last.place)})`
  const lines = [
    paint(colour, escapeForTerminal(`${nameOf(run, subject)}: ${outcomeText(outcome)}`)),
    `run ${run}: ${standings[found.run]}${ago}`,
  ]
  for (const one of waits.slice(0, mostChains)) lines.push('', ...chainLines(one, now, paint))
  if (waits.length > mostChains) lines.push('', `${waits.length - mostChains} more; --json has all`)
  if (members.length > 0) lines.push('')
  for (const { trajectory, outcome: theirs } of members.slice(0, mostMembers)) {
    lines.push(`${trajectory}  ${escapeForTerminal(outcomeText(theirs))}`)
  }
  if (next.length > 0)
    lines.push('', ...next.map(command => `next: npx ${escapeForTerminal(command)}`.replace('npx df', 'df')))
  return lines
}

function nameOf(run: string, subject: Subject): string {
  switch (subject.kind) {
    case 'run':
      return `run ${run}`
    case 'group':
      return `group ${subject.group}`
    case 'trajectory':
      return subject.trajectory
    case 'turn':
      return `${subject.trajectory} turn ${subject.turn}`
  }
}

function outcomeText(outcome: Outcome): string {
  switch (outcome.kind) {
    case 'waiting':
      return 'waiting'
    case 'scored':
      return outcome.reward === null ? outcome.why : `scored ${outcome.reward} (${outcome.why})`
    case 'answered':
      return `ended: ${outcome.why}`
    case 'lost':
      return `lost: ${outcome.why}`
    default:
      return `${outcome.kind.replace('-', ' ')} by ${outcome.by}: ${outcome.why}`
  }
}

function chainLines({ count, oldest }: SummedWait, now: number, paint: ReturnType<typeof painter>): readonly string[] {
  const owes = owedBy(oldest)
  const times = count === 1 ? '' : ` (the oldest of ${count})`
  const state = stuck.has(oldest.state) ? paint('red', oldest.state) : oldest.state
  const head = `${oldest.id} waits ${seconds(now - oldest.since)} for ${oldest.for}${times}: ${labelOf(owes)} is ${state}`
  return [head, ...oldest.chain.map((link, k) => linkLine(link, k === oldest.chain.length - 1, now))]
}

const labelOf = ({ kind, name }: Link): string =>
  ['fact', 'command', 'process', 'person'].includes(kind) ? name : `${kind} ${name}`

function linkLine(link: Link, isLast: boolean, now: number): string {
  const { name, says, last } = link
  const when = last === null ? '' : `${seconds(now - last.at)} ago`
  const place = last === null ? '' : `${last.what === name ? '' : `${last.what} `}${placeText(last.place)}`
  const parts = [escapeForTerminal(says), [when, place].filter(Boolean).join(', ')].filter(Boolean).join(' · ')
  return `  ${isLast ? '└─' : '├─'} ${labelOf(link)}  ${parts}`
}
