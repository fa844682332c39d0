/**
 * Whether an answer is the truth: two integers are compared here, everything else by math-verify in a sandbox.
 *
 * in   an answer and the truth, as LaTeX or in plain words        out  the verdict, which rule decided, and why in words
 * Invariant: every answer has a verdict within its deadline and its memory, whatever it is (math-verify hangs on towers
 * of powers, and eats memory): what cannot be settled is wrong and says so. Only a grader that is itself broken rejects.
 * Equal questions that are asked at one time are put once, and what was settled is remembered: rollouts of a group give
 * the same answers. Those that wait are put together; one that holds the others up is put again, alone.
 */
import { areSameBesideBlanks, areSideBySide, inOneUnit, sameBased, sameInteger, sameWords } from '../../kernels'
import { TroupeError } from '../../runtime/errors'
import type { RunResult, Sandbox } from '../../sandbox'

/** Which rule decided. The last four: it was left to math-verify, which could not settle it. */
type GradingRule =
  | 'no-answer'
  | 'integer'
  | 'unit'
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

/**
 * Standard input is the only untrusted thing here, and it is data: a line of JSON. A line comes out as soon as an answer is
 * settled. What was parsed is kept until the end, for an expression can hang in its destructor, too; looking for garbage would
 * find little and cost 3 % of the time.
 */
const program = String.raw`
import gc, json, os, re, sys
from math_verify import LatexExtractionConfig, parse, verify
gc.disable()
kept = []
latex = [LatexExtractionConfig()]
# In what is no formula math-verify would take any number for the value: only words may stand beside one.
number = r'-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|-?\.\d+'
words = r'(?:\\(?:text|textbf|mathrm|mbox)\{|(?<![^\W\d_])[^\W\d_]{2,}(?![^\W\d_])|[\s:!?"}]|(?<!\.)\.(?!\.))*'
worded = re.compile(words + r'(?<![^\W_])(?:' + number + r')(?![^\W_])' + words)
def read(text):
    if worded.fullmatch(text): return parse('$' + text + '$', parsing_timeout=None)
    return parse('$' + text + '$', latex, parsing_timeout=None)
for ask in json.loads(sys.stdin.readline()):
    try:
        truth, answer = pair = [read(ask[name]) for name in ('truth', 'answer')]
        kept.append(pair)
        same = bool(truth) and bool(answer) and bool(verify(truth, answer, timeout_seconds=None))
        said = [same, bool(truth), bool(answer)]
    except Exception as error:
        said = (type(error).__name__ + ': ' + str(error))[:200]
    print(json.dumps(said), flush=True)
os._exit(0)
`

/** Answers that wait go to math-verify together, since a process costs more than an answer. */
const maxTogether = 32
const maxTogetherChars = 20_000
/**
 * Of several together, ms: one that holds the others up is then looked at alone, under its own deadline. An answer takes
 * 7 ms in the mean, the first of its kind 100.
 */
const togetherMs = (n: number) => 500 + 60 * n

interface Waiting {
  readonly answer: string
  readonly truth: string
  readonly alone: boolean
  readonly signal: AbortSignal | undefined
  readonly resolve: (verdict: Verdict) => void
  readonly reject: (error: unknown) => void
}

