/**
 * Verdict on a submission: converts the sandbox's result to Code Judge's form.
 *
 * in   a submission with its result, or the reason why it did not run      out  {sub_id, success, run_success, cost, …}
 * Invariant: the fields are Code Judge's, except for facts that its form cannot express: `stdout_bytes` and
 * `stderr_bytes` are present if the stream was cut (`stderr_bytes` not for a Python or math call that a signal
 * killed; the answers of /judge, which have no streams, have neither), `detail` if the submission had faults.
 * Source: 0xWJ/code-judge app/model.py, app/judge.py.
 */
import { isOutOfMemory, MACHINE_OUT_OF_MEMORY, type RunResult } from '../sandbox'
import { type CppOutcome, cppOutcome } from './cppProgram'
import { MATH_EQUAL } from './mathProgram'
import { decoded, headText, tailText } from './outputText'
import { type BadSubmission, type Fault, faultLine, type Submission } from './submission'

export type Reason = '' | 'worker_timeout' | 'queue_timeout' | 'internal_error' | 'invalid_input'

export interface Verdict {
  readonly sub_id: string
  /** true: the run succeeded and printed the expected output, if one was given; for type math, the answer equals it. */
  readonly success: boolean
  /** true: the run ended with exit code 0. */
  readonly run_success: boolean
  /**
   * Seconds that the code ran. For a submission without a result: seconds since its request arrived, or 0 if it cannot
   * run.
   */
  readonly cost: number
  readonly stdout: string
  readonly stderr: string
  readonly reason: Reason
  readonly stdout_bytes?: number
  readonly stderr_bytes?: number
  readonly detail?: readonly Fault[]
}

export interface VerdictLimits {
  readonly timeoutMs: number
  /** Upper bound on the characters of each stream in an answer. */
  readonly maxOutputChars: number
}

/** Returns the verdict on a submission whose call has ended. */
export function verdictOf(submission: Submission, result: RunResult, limits: VerdictLimits): Verdict {
  if (result.status === 'rejected' && !isOutOfMemory(result)) {
    // A sandbox's level may not allow the processes that C++ needs, which is not the submission's fault.
    const reason = submission.type === 'cpp' ? 'internal_error' : 'invalid_input'
    return notRun(submission.subId, reason, result.reason ?? 'the sandbox rejected the call', 0)
  }
  if (isOutOfMemory(result)) return notRun(submission.subId, 'internal_error', MACHINE_OUT_OF_MEMORY, result.wallMs)
  if (submission.type !== 'cpp') {
    const late = result.status === 'timeout' || (result.status !== 'ok' && result.wallMs >= limits.timeoutMs)
    const ended = { ok: result.status === 'ok', costMs: result.wallMs, reason: late ? 'worker_timeout' : '' } as const
    const said = result.status === 'killed' ? `Killed by ${result.signal}\n` : ''
    const of = submission.type === 'math' ? { ...submission, expectedOutput: MATH_EQUAL } : submission
    return answered(of, result, { ...ended, said }, limits)
  }
  const outcome = cppOutcome(result)
  if (outcome.kind === 'unavailable') {
    return notRun(submission.subId, 'internal_error', decoded(outcome.stderr) || 'C++ could not be run', 0)
  }
  const ended = { ok: outcome.kind === 'ok', costMs: outcome.runMs, reason: cppReason(outcome) } as const
  return answered(submission, { ...result, ...outcome }, { ...ended, said: '' }, limits)
}

/** Returns the verdict on a submission that did not run; its stderr holds `why`, the reason in words. */
export function notRun(subId: string, reason: Reason, why: string, waitedMs: number): Verdict {
  const nothing = { success: false, run_success: false, cost: waitedMs / 1000, stdout: '' }
  return { sub_id: subId, ...nothing, stderr: why.endsWith('\n') ? why : `${why}\n`, reason }
}

export function invalid({ subId, faults }: BadSubmission): Verdict {
  return { ...notRun(subId, 'invalid_input', faults.map(faultLine).join('\n'), 0), detail: faults }
}

/** Returns the verdict as `/judge` answers it: without the streams. */
export function withoutStreams(verdict: Verdict): Omit<Verdict, 'stdout' | 'stderr'> {
  const { sub_id, success, run_success, cost, reason, detail } = verdict
  return { sub_id, success, run_success, cost, reason, ...(detail ? { detail } : {}) }
}

interface Ended {
  readonly ok: boolean
  readonly costMs: number
  readonly reason: Reason
  readonly said: string
}

type Streams = Pick<RunResult, 'stdout' | 'stderr' | 'stdoutBytes' | 'stderrBytes'>

function answered(submission: Submission, streams: Streams, ended: Ended, limits: VerdictLimits): Verdict {
  const { stdoutBytes, stderrBytes } = streams
  const stdout = headText(streams.stdout, limits.maxOutputChars)
  const stderr = tailText(said(streams.stderr, ended.said), limits.maxOutputChars)
  return {
    sub_id: submission.subId,
    success: ended.ok && isExpected(submission.expectedOutput, streams),
    run_success: ended.ok,
    cost: ended.costMs / 1000,
    stdout,
    stderr,
    reason: ended.reason,
    ...(isWhole(stdout, streams.stdout, stdoutBytes) ? {} : { stdout_bytes: stdoutBytes }),
    ...(isWhole(stderr, streams.stderr, stderrBytes) || ended.said !== '' ? {} : { stderr_bytes: stderrBytes }),
  }
}

const cppReason = ({ kind }: CppOutcome): Reason => (kind === 'timeout' ? 'worker_timeout' : '')

function said(stderr: Uint8Array, line: string): Uint8Array {
  if (line === '') return stderr
  const open = stderr.length > 0 && stderr.at(-1) !== 10
  return Buffer.concat([stderr, Buffer.from(open ? `\n${line}` : line)])
}

/** Returns true if the text holds the whole stream: checked by length for one-byte characters, else by decoding. */
function isWhole(text: string, bytes: Uint8Array, total: number): boolean {
  if (bytes.length !== total || total > 4 * text.length) return false
  return text.length === total || text === decoded(bytes)
}

/** Characters that Python's str.strip() removes: Unicode's white space, U+0085 and the separators, but not U+FEFF. */
const SPACES = new Set('\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000'.split(''))
for (let code = 0x2000; code <= 0x200a; code++) SPACES.add(String.fromCharCode(code))

/** Strips by a loop, since a regular expression that ends in `\s+$` takes quadratic time on a megabyte of spaces. */
function stripped(text: string): string {
  let [start, end] = [0, text.length]
  while (start < end && SPACES.has(text[start]!)) start++
  while (end > start && SPACES.has(text[end - 1]!)) end--
  return text.slice(start, end)
}

/**
 * Compares the whole stream with the expected output, not only the part in the answer. A stream that was cut when
 * captured never matches.
 */
function isExpected(expected: string | undefined, { stdout, stdoutBytes }: Streams): boolean {
  if (expected === undefined) return true
  return stdout.length === stdoutBytes && stripped(decoded(stdout)) === stripped(expected)
}
