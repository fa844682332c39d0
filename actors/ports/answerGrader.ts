/**
 * Whether an answer is the truth: two integers are compared here, everything else by math-verify in a sandbox.
 *
 * in   an answer and the truth, as LaTeX or plain text        out  the verdict, which rule decided, and why in words
 * Invariant: every answer has a verdict within its deadline and its memory, whatever it is (math-verify hangs on towers
 * of powers, and eats memory): what cannot be settled is wrong and says so. Only a grader that is itself broken rejects.
 * Equal questions that are asked at one time are put once, and what was settled is remembered: rollouts of a group give
 * the same answers.
 */
import { sameInteger } from '../../kernels'
import { TroupeError } from '../../runtime/errors'
import type { RunResult, Sandbox } from '../../sandbox'

/** Which rule decided. The last four: it was left to math-verify, which could not settle it. */
export type GradingRule =
  | 'no-answer'
  | 'integer'
  | 'text'
  | 'math-verify'
  | 'too-long'
  | 'math-verify-timeout'
  | 'math-verify-killed'
  | 'math-verify-error'

export interface Verdict {
  readonly correct: boolean
  readonly how: GradingRule
  readonly why: string
}

export interface AnswerGraderOptions {
  /** math-verify's, for one answer. */
  readonly timeoutMs: number
  /** Address space of one answer's process, MiB. Default 1024. */
  readonly memoryMb?: number
  /** Answers that may wait for the sandbox; one more is refused with verifier.overloaded. Default 65,536. */
  readonly maxWaiting?: number
}

export type AnswerGrader = (
  ask: { readonly answer: string; readonly truth: string },
  signal?: AbortSignal,
) => Promise<Verdict>

/** Characters. No answer to a problem is longer, and math-verify's time grows with the square. */
const longest = 10_000
const remembered = 4096

/** Standard input is the only untrusted thing here, and it is data: a line of JSON. */
const program = `
import json, os, sys
from math_verify import parse, verify
ask = json.loads(sys.stdin.readline())
truth, answer = (parse('$' + ask[name] + '$', parsing_timeout=None) for name in ('truth', 'answer'))
same = bool(truth) and bool(answer) and bool(verify(truth, answer, timeout_seconds=None))
print(json.dumps([same, bool(truth), bool(answer)]), flush=True)
os._exit(0)  # an expression can hang in its destructor, too
`

export function answerGrader(
  sandbox: Pick<Sandbox, 'run' | 'lanes'>,
  { timeoutMs, memoryMb = 1024, maxWaiting = 65_536 }: AnswerGraderOptions,
): AnswerGrader {
  const open = new Map<string, Promise<Verdict>>()
  /** Least recently used first. */
  const known = new Map<string, Verdict>()
  const waiting: (() => void)[] = []
  let running = 0

  /** So few are with the sandbox at once that its own queue, which is shorter, never refuses one. */
  async function lane(): Promise<void> {
    if (running < 2 * sandbox.lanes) {
      running++
      return
    }
    if (waiting.length >= maxWaiting) {
      throw new TroupeError('verifier.overloaded', {
        boundary: 'verifier',
        retriable: true,
        message: `${waiting.length} answers wait for math-verify already`,
      })
    }
    await new Promise<void>(resolve => waiting.push(resolve))
  }

  async function settle(answer: string, truth: string, signal: AbortSignal | undefined): Promise<Verdict> {
    await lane()
    try {
      const stdin = `${JSON.stringify({ answer: inMathMode(answer), truth: inMathMode(truth) })}\n`
      return verdictOf(await sandbox.run({ id: 'grade', code: program, stdin, timeoutMs, memoryMb }, signal), timeoutMs)
    } finally {
      const next = waiting.shift()
      if (next === undefined) running--
      else next()
    }
  }

  return async (ask, signal) => {
    const answer = ask.answer.trim()
    const truth = ask.truth.trim()
    if (answer === '') return { correct: false, how: 'no-answer', why: 'the answer is empty' }
    const same = sameInteger(answer, truth)
    if (same !== undefined) {
      return { correct: same, how: 'integer', why: same ? 'the same integer' : 'two different integers' }
    }
    if (answer === truth) return { correct: true, how: 'text', why: 'the same text' }
    const length = Math.max(answer.length, truth.length)
    if (length > longest) {
      return { correct: false, how: 'too-long', why: `${length} characters; math-verify is asked up to ${longest}` }
    }
    const key = `${truth}\u0000${answer}`
    const settled = known.get(key)
    if (settled !== undefined) {
      known.delete(key)
      known.set(key, settled)
      return settled
    }
    const asked = open.get(key)
    if (asked !== undefined) return asked
    const settling = settle(answer, truth, signal)
    open.set(key, settling)
    try {
      const verdict = await settling
      // What ran out of time may do better on a machine that is less busy.
      if (verdict.how === 'math-verify') known.set(key, verdict)
      if (known.size > remembered) known.delete(known.keys().next().value!)
      return verdict
    } finally {
      open.delete(key)
    }
  }
}

