/**
 * Formats the tool responses that a model reads. They are part of the protocol that the model learns (as in rStar2's
 * release).
 *
 * in   a call's status and output        out  the text of its tool response
 * The paper's four outcomes (§2.1) are: output; no output; an error with its traceback; a timeout.
 * Invariant: the same result gives the same text. The text leaves out execution time, which differs in every run.
 */
import type { FilesChanged, StepEnd, ToolStatus } from '../../messages/facts'

/** Outcome of a tool call. A result of the sandbox has this form; other tools build theirs with `toolOutcome`. */
export interface ToolOutcome {
  /** Status of the call. killed: ended by a signal or a limit. rejected: never started. */
  readonly status: 'ok' | 'error' | 'timeout' | 'killed' | 'rejected'
  /** Exit code of the process; null if no process ran, or a signal ended it. */
  readonly exitCode: number | null
  /** Name of the signal that ended the process; null if none did. */
  readonly signal: string | null
  readonly stdout: string
  readonly stderr: string
  readonly wallMs: number
  readonly cpuMs: number
  /** Milliseconds of the deadline that a call with status `timeout` missed. */
  readonly timeoutMs?: number
  /** Reason for which the call was rejected, or failed without an exit code or a signal. */
  readonly reason?: string
  /** Files of the rollout's environment after the call, if it changed them. */
  readonly files?: FilesChanged
  /** Step of the task that the call ended, in a task of several steps; absent if the call ended none. */
  readonly step?: StepEnd
}

/** Builds the outcome of a call from the known fields. Defaults: no process ran, nothing was printed. */
export const toolOutcome = (known: Pick<ToolOutcome, 'status'> & Partial<ToolOutcome>): ToolOutcome => ({
  exitCode: null,
  signal: null,
  stdout: '',
  stderr: '',
  wallMs: 0,
  cpuMs: 0,
  ...known,
})

/** Fields of an outcome without its measured times: the same in two runs of the same code. */
type WithoutTimes = Omit<ToolOutcome, 'wallMs' | 'cpuMs'>

const cutMark = '...(truncated)...'

/** Maps an outcome's status to that of `tool.completed`: `ok` and `timeout` stay, any other becomes `error`. */
export function toolStatusOf(status: ToolOutcome['status']): ToolStatus {
  return status === 'ok' || status === 'timeout' ? status : 'error'
}

/** Returns `Tool call success` or `Tool call failure\nreason: …`, then `stdout: …` and `stderr: …` unless empty. */
export function toolResultText(outcome: WithoutTimes): string {
  const parts =
    outcome.status === 'ok' ? ['Tool call success'] : ['Tool call failure', `reason: ${failureReason(outcome)}`]
  const stdout = withoutLastBreaks(outcome.stdout)
  const stderr = withoutLastBreaks(outcome.stderr)
  if (stdout !== '') parts.push(`stdout: ${stdout}`)
  if (stderr !== '') parts.push(`stderr: ${stderr}`)
  return parts.join('\n')
}

/** Returns the tool response to a call that cannot be parsed. */
export const malformedCallText = (fault: string): string => `Failed to decode tool call: ${fault}`

/**
 * Returns the tool response to a call that was parsed but not executed: an unknown tool, wrong arguments, an internal
 * error.
 */
export const callErrorText = (fault: string): string => `Error when executing tool: ${fault}`

/** Returns the tool response to a call of an unknown tool. @param tools names of the known tools */
export function unknownToolText(name: string, tools: readonly string[]): string {
  const known = tools.length === 0 ? 'there are no tools' : `the tools are: ${tools.join(', ')}`
  return callErrorText(`no tool is named ${JSON.stringify(name)}; ${known}`)
}

/**
 * Cuts the middle out of a text of more than `maxChars` characters (code points). Keeps `maxChars` / 2 of them, rounded
 * down, from the start and as many from the end, with the mark `...(truncated)...` between them. The mark's characters
 * are not counted, as in the paper's released code.
 */
export function truncateMiddle(text: string, maxChars: number): string {
  if (!Number.isInteger(maxChars) || maxChars < 0)
    throw new RangeError(`maxChars is ${maxChars}, expected a whole number from 0`)
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

/** Returns true if a surrogate pair, which is one character, begins at this index. */
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

/** Removes final line breaks. `/\n+$/` would be quadratic in runs of line breaks that are not last. */
function withoutLastBreaks(text: string): string {
  let end = text.length
  while (end > 0 && (text[end - 1] === '\n' || text[end - 1] === '\r')) end--
  return text.slice(0, end)
}