export function answerGrader(
  sandbox: Pick<Sandbox, 'run' | 'lanes'>,
  { timeoutMs, memoryMb = 1024, maxWaiting = 65_536 }: AnswerGraderOptions,
): AnswerGrader {
  const open = new Map<string, Promise<Verdict>>()
  /** Least recently used first. */
  const known = new Map<string, Verdict>()
  /** So few that the sandbox's own queue, which is shorter, never refuses one. */
  const atOnce = 2 * sandbox.lanes
  const waiting: Waiting[] = []
  let running = 0

  function settle(answer: string, truth: string, signal: AbortSignal | undefined): Promise<Verdict> {
    if (running >= atOnce && waiting.length >= maxWaiting) throw overloaded(waiting.length)
    return new Promise((resolve, reject) => {
      waiting.push({ answer: inMathMode(answer), truth: inMathMode(truth), alone: false, signal, resolve, reject })
      pump()
    })
  }

  function pump(): void {
    while (running < atOnce && waiting.length > 0) {
      const together = take()
      if (together.length === 0) continue
      running++
      void look(together)
        .catch(thrown => {
          for (const one of together) one.reject(thrown)
        })
        .finally(() => {
          running--
          pump()
        })
    }
  }

  /** Those that wait longest: as many as a lane's share of all, so that no lane stands idle at the end. */
  function take(): Waiting[] {
    const most = Math.min(maxTogether, Math.ceil(waiting.length / sandbox.lanes))
    const taken: Waiting[] = []
    for (let chars = 0; taken.length < most; ) {
      const next = waiting[0]
      if (next === undefined) break
      chars += next.answer.length + next.truth.length
      if (taken.length > 0 && (next.alone || chars > maxTogetherChars)) break
      waiting.shift()
      if (next.signal?.aborted) next.reject(next.signal.reason)
      else taken.push(next)
      if (next.alone) break
    }
    return taken
  }

  async function look(together: readonly Waiting[]): Promise<void> {
    const [first] = together
    const single = together.length === 1
    const stdin = `${JSON.stringify(together.map(({ answer, truth }) => ({ answer, truth })))}\n`
    const deadlineMs = single ? timeoutMs : Math.min(timeoutMs, togetherMs(together.length))
    const request = { id: 'grade', code: program, stdin, timeoutMs: deadlineMs, memoryMb }
    const result = await sandbox.run(request, single ? first!.signal : undefined)
    const said = text(result.stdout).split('\n').slice(0, -1)
    const settled = Math.min(said.length, together.length)
    for (let at = 0; at < settled; at++) together[at]!.resolve(verdictOf(said[at]!))
    if (settled === together.length) return
    if (isBroken(result)) throw failed(result)
    if (single) return first!.resolve(endedBy(result, timeoutMs))
    const [stuck, ...rest] = together.slice(settled)
    waiting.unshift({ ...stuck!, alone: true }, ...rest)
  }

  return async (ask, signal) => {
    const given = ask.answer.trim()
    const wanted = ask.truth.trim()
    if (given === '') return { correct: false, how: 'no-answer', why: 'the answer is empty' }
    const { answer, truth, units } = inOneUnit(given, wanted)
    if (units !== undefined) return { correct: false, how: 'unit', why: `two different units: ${units.join(' and ')}` }
    const same = sameInteger(answer, truth)
    if (same !== undefined) {
      return { correct: same, how: 'integer', why: same ? 'the same integer' : 'two different integers' }
    }
    if (answer === truth || given === wanted) return { correct: true, how: 'text', why: 'the same text' }
    const based = sameBased(answer, truth)
    if (based !== undefined) {
      return { correct: based, how: 'integer', why: based ? 'the same number, its base read' : 'two different numbers' }
    }
    const words = sameWords(answer, truth)
    if (words === true) return { correct: true, how: 'text', why: 'the same words' }
    if (words === false) return { correct: false, how: 'text', why: 'products of other letters: they differ in case' }
    const length = Math.max(answer.length, truth.length)
    if (length > longest) {
      return { correct: false, how: 'too-long', why: `${length} characters; math-verify is asked up to ${longest}` }
    }
    if (areSideBySide(answer) || areSideBySide(truth)) {
      const correct = areSameBesideBlanks(answer, truth)
      return { correct, how: 'text', why: correct ? 'the same numbers side by side' : 'two numbers stand side by side' }
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
  return inner.replace(lastLetters, '{$1}').replace(loneI, ' i ').trim()
}

/** Units are gone by now. math-verify would take some letters at the end for one: `2ab` would be 2, and `x + 2s` x + 2. */
const lastLetters = /(?<=[\d}\s])(?<!\\(?!pi\b)[A-Za-z]{1,20}\s?)(?!i$)([A-Za-z]{1,4})$/
/** It is complex to math-verify where it stands alone: then in both, or they never agree. */
const loneI = /(?<=\d)i(?![A-Za-z])|(?<![A-Za-z\\_^])i(?=\d)/g

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

/** What the program said of an answer. */
function verdictOf(line: string): Verdict {
  const said = JSON.parse(line) as string | readonly [boolean, boolean, boolean]
  if (typeof said === 'string') return { correct: false, how: 'math-verify-error', why: `math-verify failed: ${said}` }
  const [correct, truth, answer] = said
  const why = correct
    ? 'math-verify finds them equal'
    : !truth
      ? 'math-verify cannot read the truth'
      : answer
        ? 'math-verify finds them different'
        : 'math-verify cannot read the answer'
  return { correct, how: 'math-verify', why }
}

/** It ended before it said anything. */
function endedBy(result: RunResult, timeoutMs: number): Verdict {
  const wrong = { correct: false } as const
  switch (result.status) {
    case 'timeout':
      return { ...wrong, how: 'math-verify-timeout', why: `math-verify did not settle it in ${timeoutMs} ms` }
    case 'killed':
      return { ...wrong, how: 'math-verify-killed', why: `math-verify was ended by ${result.signal}` }
    default:
      return { ...wrong, how: 'math-verify-error', why: `math-verify failed: ${lastLine(result.stderr)}` }
  }
}

const isBroken = (result: RunResult) =>
  result.status === 'rejected' ||
  result.status === 'ok' ||
  (result.status === 'error' && brokenGrader.test(text(result.stderr)))

/** math-verify is not there, or not usable: no answer brings that about, since the import comes first. */
const brokenGrader = /^(ModuleNotFoundError|ImportError)\b/m
const text = (bytes: Uint8Array) => Buffer.from(bytes).toString('utf8')
const lastLine = (bytes: Uint8Array) => text(bytes).trim().split('\n').at(-1)!.slice(0, 200)

const overloaded = (n: number) =>
  new TroupeError('verifier.overloaded', {
    boundary: 'verifier',
    retriable: true,
    message: `${n} answers wait for math-verify already`,
  })

function failed(result: RunResult): TroupeError {
  return new TroupeError('verifier.failed', {
    boundary: 'verifier',
    retriable: true,
    message: `math-verify ended with ${result.status}: ${result.reason ?? lastLine(result.stderr)}`,
    hint: '`npm run setup` installs math-verify into the Python environment that it runs in',
  })
}
