/**
 * Batches pairs of answer and truth for math-verify, which runs in a sandbox.
 *
 * in   an answer and the truth, normalised        out  math-verify's verdict
 * Waiting pairs go to one process together, since starting a process costs more than a pair. A pair that delays its
 * batch is given to math-verify again, alone, under its own deadline.
 * Invariant: the processes that decide a pair have a deadline and a memory limit each (math-verify hangs on towers of
 * powers, and eats memory); a pair that cannot be decided is wrong and the verdict says so. A call rejects only if
 * math-verify is broken, its sandbox fails or cannot be opened, the machine has no memory for it, or the call is
 * aborted; it throws if the queue is full.
 */
import { TroupeError } from '../../runtime/errors'
import { isOutOfMemory, type RunResult, type Sandbox } from '../../sandbox/sandbox'

/** Rules of verdicts by math-verify: `math-verify` decided; the others name why it could not. */
export type MathVerifyRule = 'math-verify' | 'math-verify-timeout' | 'math-verify-killed' | 'math-verify-error'

export interface MathVerdict {
  readonly correct: boolean
  readonly how: MathVerifyRule
  readonly why: string
}

export interface MathVerifyOptions {
  /** Time in ms that a process of math-verify may take for one pair; the wait for a worker is not counted. */
  readonly timeoutMs: number
  /** Upper bound on the address space of math-verify's process, in MiB. Default: 1024. */
  readonly memoryMb?: number
  /**
   * Upper bound on the answers that wait for the sandbox; one more is refused with verifier.overloaded. Default:
   * 65,536.
   */
  readonly maxWaiting?: number
}

/**
 * Decides one pair with math-verify. @throws TroupeError verifier.overloaded if the queue is full, verifier.failed if
 * math-verify is broken, sandbox.out_of_memory if the machine has no memory for it
 */
export type MathVerify = (answer: string, truth: string, signal?: AbortSignal) => Promise<MathVerdict>

/**
 * Python program that runs in the sandbox. It reads the pairs as one line of JSON from standard input, the only
 * untrusted input, and prints one line for each pair as soon as it is decided. Parsed expressions are kept until the
 * end, since an expression can hang in its destructor, too. Garbage collection is off: it would free little and cost
 * 3 % of the time.
 */