/** In `$…$` a line break or a `$` would end the formula for math-verify; braces around all of it would make it a set. */
function inMathMode(text: string): string {
  let inner = text.replace(/\s+/g, ' ').trim()
  for (let before = ''; before !== inner; ) {
    before = inner
    inner = (/^\$+([^$]*)\$+$/.exec(inner)?.[1] ?? withoutBraces(inner)).trim()
  }
  return inner
}

/** `{…}` is a group of TeX's that says nothing, where its braces belong together. */
function withoutBraces(text: string): string {
  if (!text.startsWith('{') || !text.endsWith('}')) return text
  let depth = 0
  for (let at = 0; at < text.length - 1; at++) {
    if (text[at] === '\\') at++
    else if (text[at] === '{') depth++
    else if (text[at] === '}' && --depth === 0) return text
  }
  return depth === 1 && text.at(-2) !== '\\' ? text.slice(1, -1) : text
}

function verdictOf(result: RunResult, timeoutMs: number): Verdict {
  const wrong = { correct: false } as const
  switch (result.status) {
    case 'timeout':
      return { ...wrong, how: 'math-verify-timeout', why: `math-verify did not settle it in ${timeoutMs} ms` }
    case 'killed':
      return { ...wrong, how: 'math-verify-killed', why: `math-verify was ended by ${result.signal}` }
    case 'error':
      if (!brokenGrader.test(text(result.stderr))) {
        return { ...wrong, how: 'math-verify-error', why: `math-verify failed: ${lastLine(result.stderr)}` }
      }
      throw failed(result)
    case 'rejected':
      throw failed(result)
    case 'ok': {
      const said = /^\[(true|false), (true|false), (true|false)\]$/.exec(text(result.stdout).trim())
      if (said === null) throw failed(result)
      const [same, truth, answer] = said.slice(1).map(word => word === 'true')
      const why = same
        ? 'math-verify finds them equal'
        : !truth
          ? 'math-verify cannot read the truth'
          : answer
            ? 'math-verify finds them different'
            : 'math-verify cannot read the answer'
      return { correct: same!, how: 'math-verify', why }
    }
  }
}

/** math-verify is not there, or not usable: no answer brings that about, since the import comes first. */
const brokenGrader = /^(ModuleNotFoundError|ImportError)\b/m
const text = (bytes: Uint8Array) => Buffer.from(bytes).toString('utf8')
const lastLine = (bytes: Uint8Array) => text(bytes).trim().split('\n').at(-1)!.slice(0, 200)

function failed(result: RunResult): TroupeError {
  return new TroupeError('verifier.failed', {
    boundary: 'verifier',
    retriable: true,
    message: `math-verify ended with ${result.status}: ${result.reason ?? lastLine(result.stderr)}`,
    hint: '`npm run setup` installs math-verify into the Python environment that it runs in',
  })
}
