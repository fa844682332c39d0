/**
 * The texts that a model is shown for a tool call: part of the protocol that it learns (research: rStar2's release).
 *
 * in   how a call ended and what it printed        out  the text of its tool response
 * Invariant: the same result gives the same text, so execution time is left out: it would differ in every run. The paper's four outcomes (§2.1) are: output; no output; an error with its traceback; a timeout.
 */
import type { ToolStatus } from '../../messages/facts'

/** How a tool call ended. A result of the sandbox is one as it stands; other tools say what they know (`toolOutcome`). */
export interface ToolOutcome {
  /** killed: by a signal or a limit. rejected: never begun. */
  readonly status: 'ok' | 'error' | 'timeout' | 'killed' | 'rejected'
  /** null where no process ran, or a signal ended it. */
  readonly exitCode: number | null
  /** Name of the signal that ended the process. */
  readonly signal: string | null
  readonly stdout: string
  readonly stderr: string
  readonly wallMs: number
  readonly cpuMs: number
  /** Deadline that a `timeout` missed. */
  readonly timeoutMs?: number
  /** Why the call was rejected, or failed without an exit code or a signal. */
  readonly reason?: string
}

/** The outcome of a call of which no more than this is known: no process ran, nothing was printed. */
export const toolOutcome = (known: Pick<ToolOutcome, 'status'> & Partial<ToolOutcome>): ToolOutcome => ({
  exitCode: null,
  signal: null,
  stdout: '',
  stderr: '',
  wallMs: 0,
  cpuMs: 0,
  ...known,
})

/** What the text is made of: two runs of the same code have it alike. */
type WithoutTimes = Omit<ToolOutcome, 'wallMs' | 'cpuMs'>

const cutMark = '...(truncated)...'

/** What RoC counts a call as: everything but exit 0 and a timeout is an error. */
export function toolStatusOf(status: ToolOutcome['status']): ToolStatus {
  return status === 'ok' || status === 'timeout' ? status : 'error'
}

/** `Tool call success` or `Tool call failure\nreason: …`, then `stdout: …` and `stderr: …` where there is any. */
export function toolResultText(outcome: WithoutTimes): string {
  const parts =
    outcome.status === 'ok' ? ['Tool call success'] : ['Tool call failure', `reason: ${failureReason(outcome)}`]
  const stdout = withoutLastBreaks(outcome.stdout)
  const stderr = withoutLastBreaks(outcome.stderr)
  if (stdout !== '') parts.push(`stdout: ${stdout}`)
  if (stderr !== '') parts.push(`stderr: ${stderr}`)
  return parts.join('\n')
}

/** For a call that could not be read. */
export const malformedCallText = (fault: string): string => `Failed to decode tool call: ${fault}`

/** For a call that was read and could not be made: an unknown tool, wrong arguments, a fault of ours. */
export const callErrorText = (fault: string): string => `Error when executing tool: ${fault}`

/** For a tool that there is not. `tools` are those that there are. */
export function unknownToolText(name: string, tools: readonly string[]): string {
  const known = tools.length === 0 ? 'there are no tools' : `the tools are: ${tools.join(', ')}`
  return callErrorText(`no tool is named ${JSON.stringify(name)}; ${known}`)
}

/**
 * Cuts the middle out of a text of more than `maxChars` characters (code points): half of them from its head, the mark
 * `...(truncated)...`, half from its tail. The mark comes on top of the limit, as in the release.
 */
export function truncateMiddle(text: string, maxChars: number): string {
  if (!Number.isInteger(maxChars) || maxChars < 0) throw new RangeError(`cannot cut to ${maxChars} characters`)
  if (text.length <= maxChars || !isLonger(text, maxChars)) return text
  const half = Math.floor(maxChars / 2)
  let head = 0
  for (let i = 0; i < half; i++) head += isPair(text, head) ? 2 : 1
  let tail = text.length
  for (let i = 0; i < half; i++) tail -= isPair(text, tail - 2) ? 2 : 1
  return text.slice(0, head) + cutMark + text.slice(tail)
}

function isLonger(text: string, chars: number): boolean {
  let at = 0
  for (let i = 0; i < chars; i++) {
    if (at >= text.length) return false
    at += isPair(text, at) ? 2 : 1
  }
  return at < text.length
}

/** Whether a surrogate pair, one character, begins at this index. */
function isPair(text: string, at: number): boolean {
  if (at < 0 || at + 1 >= text.length) return false
  const high = text.charCodeAt(at)
  const low = text.charCodeAt(at + 1)
  return high >= 0xd800 && high <= 0xdbff && low >= 0xdc00 && low <= 0xdfff
}

function failureReason({ status, exitCode, signal, timeoutMs, reason }: WithoutTimes): string {
  switch (status) {
    case 'timeout':
      return timeoutMs === undefined ? 'timeout' : `timeout, not done within ${timeoutMs / 1000}s`
    case 'killed':
      return signal === null ? (reason ?? 'killed by a resource limit') : `killed by ${signal}`
    case 'rejected':
      return reason ?? 'rejected'
    default:
      return exitCode === null ? (reason ?? 'exit code unknown') : `exit code ${exitCode}`
  }
}

/** A loop, not `/\n+$/`: that expression is quadratic in lines that are not last. */
function withoutLastBreaks(text: string): string {
  let end = text.length
  while (end > 0 && (text[end - 1] === '\n' || text[end - 1] === '\r')) end--
  return text.slice(0, end)
}