const program = String.raw`
import gc, json, os, re, sys
from math_verify import LatexExtractionConfig, parse, verify
gc.disable()
kept = []
latex = [LatexExtractionConfig()]
# In a text that is no formula math-verify takes any number as the value: accept only words beside a single number.
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

const maxBatch = 32
const maxBatchChars = 20_000
/** Time in ms that a batch of n pairs may take, at most `timeoutMs`. A pair takes 7 ms on average, the first 100 ms. */
const batchDeadlineMs = (n: number) => 500 + 60 * n

interface Waiting {
  readonly answer: string
  readonly truth: string
  readonly alone: boolean
  readonly signal: AbortSignal | undefined
  readonly resolve: (verdict: MathVerdict) => void
  readonly reject: (error: unknown) => void
}

export function mathVerify(
  sandbox: Pick<Sandbox, 'run' | 'lanes'>,
  { timeoutMs, memoryMb = 1024, maxWaiting = 65_536 }: MathVerifyOptions,
): MathVerify {
  /**
   * Upper bound on running batches: low enough that the sandbox, whose queue is shorter than `maxWaiting`, never
   * refuses a batch.
   */
  const maxRunning = 2 * sandbox.lanes
  const waiting: Waiting[] = []
  let running = 0

  function startBatches(): void {
    while (running < maxRunning && waiting.length > 0) {
      const batch = takeBatch()
      if (batch.length === 0) continue
      running++
      void decide(batch)
        .catch(thrown => {
          for (const pair of batch) pair.reject(thrown)
        })
        .finally(() => {
          running--
          startBatches()
        })
    }
  }

  /**
   * Takes the pairs that have waited longest: at most `maxBatch`; at most the number of waiting pairs divided by that
   * of the sandbox's workers, so that all workers stay busy; and at most `maxBatchChars` characters, unless the first
   * pair alone has more. A pair marked `alone` is taken alone. Pairs whose calls were aborted are rejected and left
   * out.
   */
  function takeBatch(): Waiting[] {
    const most = Math.min(maxBatch, Math.ceil(waiting.length / sandbox.lanes))
    const taken: Waiting[] = []
    for (let chars = 0; taken.length < most; ) {
      const next = waiting[0]
      if (next === undefined) break
      chars += next.answer.length + next.truth.length
      if (taken.length > 0 && (next.alone || chars > maxBatchChars)) break
      waiting.shift()
      if (next.signal?.aborted) next.reject(next.signal.reason)
      else taken.push(next)
      if (next.alone) break
    }
    return taken
  }

  async function decide(batch: readonly Waiting[]): Promise<void> {
    const [first] = batch
    const single = batch.length === 1
    const stdin = `${JSON.stringify(batch.map(({ answer, truth }) => ({ answer, truth })))}\n`
    const deadlineMs = single ? timeoutMs : Math.min(timeoutMs, batchDeadlineMs(batch.length))
    const request = { id: 'grade', code: program, stdin, timeoutMs: deadlineMs, memoryMb }
    const result = await sandbox.run(request, single ? first!.signal : undefined)
    const lines = text(result.stdout).split('\n').slice(0, -1)
    const decided = Math.min(lines.length, batch.length)
    for (let at = 0; at < decided; at++) batch[at]!.resolve(verdictOf(lines[at]!))
    if (decided === batch.length) return
    if (isOutOfMemory(result)) throw outOfMemory()
    if (isBroken(result)) throw failed(result)
    if (single) return first!.resolve(undecided(result, timeoutMs))
    const [stuck, ...rest] = batch.slice(decided)
    waiting.unshift({ ...stuck!, alone: true }, ...rest)
  }

  return (answer, truth, signal) => {
    if (running >= maxRunning && waiting.length >= maxWaiting) throw overloaded(waiting.length)
    return new Promise((resolve, reject) => {
      waiting.push({ answer: inMathMode(answer), truth: inMathMode(truth), alone: false, signal, resolve, reject })
      startBatches()
    })
  }
}

/**
 * Prepares LaTeX for `$…$`: a line break or a `$` would end the formula, and braces around the whole text would make it
 * a set.
 */
function inMathMode(text: string): string {
  let inner = text.replace(/\s+/g, ' ').trim()
  for (let before = ''; before !== inner; ) {
    before = inner
    inner = (/^\$+([^$]*)\$+$/.exec(inner)?.[1] ?? withoutBraces(inner)).trim()
  }
  return inner.replace(lastLetters, '{$1}').replace(loneI, ' i ').trim()
}

/**
 * Matches letters at the end of a text. Real units were removed before, but math-verify would take some letters for a
 * unit: `2ab` would be 2, and `x + 2s` would be x + 2. Braces around the letters prevent that.
 */
const lastLetters = /(?<=[\d}\s])(?<!\\(?!pi\b)[A-Za-z]{1,20}\s?)(?!i$)([A-Za-z]{1,4})$/
/**
 * Matches an imaginary unit directly next to a digit (`2i`). math-verify recognises it only with blanks around it, so
 * they are added in the answer and in the truth.
 */
const loneI = /(?<=\d)i(?![A-Za-z])|(?<![A-Za-z\\_^])i(?=\d)/g

/** Removes the outer braces of `{…}`, a TeX group without meaning, if they belong together. */
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

/** Parses the line that the Python program printed about one pair. */
function verdictOf(line: string): MathVerdict {
  const printed = JSON.parse(line) as string | readonly [boolean, boolean, boolean]
  if (typeof printed === 'string')
    return { correct: false, how: 'math-verify-error', why: `math-verify failed: ${printed}` }
  const [correct, truth, answer] = printed
  const why = correct
    ? 'math-verify finds them equal'
    : !truth
      ? 'math-verify cannot parse the truth'
      : answer
        ? 'math-verify finds them different'
        : 'math-verify cannot parse the answer'
  return { correct, how: 'math-verify', why }
}

/** Makes the verdict on a pair about which the process printed no line before it ended. */
function undecided(result: RunResult, timeoutMs: number): MathVerdict {
  const wrong = { correct: false } as const
  switch (result.status) {
    case 'timeout':
      return { ...wrong, how: 'math-verify-timeout', why: `math-verify did not decide within ${timeoutMs} ms` }
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

/**
 * Matches the error of a math-verify that is not installed or unusable. No answer can cause it, since the program
 * imports math-verify first.
 */
const brokenGrader = /^(ModuleNotFoundError|ImportError)\b/m
const text = (bytes: Uint8Array) => Buffer.from(bytes).toString('utf8')
const lastLine = (bytes: Uint8Array) => text(bytes).trim().split('\n').at(-1)!.slice(0, 200)

const overloaded = (n: number) =>
  new TroupeError('verifier.overloaded', {
    boundary: 'verifier',
    retriable: true,
    message: `the queue of math-verify is full: ${n} answers wait already`,
    hint: 'retry after some answers are decided; with `troupe grade`, raise --lanes',
  })

const outOfMemory = () =>
  new TroupeError('sandbox.out_of_memory', {
    boundary: 'sandbox',
    retriable: true,
    message: 'the machine had no memory left for math-verify, so the answer was not judged',
    hint: 'give the machine or its cgroup more memory; with `troupe grade`, lower --lanes',
  })

function failed(result: RunResult): TroupeError {
  return new TroupeError('verifier.failed', {
    boundary: 'verifier',
    retriable: true,
    message: `math-verify ended with ${result.status}: ${result.reason ?? lastLine(result.stderr)}`,
    hint: 'run `npx troupe setup`, in a checkout `npm run setup`: it installs math-verify into the Python environment that Troupe uses',
  })
}
